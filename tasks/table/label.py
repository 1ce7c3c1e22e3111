"""The contract of a kind of label of a table. `Cells` are read as a `LabelColumn`, which is fitted to training rows."""

# Annotations are not postponed, because a kind in another module inherits the annotations of the fields.

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from contml import InputError
from contml._support.packed import taken
from contml._support.packed_texts import TextLists
from contml._support.validation import PositiveFloat, check_arguments
from contml.config import ConfiguredPart
from contml.data import View
from contml.data.tables import Array as Array, Column, Table, refuse_object
from contml.labels import LabelSpace

from .._readers.folders import Missing
from .cells import CellFiles, TableReading, has_decimal_comma, number_column, number_hint, numbers


@dataclass(frozen=True, eq=False)
class Reading:
    """The options of `table/file`, and the files that cells name. With `has_features`, image files may be missing."""

    files: CellFiles
    table: TableReading
    image: str | None
    root: str | None
    split: str | None
    test: float
    group: str | None
    frame: str | None
    exclude_group: bool | None
    queries: int | None
    missing: Missing
    seed: int
    has_features: bool


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one label.

    Args:
        part: the section of the label in a config.
        table: a table with only the columns of the label.
        images: the image file of each row.
        reading: the options of reading.
    """

    part: ConfiguredPart
    table: Table
    images: Sequence[str]
    reading: Reading

    @property
    def name(self) -> str:
        """The name of the label: its columns with commas."""
        return ",".join(self.table.columns)

    @property
    def columns(self) -> list[Column]:
        """The columns of the label."""
        return list(self.table.columns.values())

    @property
    def missing(self) -> Counter[str]:
        """The words that were read as missing, with the number of cells of each word."""
        return sum((Counter(column.missing) for column in self.columns), Counter[str]())

    @cached_property
    def commas(self) -> list[bool]:
        """True for each column whose numbers have a decimal comma."""
        return [has_decimal_comma(column, self.reading.table.decimal, self.table.delimiter) for column in self.columns]

    def error(self, got: str, allowed: str = "", hint: str = "") -> InputError:
        """Return the error of the label as a whole."""
        return InputError(self.part.section, got, allowed, hint)

    def error_at(self, row: int, got: str, allowed: str = "", hint: str = "", column: int | None = None) -> InputError:
        """Return the error of a row, in one of several columns."""
        name = self.name if column is None else list(self.table.columns)[column]
        return InputError(f"{self.table.where(row)}: {name}", got, allowed, hint)

    def read(self) -> "LabelColumn":
        """Return the values of the label.

        Raises:
            InputError: a cell is not a value of its kind, or the label has too many or too few columns.
        """
        with self.part.errors():
            kind: TableLabel = self.part.build()
            (least, most), count = kind.takes, len(self.columns)
            if not least <= count <= (most or count):
                allowed = f"{least}" if most == least else f"{least} to {most}"
                raise self.error(f"{count} columns", f"must be {allowed} for the kind {self.part.name}")
            for index, column in enumerate(self.columns if kind.holds_text else []):
                for row, cell in column.in_brackets():
                    refuse_object(cell, self.error_at(row, "", column=index).subject, f"the kind {self.part.name}")
            return kind.read(self)

    def numbers(self) -> Array:
        """Return the numbers of all columns `[N, D]`, NaN if a cell is missing.

        Raises:
            InputError: a cell is not a number.
        """
        values = []
        for index, (column, comma) in enumerate(zip(self.columns, self.commas, strict=True)):
            column_values, invalid_rows = number_column(column, comma)
            if len(invalid_rows):
                (cell,) = column.texts([row := int(invalid_rows[0])])
                allowed = f"must be a number with a decimal {'comma' if comma else 'point'}"
                raise self.error_at(row, f"'{cell[:60]}'", allowed, number_hint(cell, comma), index)
            values.append(column_values)
        return np.stack(values, 1)

    def vectors(self) -> Array:
        """Return the numbers `[N, D]` of several columns, or of one column of lists, NaN if a cell is missing.

        Raises:
            InputError: a cell is not a number or a list of numbers, or lists differ in their length.
        """
        if len(self.columns) > 1:
            return self.numbers()
        (column,) = self.columns
        filled_rows = np.flatnonzero(column.filled).tolist()
        if column.kind == "numbers":
            lists = column.lists()
        else:
            lists = [numbers(cell, self.reading.table.decimal == "comma") if cell else None for cell in column.texts()]
        first_row = filled_rows[0] if filled_rows else 0
        length = len(lists[first_row] or ()) if filled_rows else 1
        values = np.full((len(column), max(length, 1)), np.nan)
        for row in filled_rows:
            if (row_values := lists[row]) is None:
                allowed = "must be a JSON array, or numbers separated by spaces"
                raise self.error_at(row, f"'{column.texts([row])[0][:60]}'", allowed)
            if len(row_values) != length:
                allowed = f"must be {length} as in {self.table.where(first_row)}"
                raise self.error_at(row, f"{len(row_values)} numbers", allowed)
            values[row] = [np.nan if value is None else value for value in row_values]
        if (infinite := np.isinf(values).any(1)).any():
            raise self.error_at(int(infinite.argmax()), "inf", "must be finite numbers")
        return values


@dataclass(frozen=True)
class TableLabel(ABC):
    """A kind of label. Its constructor's arguments are the options of its section in a config.

    Args:
        weight: the weight of its label distance in a sum of labels.
    """

    weight: PositiveFloat = 1.0

    #: The lowest and the highest number of columns. None: no limit.
    takes: ClassVar[tuple[int, int | None]] = (1, 1)
    #: The option that a text after the kind sets, as in `number:log`. "": no option.
    short: ClassVar[str] = ""
    #: True if a cell is a text or a list of texts. A JSON object in such a cell would be compared as a text.
    holds_text: ClassVar[bool] = False
    #: True if values are `TextLists`. An image with several rows is then one item with the values of all its rows.
    merges: ClassVar[bool] = False
    #: Texts for messages: the needs of a present row, the needs of a usable row, the error of an unusable row.
    content: ClassVar[str] = "a value"
    needs: ClassVar[str] = ""
    unusable: ClassVar[str] = ""
    #: The most training rows for a search of nearest labels, for a single label and for labels in a sum.
    most_rows: ClassVar[tuple[int, int]] = (50_000, 50_000)
    #: The section `loss` if this label is the only one, and another loss than the loss of table/default was better in
    #: the comparisons of docs/losses.md. "": the loss of table/default.
    loss: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_arguments(type(self), vars(self))

    @abstractmethod
    def read(self, cells: Cells) -> "LabelColumn":
        """Return the values of all rows.

        Raises:
            InputError: a cell is not a value of this kind.
        """

    @abstractmethod
    def fit(self, column: "LabelColumn", train: Array, test: Array) -> "FittedLabel":
        """Fit the label to a split: its unit, its word vectors, or the files to read.

        Args:
            column: the values, as `read` returned them.
            train: the training rows that have a value, at least three.
            test: the validation and test rows that have a value.

        Raises:
            InputError: these rows cannot be compared.
        """

    def problem(self, column: "LabelColumn", row: int) -> str:  # noqa: ARG002
        """Return the error of a row that has no value."""
        return f"no {column.name}"


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """A label of a table as it was read.

    Args:
        kind: the kind of label, with all options.
        cells: the cells that were read.
        values: the value of each row, in a form that depends on the kind.
        present: True for rows that have a value, bool `[N]`.
        missing: the words that were read as missing, with the number of cells of each word.
    """

    kind: TableLabel
    cells: Cells
    values: Any
    present: Array
    missing: Counter[str]

    @property
    def name(self) -> str:
        """The name of the label."""
        return self.cells.name

    @property
    def missing_words(self) -> str:
        """A description of the words that were read as missing, with their numbers. "" if there are no such words."""
        words = [f"'{word}' ({count:,} cell{'s' if count > 1 else ''})" for word, count in self.missing.most_common(5)]
        return ", ".join(words)

    def of(self, rows: Array) -> Sequence[Any]:
        """Return the values of these rows."""
        return taken(self.values, rows)

    def merged(self, first_rows: Array) -> "LabelColumn":
        """Move the texts of all rows of an image to its first row.

        `first_rows` `[N]` is the first row of each row's image. Other rows have no texts.
        """
        lengths = np.zeros_like(first_rows)
        np.add.at(lengths, first_rows, self.values.lengths)
        values = TextLists.of_lengths(self.values.taken(np.argsort(first_rows, kind="stable")).texts, lengths)
        return replace(self, values=values, present=lengths > 0)

    def known(self, train: Array) -> Array:
        """Return the training rows that have a value.

        Raises:
            InputError: fewer than three training rows have a value.
        """
        known_rows = train[self.present[train]]
        if len(known_rows) < 3:
            problem = f"{len(known_rows)} of {len(train):,} training rows have {self.kind.content}"
            raise self.cells.error(problem, "must be at least 3", "choose another label")
        return known_rows

    def absence(self, row: int) -> tuple[str, str, str]:
        """Return what a row without a value lacks, the error, and another remedy."""
        note = f", or set table.missing_words=[] if {self.missing_words} is a value" if self.missing else ""
        return self.kind.content, self.kind.problem(self, row), note

    def fit(self, train: Array, test: Array) -> "FittedLabel":
        """Return the label, fitted to training rows. `test` are the validation and test rows.

        Raises:
            InputError: fewer than three training rows have a value, or their values cannot be compared.
        """
        with self.cells.part.errors():
            return self.kind.fit(self, self.known(train), test[self.present[test]])

    def fitted(
        self,
        make: Callable[[Array], LabelSpace],
        summary: str,
        present: "Array | None" = None,
        view: Callable[[Array, Any], View] = lambda *_: View(),
    ) -> "FittedLabel":
        """Return this label, fitted.

        `present` marks the rows that can be used, by default all rows that have a value.
        """
        present = self.present if present is None else present
        return FittedLabel(self.kind, self.cells, self.values, present, self.missing, make, summary, view)


@dataclass(frozen=True, eq=False)
class FittedLabel(LabelColumn):
    """A label of a known split. It makes label spaces of rows that are `present`, which can be used.

    Args:
        make: returns the label space of some rows.
        summary: a description of all values: their range, or examples.
        view: returns the view that draws the label space of some rows.
    """

    make: Callable[[Array], LabelSpace]
    summary: str
    view: Callable[[Array, Any], View]

    def absence(self, row: int) -> tuple[str, str, str]:  # noqa: ARG002
        """Return what an unusable row lacks, the error, and no other remedy."""
        return self.kind.needs, f"'{self.name}' {self.kind.unusable}", ""

    def space(self, rows: Array) -> LabelSpace:
        """Return the label space of these rows."""
        space = self.make(rows)
        space.title = self.name
        return space
