"""A weighted sum of several label spaces of the same items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

from torch import Tensor

from contml._support.errors import InputError
from contml.labels.base import LabelSpace


class WeightedLabels(LabelSpace):
    """Several label spaces of the same items; the label distance is the weighted sum of theirs.

    With weights of 1 / (mean label distance of the space), spaces of different units count equally.

    Args:
        spaces: each label space with its weight, a number above 0: `{places: 0.01, tags: 1.0}`.
        unit: what a label distance of 1 means, in words.
    """

    def __init__(self, spaces: Mapping[LabelSpace, float], unit: str = "") -> None:
        if not spaces:
            raise InputError("spaces", "no label spaces", "must be at least one, with its weight")
        lengths = [len(space) for space in spaces]
        if len(set(lengths)) != 1:
            raise InputError("spaces", f"{lengths} items", "must hold the same items in the same order")
        if len(devices := {str(space.device) for space in spaces}) != 1:
            raise InputError("spaces", f"on {', '.join(sorted(devices))}", "must be on one device")
        for space, weight in spaces.items():
            if not 0 < weight < math.inf:
                raise InputError(f"weight of {type(space).__name__}", str(weight), "must be above 0 and finite")
        super().__init__(**{f"space_{number}": space for number, space in enumerate(spaces)})
        self.weights = tuple(float(weight) for weight in spaces.values())
        self.unit = unit or " + ".join(f"{w:g} x ({s.unit})" for s, w in spaces.items())

    @property
    def spaces(self) -> tuple[LabelSpace, ...]:
        """The label spaces that are summed."""
        return tuple(self.__dict__[name] for name in self._packed)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Weighted sums `[X, Y]` in float64 of the spaces' distances, each rounded to float32."""
        total: Tensor | float = 0.0
        for space, a, b, weight in zip(self.spaces, x.spaces, y.spaces, self.weights, strict=True):
            total = total + weight * space.distances(a, a if x is y else b).float().double()
        assert isinstance(total, Tensor)
        return total

    def _contents(self) -> str:
        return " + ".join(f"{weight:g} x {space!r}" for space, weight in zip(self.spaces, self.weights, strict=True))
