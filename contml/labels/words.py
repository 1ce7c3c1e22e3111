"""The text form of the items of a label space: texts, plain values, parts, colours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from contml._support.errors import InputError
from contml._support.packed import Packed
from contml._support.text import value_text
from contml.contracts import PLAIN, Colours, Measure, Part


class LabelWords(ABC):
    """The text form of the items of a label space, and the format of its label distances; base of `LabelSpace`.

    Attributes:
        unit: the meaning of a label distance of 1.
        measure: the format of label distances; the default prints them as plain numbers.
        title: a word or two for the labels, such as "age".
        part_names: the names of the parts of a label, such as joints, the classes of a map, or the numbers of a vector.
            If it is empty, the parts are numbered.
        rows: row numbers in the root `[N]`; None if a loss made the labels from a plain tensor.
    """

    unit: str = "label distance"
    measure: Measure = PLAIN
    title: str = "label"
    part_names: Sequence[str] = ()
    rows: Tensor | None = None
    _texts: Sequence[str] = ()  # of the root, as `_identity`
    _identity: Sequence[str] = ()

    @property
    @abstractmethod
    def root(self) -> Self:
        """The space that `rows` refers to."""

    @abstractmethod
    def as_root(self) -> Self:
        """Return the same items as a new root."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pairwise(self, rows: Any = None, cols: Any = None) -> Tensor:
        """Return label distances `[R, C]`."""

    def text(self, row: int) -> str:
        """Return the label of an item as text, with its unit, in one line or several.

        By default it is the text from `with_texts`. Return "" if only a picture can show the label.
        """
        texts = self.root._texts
        return texts[row if self.rows is None else int(self.rows[row])] if texts else ""

    def plain(self, row: int) -> Any:
        """Return the label of an item as a plain value, for JSON and tables: a number, a text, a list.

        Return None if it has no such value.
        """
        return self.text(row) or None

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the reasons why two items are near or far: what is compared, both values, and their difference.

        By default it is one part with both texts. Return an empty list if the labels have no text.
        """
        texts = self.text(a), self.text(b)
        return [Part(self.title, *texts, self._difference(a, b))] if all(texts) else []

    def _difference(self, a: int, b: int) -> str:
        """Return the difference of two items, as text."""
        return self.measure.text(float(self.pairwise([a], [b])))

    def colours(self) -> Colours | None:
        """Return the labels as colours. Return None if they are neither numbers nor classes."""
        return None

    def with_texts(self, texts: Sequence[str] = (), *, identity: Sequence[str] = ()) -> Self:
        """Return the same items as a new root, with texts that `text` returns.

        Label distances and fingerprint do not change.

        Args:
            texts: the label of each item as text; default: the texts that it has.
            identity: texts that identify the label of each item in the record of a run, such as the cells of a table;
                default: its content.

        Raises:
            InputError: there is not one text for each item.
        """
        root = self.as_root()
        for name, given in (("texts", texts), ("identity", identity)):
            if len(given) not in (0, len(self)):
                raise InputError(name, f"{len(given)} for {len(self)} items", "must be one for each item")
            if len(given):
                setattr(root, f"_{name}", given if isinstance(given, Packed) else [*map(str, given)])
        return root

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """Return a label, with its unit, and the ends of an interval around it, as texts.

        The arguments are values of `plain`.
        """
        first, second, third = (value_text(x) if isinstance(x, float) else str(x) for x in (value, low, high))
        return first, second, third

    @property
    def captions(self) -> Sequence[Sequence[str]] | None:
        """The captions of each item, which a captioner learns; None if labels are not captions."""
        return None

    def _part_name(self, number: int, default: str) -> str:
        """Return the name of a part of a label. Return `default` if it has no name."""
        return self.part_names[number] if number < len(self.part_names) else default
