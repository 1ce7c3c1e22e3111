"""The label space of real vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.text import interval_texts, value_text
from contml.contracts import Colours, Measure, Part
from contml.distances.euclidean import euclidean, squared_euclidean
from contml.labels.base import MetricLabels
from contml.labels.items import ItemLabels, typed_numbers

#: Numbers of a label that are written, and that are compared in words.
_WRITTEN, _LISTED = 6, 8


class VectorLabels(MetricLabels, ItemLabels):
    """Numbers or vectors as labels, such as ages, ratings or attributes.

    Args:
        values: `[N]` or `[N, D]`.
        squared: squared Euclidean label distance, else plain Euclidean. Give `LogRatioLoss` the same value; the other
            losses have one value for both.
        unit: the unit of the labels, such as "years"; label distances are printed in it, squared ones as their root.
        scales: what the numbers of a vector were divided by `[D]`, where each has a unit of its own: typed labels are
            divided by them, and printed ones multiplied. None: nothing.
    """

    title = "number"
    item_arguments: ClassVar[Mapping[str, Any]] = {"values": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"squared": bool, "scales": Tensor | None}
    typed_as = "text"
    values: Tensor

    def __init__(self, values: Numbers, squared: bool = True, unit: str = "", scales: Numbers | None = None) -> None:
        allowed = "numbers [items] or [items, D]"
        packed = as_numbers("values", values, allowed).to(torch.float64, copy=True)
        if packed.ndim not in (1, 2) or packed.numel() == 0:
            got = str(list(packed.shape)) if packed.numel() else "no numbers"
            hint = "joints are labels of PoseLabels; else give values.flatten(1)" if packed.ndim > 2 else ""
            raise InputError("values", got, f"must be {allowed}", hint)
        super().__init__(values=packed if packed.ndim == 2 else packed[:, None])
        self.squared = squared
        given = None if scales is None else as_numbers("scales", scales, "numbers above 0 [D]").double().cpu()
        if given is not None and (given.shape != self.values.shape[1:] or not bool((given > 0).all())):
            raise InputError("scales", str(given.tolist())[:60], f"must be {self.values.shape[1]} numbers above 0")
        self._form = {"scales": given}
        self.measure = Measure(unit, kind="root" if squared else "linear")
        self.unit = ("squared " if squared else "") + (unit or "difference of labels")

    def distances(self, x: Self, y: Self) -> Tensor:
        """Euclidean distances, squared or plain, in float64 `[X, Y]`."""
        if x.values.shape[1] == 1:
            difference = x.values - y.values.T
            return difference.square_() if self.squared else difference.abs_()
        return (squared_euclidean if self.squared else euclidean)(x.values, y.values)

    @property
    def vectors(self) -> Tensor:
        """The labels `[N, D]`."""
        return self.values

    def text(self, row: int) -> str:
        """The numbers of an item; of more than six, the first six."""
        if given := super().text(row):
            return given
        values = (self.values[row].cpu() * self._scales).tolist()
        words = " ".join([*map(self._written, values[:_WRITTEN]), *(["…"] if len(values) > _WRITTEN else [])])
        return words + self.measure.after_label

    def plain(self, row: int) -> Any:
        """The number of an item in the unit of the data, or its numbers."""
        numbers = [self.measure.linear.of(value) for value in (self.values[row].cpu() * self._scales).tolist()]
        return numbers[0] if len(numbers) == 1 else numbers

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """A number with its unit, and the ends, rounded in proportion to the width of the interval."""
        first, second, third = interval_texts(value, low, high)
        return first + self.measure.after_label, second, third

    def parse(self, text: str) -> list[float]:
        """The numbers of a label in the unit of the data: one, or several between commas or spaces."""
        return typed_numbers(self.title, text, self.values.shape[1])

    def _item(self, label: Any) -> Self:
        """A number, or as many as an item has, in the unit of the data."""
        numbers = as_numbers(self.title, [label] if isinstance(label, Real) else label, "numbers").double().cpu()
        if numbers.shape != self.values.shape[1:]:
            raise InputError(self.title, f"{list(numbers.shape)} numbers", f"must be {self.values.shape[1]}")
        inverse = self.measure.linear.inverse
        values = torch.tensor([[inverse(number) for number in numbers.tolist()]], dtype=torch.float64) / self._scales
        if not bool(values.isfinite().all()):
            allowed = "must be above 0" if self.measure.kind == "ratio" else "must be finite"
            raise InputError(self.title, f"{label!s:.60}", allowed)
        return self.of_vectors(values)

    def of_vectors(self, vectors: Tensor) -> Self:
        """Labels of these numbers, in the unit of `values`."""
        labels = self.as_root()
        labels.values = vectors.to(self.device, torch.float64)
        labels.rows, labels._texts, labels._identity = torch.arange(len(vectors), device=self.device), (), ()
        return labels

    @property
    def _scales(self) -> Tensor:
        scales: Tensor | None = self._form["scales"]
        return torch.ones(self.values.shape[1], dtype=torch.float64) if scales is None else scales

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

    def _compared_by(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        if type(self).distances is not VectorLabels.distances:
            return None
        return self.values, (lambda squared: squared) if self.squared else torch.sqrt
