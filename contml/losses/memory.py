"""Cross-batch memory: a batch is compared with itself and with the embeddings of earlier batches.

    L = loss of the anchors of the batch against (batch, memory);   then the batch takes the place of the oldest

Wang, Zhang, Huang, Scott: "Cross-Batch Memory for Embedding Learning", CVPR 2020. Embeddings drift slowly, so those of
some steps ago are nearly what the model would give now. What is remembered beside them are the row
numbers of their labels in the label space of the data set: a memory works with labels of any kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import check_at_least
from contml.contracts import Requirement
from contml.distances.euclidean import full_precision
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.losses.driver import PairLoss
from contml.losses.inputs import as_anchors, as_labels, check_embeddings

#: In place of the length of a label space: class ids are remembered; nothing is remembered yet.
_CLASS_IDS, _NOTHING = 0, -1


class CrossBatchMemory(nn.Module):
    """Any pair loss of a batch against itself and a memory of earlier embeddings, which get no gradient.

    The anchor's own image, remembered from an earlier batch, is left out. In eval mode the memory is read, not written.
    Labels are batches of one label space, `labels[rows]`. Integer classes `[B]` are remembered too, with a warning:
    they have no row numbers, so that an anchor's own image from an earlier batch counts as another item of its class.

    Args:
        size: how many embeddings are remembered; the oldest are forgotten first.
        start: training steps before the memory is used, as a model that has hardly begun drifts fast; 1000 in the
            paper.
        loss: a pair loss, whose anchors are items of the batch.
        embedding_dim: the embedding dimension; default that of the first batch.
    """

    embeddings: Tensor
    rows: Tensor

    def __init__(self, size: int = 8192, start: int = 0, *, loss: nn.Module, embedding_dim: int | None = None) -> None:
        super().__init__()
        check_at_least(1, size=size)
        check_at_least(0, start=start)
        self.size, self.start, self.loss = size, start, _checked(loss)
        self.register_buffer("embeddings", torch.zeros(size, embedding_dim or 0))
        self.register_buffer("rows", torch.zeros(size, dtype=torch.int64))  # of the label space, or class ids
        self.steps, self.written = 0, 0
        self._items = _NOTHING  # how many items the label space has that `rows` belong to
        self._warned = False  # that integer classes have no row numbers

    def extra_repr(self) -> str:
        """The options and how full it is, for `repr`."""
        return f"{len(self):,} of {self.size:,} embeddings remembered, start={self.start}"

    @property
    def requires(self) -> Requirement:
        """What the loss needs of labels."""
        return self.loss.requires

    def __len__(self) -> int:
        """How many embeddings are remembered."""
        return min(self.written, self.size)

    def reset(self) -> None:
        """Forget all embeddings; the steps are counted on."""
        self.written, self._items = 0, _NOTHING

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: `[B, d]`.
            labels: a batch of a label space, `labels[rows]`, or integer classes `[B]`.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: labels that cannot be remembered, embeddings or labels of another kind than those remembered.
        """
        check_embeddings("CrossBatchMemory", embeddings)
        positions = as_anchors(anchors, embeddings)
        batch = as_labels("CrossBatchMemory", self.requires, labels, embeddings, positions)
        rows, items = self._rows_of(batch)
        self._check(embeddings, items)
        rows = rows.to(embeddings.device, torch.int64)
        if len(self):
            value = self._with_memory(embeddings, batch, rows, positions)
        else:
            value = self.loss(embeddings, batch, anchors=positions)
        if self.training:
            if self.steps >= self.start:
                self._write(embeddings.detach(), rows, items)
            self.steps += 1
        return value

    def _with_memory(self, embeddings: Tensor, batch: LabelSpace, rows: Tensor, anchors: Tensor | None) -> Tensor:
        size, device = len(embeddings), embeddings.device
        # A copy: what is written into the memory later changes nothing that a backward pass may still need.
        items = torch.cat((full_precision(embeddings), full_precision(self.embeddings[: len(self)].to(device))))
        rows = torch.cat((rows, self.rows[: len(self)].to(device)))
        anchors = torch.arange(size, device=device) if anchors is None else anchors
        if batch.rows is None:
            return self.loss.value(self.loss.compare(items, ClassLabels.from_ids(rows), anchors))

        def same_image(part: slice) -> Tensor:
            """Where a remembered item is the anchor's own image: bool `[A, B + M]`."""
            same = rows[anchors[part], None] == rows
            same[:, :size] = False  # within the batch, an anchor is known by its position
            return same

        labels = batch.root[rows.to(batch.device)]
        return self.loss.value(replace(self.loss.compare(items, labels, anchors), excluded=same_image))

    def _rows_of(self, batch: LabelSpace) -> tuple[Tensor, int]:
        """What of the labels is remembered `[B]`, and the number of items in their label space."""
        if batch.rows is not None:
            return batch.rows, len(batch.root)
        if batch.class_ids is None:
            raise InputError(
                f"CrossBatchMemory: labels are {batch!r} without row numbers, which cannot be compared with later "
                "batches; build a label space of the data set and give labels[rows], or give integer classes [B]"
            )
        if not self._warned:
            self._warned = True
            warnings.warn(
                "CrossBatchMemory: integer classes have no row numbers, so an anchor's own image from an earlier batch "
                "counts as another item of its class; give labels[rows] of a ClassLabels to leave it out",
                stacklevel=5,  # who called the module: two calls of torch lie between
            )
        return batch.class_ids, _CLASS_IDS

    def _check(self, embeddings: Tensor, items: int) -> None:
        if self._items not in (_NOTHING, items):
            raise InputError(
                f"CrossBatchMemory holds {_words(self._items)}, but these labels are {_words(items)}; "
                "keep to one label space, or call reset()"
            )
        known = self.embeddings.shape[1]
        if known not in (0, embeddings.shape[1]):
            raise InputError(
                f"CrossBatchMemory holds embeddings of {known} dimensions, but these have {embeddings.shape[1]}"
            )

    @torch.no_grad()
    def _write(self, embeddings: Tensor, rows: Tensor, items: int) -> None:
        x = full_precision(embeddings)
        if self.written == 0:
            self.embeddings = x.new_zeros(self.size, x.shape[1])
        self.embeddings, self.rows = self.embeddings.to(x.device), self.rows.to(x.device)
        self._items = items
        kept = min(len(x), self.size)
        first = self.written + len(x) - kept
        at = torch.arange(first, first + kept, device=x.device) % self.size
        self.embeddings[at] = x[-kept:].to(self.embeddings.dtype)
        self.rows[at] = rows[-kept:]
        self.written += len(x)

    def get_extra_state(self) -> Tensor:
        """Steps, embeddings written so far, and what their labels are, `[3]`; for `state_dict`."""
        return torch.tensor([self.steps, self.written, self._items])

    def set_extra_state(self, state: Tensor) -> None:
        """Go on from `get_extra_state`."""
        self.steps, self.written, self._items = (int(number) for number in state)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}embeddings")
        if saved is not None:  # an empty memory does not know the embedding dimension
            self.embeddings = self.embeddings.new_zeros((self.size, *saved.shape[1:]), dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _checked(loss: nn.Module) -> PairLoss:
    name = type(loss).__name__
    if not isinstance(loss, PairLoss):
        raise InputError(f"a memory takes a pair loss of contml, but {name} is none; leave out the memory")
    if not loss.takes_memory:
        raise InputError(
            f"{name} compares proxies, or pairs of its own choice within a batch, and has no use for a memory; "
            "leave out the memory, or choose another loss"
        )
    return loss


def _words(items: int) -> str:
    return "integer classes" if items == _CLASS_IDS else f"rows of a label space of {items} items"
