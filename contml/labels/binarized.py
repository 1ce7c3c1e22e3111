"""Label spaces binarized to 0 / 1, by a threshold or by nearest neighbours, for losses that need such labels."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from contml._support.fingerprints import fingerprint
from contml._support.validation import PositiveFloat, PositiveInt, check_ranges
from contml.contracts import Colours, LabelKind, Part
from contml.distances.nearest import checked
from contml.labels.base import LabelSpace, check_label_space
from contml.labels.neighbours import search_neighbours


class _BinaryLabels(LabelSpace):
    """A label space of 0 / 1 whose texts, parts and colours come from the label space that it binarizes."""

    kind: LabelKind = "binary"

    @property
    @abstractmethod
    def _graded(self) -> LabelSpace:
        """The same items with graded labels."""

    @property
    def is_partial(self) -> bool:
        """True if the graded labels are partial."""
        return self._graded.is_partial

    @property
    def mirrored(self) -> bool:  # type: ignore[override]
        """True if mirroring one item does not change the graded label distances."""
        return self._graded.mirrored

    @property
    def usual_distance(self) -> float:
        """The label distance for pairs without one: 1."""
        return 1.0

    def _known(self, x: Self, y: Self) -> Tensor:
        return self._graded._known(x._graded, y._graded)

    def text(self, row: int) -> str:
        """Return the text of the graded label."""
        return super().text(row) or self._graded.text(row)

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the parts of the graded label distance."""
        return self._graded.parts(a, b)

    def colours(self) -> Colours | None:
        """Return the colours of the graded labels."""
        return self._graded.colours()


class ThresholdLabels(_BinaryLabels):
    """A label space binarized to 0 / 1: items nearer than a threshold are positives.

    Args:
        space: the label space.
        threshold: items at a smaller label distance, in the unit of the space, are positives (0); all others are
            negatives (1).
    """

    space: LabelSpace

    @check_ranges
    def __init__(self, space: LabelSpace, threshold: PositiveFloat) -> None:
        check_label_space("space", space)
        super().__init__(space=space)
        self.threshold = threshold
        self.unit = f"{threshold:g} or more ({space.unit})"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return 0 for positives and 1 for negatives, `[X, Y]`."""
        return checked(self.space._block(x.space, y.space)) >= self.threshold

    @property
    def _graded(self) -> LabelSpace:
        return self.space

    def _contents(self) -> str:
        return f"positives below {self.threshold:g} of {self.space!r}"


class NearestLabels(_BinaryLabels):
    """A label space binarized to 0 / 1: the positives of an item are its k nearest items.

    The label distances are **not symmetric**: i may be among the k nearest of j, but j not among i's nearest. Row a
    marks the positives of a. A subset keeps the neighbours of the whole space. A pair without a graded label distance
    has no label distance here either. An item may then have fewer than k positives.

    Args:
        space: the label space.
        k: the number of nearest items by label distance that are positives (0), besides the item itself; all others
            are 1.
        cache: a folder that keeps the neighbours for later runs on these labels; None: they are computed in each run.
    """

    positions: Tensor

    @check_ranges
    def __init__(
        self, space: LabelSpace, k: PositiveInt = 30, cache: Path | None = None, *, quiet: bool = True
    ) -> None:
        check_label_space("space", space)
        super().__init__(positions=torch.arange(len(space), device=space.device))
        self.k, self._space = k, space
        neighbours = search_neighbours(space, k, cache, quiet)  # [N,k]
        # Neighbours in the whole space. Empty places hold the item itself, which is at distance 0 anyway.
        self.neighbours = torch.where(neighbours >= 0, neighbours, self.positions[:, None])
        self.unit = f"not among the {k} nearest"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return 0 for positives and 1 for negatives, `[X, Y]`."""
        positive = torch.zeros(len(x), len(self.neighbours), dtype=torch.bool, device=self.device)
        positive.scatter_(1, torch.cat((self.neighbours[x.positions], x.positions[:, None]), 1), True)
        return ~positive[:, y.positions]

    def to(self, device: torch.device | str) -> Self:
        """Return the same labels on another device."""
        moved = super().to(device)
        moved.neighbours, moved._space = self.neighbours.to(device), self._space.to(device)
        return moved

    @property
    def _graded(self) -> LabelSpace:
        return self._space[self.positions]

    def fingerprint(self) -> str:
        """Return a hash of the neighbours, the same on every device: the key of caches."""
        return fingerprint(type(self), self.neighbours, self.positions)

    def _contents(self) -> str:
        return f"the {self.k} nearest items are positives"
