"""A weighted sum of several label spaces of the same items."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind, LabelSpace, Rows
from contml.distances.cache import fingerprint
from contml.labels.base import SpaceView

if TYPE_CHECKING:
    from typing_extensions import Self


class WeightedLabels:
    """Several label spaces of the same items; the label distance is the weighted sum of theirs.

    Bring them to one scale first: a weight of 1 / (the mean label distance of a space) makes spaces count alike.

    Args:
        spaces: each label space with its weight, a number above 0: `{places: 0.01, tags: 1.0}`.
        unit: what a label distance of 1 is, in words.
    """

    kind: LabelKind = "distances"

    def __init__(self, spaces: Mapping[LabelSpace, float], unit: str = "") -> None:
        if not spaces:
            raise InputError("there are no label spaces; give at least one with its weight")
        lengths = [len(space) for space in spaces]
        if len(set(lengths)) != 1:
            raise InputError(f"the label spaces have {lengths} items; all must hold the same items in the same order")
        if len(devices := {str(space.device) for space in spaces}) != 1:
            raise InputError(f"the label spaces are on {', '.join(sorted(devices))}; move them to one device")
        for space, weight in spaces.items():
            if not 0 < weight < math.inf:
                raise InputError(f"the weight of {type(space).__name__} is {weight}; it must be above 0")
        self.spaces, self.weights = tuple(spaces), tuple(float(weight) for weight in spaces.values())
        self.unit = unit or " + ".join(f"{w:g} x ({s.unit})" for s, w in spaces.items())

    def __len__(self) -> int:
        return len(self.spaces[0])

    @property
    def device(self) -> torch.device:
        """Where the packed labels live."""
        return self.spaces[0].device

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        return self._of(tuple(space.to(device) for space in self.spaces))

    def subset(self, rows: Rows) -> Self:
        """These rows as a label space of their own."""
        return self._of(tuple(space.subset(rows) for space in self.spaces))

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """Label distances `[R, C]` in float32, summed in float64."""
        total: Tensor | float = 0.0
        for space, weight in zip(self.spaces, self.weights, strict=True):
            total = total + weight * space.pairwise(rows, cols).double()
        assert isinstance(total, Tensor)
        return total.float()

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)

    def fingerprint(self) -> str:
        """A hash of all the labels and of the weights, for caches.

        Raises:
            InputError: a space has no fingerprint.
        """
        return fingerprint(type(self), self.spaces, self.weights)

    def _of(self, spaces: tuple[LabelSpace, ...]) -> Self:
        changed = copy.copy(self)
        changed.spaces = spaces
        return changed
