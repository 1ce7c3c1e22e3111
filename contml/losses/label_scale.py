"""The scale of label distances, for losses whose options assume label distances of about 1."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.labels.base import LabelSpace, check_label_space
from contml.losses.driver import Block, Comparison, PairLoss

LabelScale: TypeAlias = PositiveFloat | Literal["median"]

#: Random pairs for the median: blocks of rows by columns.
_BLOCKS, _SIDE = 100, 10
#: Label distances of a batch whose median is so many times the scale are taken for squares, or for another unit.
_LARGEST_RATIO = 10
#: The least number of pairs whose median says so.
_LEAST_PAIRS = 20


class ScaledLabelLoss(PairLoss):
    """Base of the losses that divide plain label distances by a scale first; checkpoints hold the scale.

    Args:
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
        labels: the labels of the training set, for "median". Without them it is known for labels of 0 and 1, where it
            is 1; graded labels are refused.
    """

    requires: Requirement = "any"
    label_exponent: ClassVar[int | None] = 1
    label_unit: Tensor

    @check_ranges
    def __init__(self, label_scale: LabelScale, labels: LabelSpace | None) -> None:
        super().__init__()
        if labels is not None:
            check_label_space("labels", labels)
        self.label_scale = label_scale
        if not isinstance(label_scale, str):
            label_unit = label_scale
        else:
            label_unit = 0.0 if labels is None else median_distance(labels.with_exponent(1))
        self.register_buffer("label_unit", torch.tensor(label_unit, dtype=torch.float64))  # 0: not known
        self._known = label_unit > 0
        self._is_checked = not isinstance(label_scale, str)

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """All pairs of the anchors, if the scale of their label distances is known."""
        if not self._known:
            self._known = bool(self.label_unit > 0)  # from a checkpoint
        if not self._known and labels.kind == "graded":
            example = f"{type(self).__name__}(labels=labels)"
            hint = f"give the labels of the training set, {example}, or a number, label_scale=1.0"
            raise InputError("label_scale", "median, but of which labels?", hint=hint)
        return super().comparison(embeddings, labels, anchors)

    def block(self, comparison: Comparison, scores: Tensor, part: slice) -> Block:
        """The block of these anchors, with label distances divided by the scale.

        Raises:
            InputError: the label distances of the first batch are far above the scale.
        """
        block = super().block(comparison, scores, part)
        if not self._known:
            return block
        if not self._is_checked:
            self._check_scale(block.label_distances.detach())
        return replace(block, label_distances=block.label_distances / self.label_unit)

    def _check_scale(self, distances: Tensor) -> None:
        """Checks once that the label distances of a batch are in the unit of the scale; else no pair would be similar.

        Raises:
            InputError: their median is far above the scale.
        """
        distances = distances[distances > 0]
        if len(distances) < _LEAST_PAIRS:
            return
        median, scale = float(distances.median()), float(self.label_unit)
        if median > _LARGEST_RATIO * scale:
            got = f"a median of {median:g} in a batch"
            allowed = f"must be like the training labels, whose median is {scale:g}"
            hint = "squared? give the label space or plain distances; in another unit? give labels= in that unit"
            raise InputError("label distances", got, allowed, hint)
        self._is_checked = True


def median_distance(labels: LabelSpace) -> float:
    """The median of the label distances above 0 of 10,000 random pairs, always the same ones; 1 if there are none.

    Where labels are lists of pairs, which a random pair is hardly ever among, it is that of all pairs of the lists.
    """
    n, num_pairs = len(labels), _BLOCKS * _SIDE**2
    if (judged := labels.judged_pairs) is not None:
        distances = judged.distances
    elif n * n <= num_pairs:
        distances = labels.pairwise()
    else:
        rows = torch.randint(n, (_BLOCKS, 2, _SIDE), generator=torch.Generator().manual_seed(0))
        distances = torch.cat([labels.pairwise(r, c) for r, c in rows])
    distances = distances[distances > 0]  # pairs without a label distance are at 0
    return float(distances.median()) if len(distances) else 1.0
