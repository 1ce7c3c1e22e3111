"""The label spaces of numbers and of vectors."""

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
from contml.distances.euclidean import euclidean
from contml.labels.items import ItemLabels, typed_numbers

#: The most numbers of a label that `text` writes, and that `parts` lists.
_WRITTEN, _LISTED = 6, 8


class VectorLabels(ItemLabels):
    """Vectors as labels, such as attributes or several measurements; the label distance is Euclidean.

    Args:
        values: `[N, D]`. For one number per item, see `NumberLabels`.
        unit: the unit of the labels and of label distances, such as "cm".
        scales: the divisors of the numbers of a vector `[D]`, if each number has its own unit. Typed labels are divided
            by them, and printed ones multiplied. None: no divisors.
    """

    title = "vector"
    item_arguments: ClassVar[Mapping[str, Any]] = {"values": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"scales": Tensor | None}
    typed_as = "text"
    values: Tensor

    def __init__(self, values: Numbers, unit: str = "", scales: Numbers | None = None) -> None:
        allowed = "numbers [items, D]"
        packed = as_numbers("values", values, allowed).to(torch.float64, copy=True)
        if packed.ndim != 2 or packed.numel() == 0:
            got = str(list(packed.shape)) if packed.numel() else "no numbers"
            hint = "one number per item is a label of NumberLabels" if packed.ndim == 1 else ""
            hint = "joints are labels of PoseLabels; else give values.flatten(1)" if packed.ndim > 2 else hint
            raise InputError("values", got, f"must be {allowed}", hint)
        super().__init__(values=packed)
        given = None if scales is None else as_numbers("scales", scales, "numbers above 0 [D]").double().cpu()
        if given is not None and (given.shape != self.values.shape[1:] or not bool((given > 0).all())):
            raise InputError("scales", str(given.tolist())[:60], f"must be {self.values.shape[1]} numbers above 0")
        self._form = {"scales": given}
        self.measure = Measure(unit)
        self.unit = unit or "difference of labels"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute Euclidean distances in float64 `[X, Y]`."""
        return euclidean(x.values, y.values)

    @property
    def vectors(self) -> Tensor:
        """The labels `[N, D]`."""
        return self.values

    def text(self, row: int) -> str:
        """Return the numbers of an item, at most the first six, as text."""
        if given := super().text(row):
            return given
        values = (self.values[row].cpu() * self._scales).tolist()
        words = " ".join([*map(self._written, values[:_WRITTEN]), *(["…"] if len(values) > _WRITTEN else [])])
        return words + self.measure.after_label

    def plain(self, row: int) -> Any:
        """Return the numbers of an item in the unit of the data."""
        return [self.measure.of(value) for value in (self.values[row].cpu() * self._scales).tolist()]

    def parse(self, text: str) -> list[float]:
        """Return the numbers of a label in the unit of the data, between commas or spaces."""
        return typed_numbers(self.title, text, self.values.shape[1])

    def _item(self, label: Any) -> Self:
        """Return a space of one label in the unit of the data: one number, or as many as an item has."""
        numbers = as_numbers(self.title, [label] if isinstance(label, Real) else label, "numbers").double().cpu()
        if numbers.shape != self.values.shape[1:]:
            raise InputError(self.title, f"{list(numbers.shape)} numbers", f"must be {self.values.shape[1]}")
        inverse = self.measure.inverse
        values = torch.tensor([[inverse(number) for number in numbers.tolist()]], dtype=torch.float64) / self._scales
        if not bool(values.isfinite().all()):
            allowed = "must be above 0" if self.measure.kind == "ratio" else "must be finite"
            raise InputError(self.title, f"{label!s:.60}", allowed)
        return self.of_vectors(values)

    def of_vectors(self, vectors: Tensor) -> Self:
        """Return labels of these numbers, in the unit of `values`."""
        return self._replaced(values=vectors.to(self.device, torch.float64))

    @property
    def _scales(self) -> Tensor:
        scales: Tensor | None = self._form["scales"]
        return torch.ones(self.values.shape[1], dtype=torch.float64) if scales is None else scales

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the numbers that differ most. With texts, return both texts."""
        differences, measure = (self.values[a] - self.values[b]).abs(), self.measure
        if self.root._texts:
            return super().parts(a, b)
        order = differences.argsort(descending=True, stable=True)[:_LISTED].tolist()
        texts = [[self._written(value) for value in self.values[row].tolist()] for row in (a, b)]
        rows = ((self._part_name(n, f"number {n + 1}"), n, measure.text(float(differences[n]))) for n in order)
        return [Part(name, texts[0][n], texts[1][n], difference) for name, n, difference in rows]

    def _written(self, value: float) -> str:
        """Return a number in the unit of the labels, as text."""
        return value_text(self.measure.of(value))

    def _contents(self) -> str:
        return f"vectors of {self.values.shape[1]} numbers; unit: {self.unit}"

    def _compared_by(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return (self.values, torch.sqrt) if type(self).distances is VectorLabels.distances else None


class NumberLabels(VectorLabels):
    """Numbers as labels, such as ages or ratings; the label distance is their difference.

    Args:
        values: `[N]`.
        unit: the unit of the labels and of label distances, such as "years".
    """

    title = "number"
    option_arguments: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, values: Numbers, unit: str = "") -> None:
        numbers = as_numbers("values", values, "numbers [items]")
        if numbers.ndim != 1 or numbers.numel() == 0:
            got = str(list(numbers.shape)) if numbers.numel() else "no numbers"
            hint = "vectors are labels of VectorLabels" if numbers.ndim == 2 else ""
            hint = "give values[:, 0]" if numbers.ndim == 2 and numbers.shape[1] == 1 else hint
            raise InputError("values", got, "must be numbers [items]", hint)
        super().__init__(numbers[:, None], unit)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute differences in float64 `[X, Y]`."""
        return (x.values - y.values.T).abs_()

    def arguments(self) -> dict[str, Any]:
        """Return the numbers."""
        return {"values": self.values[:, 0]}

    def plain(self, row: int) -> Any:
        """Return the number of an item in the unit of the data."""
        return self.measure.of(float(self.values[row, 0]))

    def parts(self, a: int, b: int) -> list[Part]:
        """Return both numbers."""
        return ItemLabels.parts(self, a, b)

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """Return a number with its unit, and the ends, rounded in proportion to the width of the interval."""
        first, second, third = interval_texts(value, low, high)
        return first + self.measure.after_label, second, third

    def colours(self) -> Colours | None:
        """Return the number of each item, as colours."""
        values = torch.tensor(list(map(self.measure.of, self.values[:, 0].tolist())), dtype=torch.float64)
        return Colours(values, self.title, scale="log" if self.measure.kind == "ratio" else "linear")

    def _contents(self) -> str:
        return f"unit: {self.unit}"

    def _compared_by(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return (self.values, torch.sqrt) if type(self).distances is NumberLabels.distances else None
