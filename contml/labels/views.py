"""Views of a label space as 0 / 1: how class losses train on labels that are a matter of degree."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind, LabelSpace, Rows, as_rows
from contml.distances import nearest, pairwise, progress_bar
from contml.distances.cache import fingerprint
from contml.labels.base import SpaceView

if TYPE_CHECKING:
    from typing_extensions import Self


class _BinaryView:
    """Base of the views of a label space as 0 / 1."""

    kind: LabelKind = "binary"

    def __init__(self, space: LabelSpace) -> None:
        self.space = space

    def __len__(self) -> int:
        return len(self.space)

    @property
    def device(self) -> torch.device:
        """Where the packed labels live."""
        return self.space.device

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        moved = copy.copy(self)
        moved.space = self.space.to(device)
        return moved

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)  # type: ignore[arg-type]


class ThresholdLabels(_BinaryView):
    """A label space as 0 / 1: items nearer than a threshold are positives.

    Args:
        threshold: label distance below which an item is a positive (0), in the space's unit; all else is a
            negative (1).
    """

    def __init__(self, threshold: float, *, space: LabelSpace) -> None:
        if not threshold > 0:
            raise InputError(f"threshold is {threshold}; it must be above 0, or no item has a positive")
        super().__init__(space)
        self.threshold = threshold
        self.unit = f"{threshold:g} or more ({space.unit})"

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """0 or 1, `[R, C]` in float32."""
        return (pairwise(self.space, rows, cols) >= self.threshold).float()

    def subset(self, rows: Rows) -> ThresholdLabels:
        """These rows as a label space of their own."""
        return ThresholdLabels(self.threshold, space=self.space.subset(rows))

    def fingerprint(self) -> str:
        """A hash of the space's labels and of the threshold: the key of caches.

        Raises:
            InputError: the space has no fingerprint.
        """
        return fingerprint(type(self), self.threshold, self.space)


class NearestLabels(_BinaryView):
    """A label space as 0 / 1: the k nearest items of each are its positives.

    A relation that is **not symmetric**: an item may be among another's k nearest and not the other way round; row a
    tells the positives of a. A subset keeps the neighbours found in the whole.

    Args:
        k: how many of an item's nearest by label distance are its positives (0), beside itself; all else is 1.
        cache: a folder that keeps what was found, for the next run on these labels; none: found anew.
    """

    def __init__(self, k: int = 30, cache: Path | None = None, *, space: LabelSpace, quiet: bool = True) -> None:
        super().__init__(space)
        self.k = k
        with nullcontext() if quiet else progress_bar(len(space)) as progress:
            self.neighbours = nearest(space, k, progress=progress, cache=cache).rows  # [N,k]
        self.index = torch.arange(len(space), device=space.device)
        self.unit = f"not among the {k} nearest"

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """0 or 1, `[R, C]` in float32."""
        r, c = (self.index[as_rows(index, len(self), self.device)] for index in (rows, cols))
        positive = torch.zeros(len(r), len(self.neighbours), dtype=torch.bool, device=self.device)
        positive.scatter_(1, torch.cat((self.neighbours[r], r[:, None]), 1), True)
        return (~positive[:, c]).float()

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        moved = super().to(device)
        moved.neighbours, moved.index = self.neighbours.to(device), self.index.to(device)
        return moved

    def subset(self, rows: Rows) -> NearestLabels:
        """These rows as a label space of their own, with the neighbours of the whole."""
        part = copy.copy(self)
        part.index = self.index[as_rows(rows, len(self), self.device)]
        return part

    def fingerprint(self) -> str:
        """A hash of the neighbours, the same on every device: the key of caches."""
        return fingerprint(type(self), self.neighbours, self.index)
