"""The label space of real vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.text import value_text
from contml.contracts import Colours, Measure, Part
from contml.distances.euclidean import euclidean, squared_euclidean
from contml.distances.search import Neighbours
from contml.distances.vectors import neighbours_by_value
from contml.labels.base import MetricLabels

#: Numbers of a label that are written, and that are compared in words.
_WRITTEN, _LISTED = 6, 8


class VectorLabels(MetricLabels):
    """Numbers or vectors as labels, such as ages, ratings or attributes.

    Args:
        values: `[N]` or `[N, D]`.
        squared: squared Euclidean label distance, else plain Euclidean. Give `LogRatioLoss` the same value; the other
            losses have one value for both.
        unit: the unit of the labels, such as "years"; label distances are printed in it, squared ones as their root.
    """

    title = "number"
    values: Tensor

    def __init__(self, values: Numbers, squared: bool = True, unit: str = "") -> None:
        allowed = "numbers [items] or [items, D]"
        packed = as_numbers("values", values, allowed).to(torch.float64, copy=True)
        if packed.ndim not in (1, 2) or packed.numel() == 0:
            got = str(list(packed.shape)) if packed.numel() else "no numbers"
            hint = "joints are labels of PoseLabels; else give values.flatten(1)" if packed.ndim > 2 else ""
            raise InputError("values", got, f"must be {allowed}", hint)
        super().__init__(values=packed if packed.ndim == 2 else packed[:, None])
        self.squared = squared
        self.measure = Measure(unit, kind="root" if squared else "linear")
        self.unit = ("squared " if squared else "") + (unit or "difference of labels")

    def distances(self, x: Self, y: Self) -> Tensor:
        """Euclidean distances, squared or plain, in float64 `[X, Y]`."""
        return (squared_euclidean if self.squared else euclidean)(x.values, y.values)

    @property
    def vectors(self) -> Tensor:
        """The labels `[N, D]`."""
        return self.values

    def text(self, row: int) -> str:
        """The numbers of an item; of more than six, the first six."""
        values = self.values[row].tolist()
        words = " ".join([*map(self._written, values[:_WRITTEN]), *(["…"] if len(values) > _WRITTEN else [])])
        return super().text(row) or words + self.measure.after

    def parts(self, a: int, b: int) -> list[Part]:
        """Both numbers; of vectors without texts, the numbers that differ most."""
        differences, measure = (self.values[a] - self.values[b]).abs(), self.measure.linear
        if len(differences) == 1 or self.root._texts:
            return super().parts(a, b)
        order = differences.argsort(descending=True, stable=True)[:_LISTED].tolist()
        texts = [[self._written(value) for value in self.values[row].tolist()] for row in (a, b)]
        return [
            Part(self._part_name(n, f"number {n + 1}"), texts[0][n], texts[1][n], measure.text(float(differences[n])))
            for n in order
        ]

    def colours(self) -> Colours | None:
        """The number of each item; None for vectors."""
        if self.values.shape[1] > 1:
            return None
        values = torch.tensor(list(map(self.measure.linear.of, self.values[:, 0].tolist())), dtype=torch.float64)
        return Colours(values, self.title, scale="log" if self.measure.kind == "ratio" else "linear")

    def _written(self, value: float) -> str:
        """A number in the unit of the labels."""
        return value_text(self.measure.linear.of(value))

    def _contents(self) -> str:
        return f"vectors of {self.values.shape[1]} numbers; unit: {self.unit}"

    def _nearest(
        self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Callable[[int], None] | None
    ) -> Neighbours:
        if type(self).distances is not VectorLabels.distances:
            return super()._nearest(k, rows, among, memory, progress)
        order = (lambda squared: squared) if self.squared else torch.sqrt
        return neighbours_by_value(self.values, k, rows, among, order, memory, progress)
