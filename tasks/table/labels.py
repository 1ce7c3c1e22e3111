"""Labels of a table: read and check cells, and make label spaces of them. Number labels are in number_labels.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal
from unicodedata import normalize

import numpy as np

from contml import InputError
from contml.data.renderers.label_maps import shrink
from contml.data.tables import Array as Array, Column, Table, refuse_object, text_lists
from contml.labels import CaptionLabels, ClassLabels, LabelSpace, OrdinalLabels, SegmentationLabels, TagLabels
from contml.labels.words import split_words

from .._readers.label_maps import check_shape, read_image_map, to_classes
from .._readers.word_vectors import vectors_in_words, word_vectors
from .cells import CellFiles, Decimal, decimal_comma, number, separator

Scale = Literal["std", "range", "none"]

#: With more different numbers than this, ordinal labels need whole numbers that repeat.
_MOST_LEVELS = 20
#: From this share of different values on, a column hardly repeats.
_NEARLY_ALL = 0.9
#: Two maps with more than this share of labelled pixels have labelled pixels in common; others may have no distance.
_LABELLED = 0.5


@dataclass(frozen=True)
class Options:
    """How labels are read: the options that all labels of a table share."""

    files: CellFiles
    scale: Scale
    decimal: Decimal
    separator: str | None
    levels: dict[str, list[str]]
    classes: int | None
    ignore: int | None
    side: int | None
    vectors: str | None
    normalize: bool
    dim: int
    max_bytes: int
    max_rows: int
    seed: int
    heading_weight: float


class Label:
    """One label of a table, read and checked. `present` `[N]` marks the rows that have a value.

    Args:
        columns: the columns that it is read from.
        weight: its weight in a sum of labels.
        table: the table.
        options: how labels are read.
        form: how its values are written, where its kind has several forms: that of dates.
    """

    kind: ClassVar[str] = ""
    #: The lowest and the highest number of columns; None: any number.
    takes: ClassVar[tuple[int, int | None]] = (1, 1)
    #: In words: what a row needs to be `present`, what to be `usable`, and the error of a row that is not usable.
    content: ClassVar[str] = "a value"
    #: Whether a cell is a text or a list of texts, so that an object of JSON in it would be compared as a text.
    holds_text: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    unusable: ClassVar[str] = ""
    values: Any

    def __init__(self, columns: Sequence[str], weight: float, table: Table, options: Options, form: str = "") -> None:
        self.columns, self.weight, self.table, self.options, self.form = tuple(columns), weight, table, options, form
        self.name = ",".join(columns)
        min_columns, max_columns = self.takes
        if not min_columns <= len(columns) <= (max_columns or len(columns)):
            allowed = f"{min_columns}" if max_columns == min_columns else f"{min_columns} to {max_columns}"
            raise InputError(f"labels: {self.name}={self.kind}", f"{len(columns)} columns", f"must be {allowed}")
        self.present: Array = np.ones(len(table), dtype=bool)
        cells = [table.column(column, f"the label {self.name}") for column in columns]
        if self.holds_text:
            for name, column in zip(columns, cells, strict=True):
                for row, cell in column.in_brackets():
                    refuse_object(cell, f"{table.where(row)}: {name}", f"the kind {self.kind}")
        self.missing = sum((Counter(column.missing) for column in cells), Counter[str]())
        self._read(cells)
        del self.table  # its other columns need not stay in memory

    def _read(self, cells: list[Column]) -> None:
        """Set `values` from the cells, and `present`."""
        raise NotImplementedError

    def problem(self, row: int) -> str:  # noqa: ARG002
        """The error of a row that is not present."""
        return f"no {self.name}"

    @property
    def missing_words(self) -> str:
        """The words that were read as missing, with their numbers; "" for none."""
        words = [f"'{word}' ({count:,} cell{'s' if count > 1 else ''})" for word, count in self.missing.most_common(5)]
        return ", ".join(words)

    def usable(self, train: Array, test: Array) -> Array:  # noqa: ARG002
        """Which rows `[N]` can be used, bool; called when the split is known."""
        return self.present

    def fit(self, train: Array) -> None:
        """Compute what depends on the training rows that have a value: a unit, the range of the values."""

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows, which have a value."""
        raise NotImplementedError

    def describe(self) -> str:
        """All values in words: their range, or examples."""
        raise NotImplementedError


class ClassLabel(Label):
    """Any text or number: the label distance is 0 between equal values, else 1."""

    kind = "class"
    holds_text = True

    def _read(self, cells: list[Column]) -> None:
        names, codes = cells[0].distinct()
        texts = np.array([*(normalize("NFC", name) for name in names), ""], object)  # each text is in memory once
        self.values: list[str] = texts[codes].tolist()
        self.present = codes >= 0

    def fit(self, train: Array) -> None:
        """Count the classes."""
        self.counts = Counter(self.values[row] for row in train)
        if len(self.counts) < 2:
            problem = f"'{next(iter(self.counts))}' in all of {len(train):,} training rows"
            raise InputError(f"labels: {self.name}", problem, hint="choose another label")
        if len(self.counts) == len(train):
            problem = f"each of the {len(train):,} training rows has a class of its own"
            raise InputError(f"labels: {self.name}=class", problem, hint="choose another label or kind")

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return ClassLabels([self.values[row] for row in rows])

    def describe(self) -> str:
        """All values in words."""
        min_count, max_count = min(self.counts.values()), max(self.counts.values())
        class_size = f"{min_count}" if min_count == max_count else f"{min_count} to {max_count}"
        return f"{len(self.counts)} classes of {class_size} training rows: {_examples(self.counts)}"


class OrdinalLabel(Label):
    """Ordered levels, such as ratings: the label distance is the difference of ranks as a share of the scale."""

    kind = "ordinal"

    def _read(self, cells: list[Column]) -> None:
        self.values, self.present = cells[0].texts(), cells[0].filled
        distinct, _ = cells[0].distinct()
        levels = self.options.levels.get(self.name)
        if levels is None:
            comma = decimal_comma(distinct, self.options.decimal, self.table.delimiter)
            numbers = {value: number(value, comma) for value in distinct}
            if word := next((value for value, parsed in numbers.items() if parsed is None), None):
                hint = f"give their order, lowest first: levels={{{self.name}: [{', '.join(sorted(distinct)[:5])}]}}"
                location = f"{self.table.where(self.values.index(word))}: {self.name}"
                raise InputError(location, f"levels in words ({_examples(distinct)})", "must be numbers", hint)
            self._refuse_measured(numbers)
            levels = sorted(distinct, key=lambda value: numbers[value] or 0.0)
        self.levels = levels
        for row, value in enumerate(self.values):
            if self.present[row] and value not in levels:
                allowed = f"levels has {', '.join(levels)}"
                raise InputError(f"{self.table.where(row)}: {self.name}", f"'{value}' is not a level", allowed)
        if len(levels) < 2:
            raise InputError(f"{self.table.path}: {self.name}", f"{len(levels)} level", "must have at least 2")

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return OrdinalLabels([self.values[row] for row in rows], self.levels)

    def describe(self) -> str:
        """All values in words."""
        listed_levels = self.levels if len(self.levels) < 8 else [*self.levels[:3], "…", self.levels[-1]]
        return f"{len(self.levels)} levels: {' < '.join(listed_levels)}"

    def _refuse_measured(self, order: dict[str, float | None]) -> None:
        """Refuse numbers that are an amount rather than a level: their ranks say nothing of their differences."""
        fractional_value = next((value for value, parsed in order.items() if not (parsed or 0.0).is_integer()), None)
        num_levels, num_rows = len(order), int(self.present.sum())
        if num_levels > _MOST_LEVELS and (fractional_value is not None or num_levels >= _NEARLY_ALL * num_rows):
            example = next(iter(order)) if fractional_value is None else fractional_value
            location = f"{self.table.where(self.values.index(example))}: {self.name}"
            problem = f"'{example}', one of {num_levels:,} different numbers in {num_rows:,} rows"
            hint = f"set the kind {self.name}=number, or give levels"
            raise InputError(
                location, problem, f"ordinal needs at most {_MOST_LEVELS} levels, or levels that repeat", hint
            )


class TagsLabel(Label):
    """A list of tags, a;b;c or a JSON list, [] for none: the label distance is 1 - shared tags / all tags of both."""

    kind = "tags"
    holds_text = True

    def _read(self, cells: list[Column]) -> None:
        listed = text_lists(cells[0], self.missing)
        plain = [(row, cell) for row, cell in enumerate(listed) if isinstance(cell, str)]
        tag_separator = self.options.separator or separator([cell for _, cell in plain])
        for row, cell in plain:
            if (cell[0], cell[-1]) == ("[", "]"):
                allowed = "must be a list in the syntax of JSON, or tags between separators"
                raise InputError(f"{self.table.where(row)}: {self.name}", f"'{cell[:60]}'", allowed)
            listed[row] = cell.split(tag_separator) if tag_separator else [cell]
        self.values = [[tag.strip() for tag in tags or () if tag.strip()] for tags in listed]
        self.present = np.array([tags is not None for tags in listed])

    def fit(self, train: Array) -> None:
        """Count the tags."""
        self.counts = Counter(tag for row in train for tag in self.values[row])
        self.most = max(len(self.values[row]) for row in train)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return TagLabels([self.values[row] for row in rows])

    def describe(self) -> str:
        """All values in words."""
        return f"{len(self.counts)} tags, up to {self.most} per row: {_examples(self.counts)}"


class CaptionsLabel(Label):
    """Texts, in one or several columns or a JSON list: the label distance is the Word Mover's Distance."""

    kind = "captions"
    holds_text = True
    takes = (1, None)
    content = "a caption"
    needs = "a word that has a vector"
    unusable = "has no word that has a vector"

    def _read(self, cells: list[Column]) -> None:
        columns = [text_lists(column, self.missing) for column in cells]
        rows = (
            [text for cell in row for text in ([cell] if isinstance(cell, str) else cell or ())]
            for row in zip(*columns, strict=True)
        )
        self.values = [[normalize("NFC", text).strip() for text in texts if text.strip()] for texts in rows]
        self.present = np.array([bool(captions) for captions in self.values])

    def merge(self, row: int, more: int) -> None:
        """Add the captions of row `more` to those of `row`."""
        self.values[row] = [*self.values[row], *self.values[more]]
        self.present[row] |= self.present[more]

    def usable(self, train: Array, test: Array) -> Array:
        """Rows with a word that has a vector."""
        options = self.options
        path = None if options.vectors is None else Path(options.files.root) / Path(options.vectors).expanduser()
        train_captions, test_captions = ([self.values[row] for row in rows] for rows in (train, test))
        limits = options.max_bytes, options.max_rows
        self.vectors = word_vectors(path, train_captions, test_captions, options.dim, options.seed, *limits)
        self.source = vectors_in_words(path, self.vectors, train_captions)
        has_vector = [any(word in self.vectors for text in row for word in split_words(text)) for row in self.values]
        return np.asarray(self.present & np.array(has_vector))

    def fit(self, train: Array) -> None:
        """Keep an example and the highest number of captions."""
        self.example = self.values[train[0]][0]
        self.most = max(len(self.values[row]) for row in train)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return CaptionLabels([self.values[row] for row in rows], self.vectors, self.options.normalize)

    def describe(self) -> str:
        """All values in words."""
        vectors = f"{len(self.vectors):,} words with a vector ({self.source})"
        return f"up to {self.most} per row, {vectors}: '{_shortened(self.example, 40)}'"


class MapLabel(Label):
    """Paths of label maps, PNG files of class numbers: the label distance is 1 - mean IoU."""

    kind = "map"
    content = "a label map"
    needs = "enough labelled pixels"
    unusable = "has at most half of its pixels labelled"
    #: The images of all rows; their shapes must be those of the maps.
    images: Sequence[str]

    def _read(self, cells: list[Column]) -> None:
        self.values = [self.options.files.place(cell) for cell in cells[0].texts()]
        file_exists = np.array([self.options.files.has(path) for path in self.values])
        self.present = cells[0].filled & file_exists

    def problem(self, row: int) -> str:
        """The error of a row that is not present."""
        if self.values[row] == self.options.files.place(""):
            return super().problem(row)
        return f"{self.name}: no such file {self.values[row]}, relative to root {self.options.files.root}"

    def usable(self, train: Array, test: Array) -> Array:
        """Rows with labels on more than half of the pixels of their map; reads the maps."""
        rows = np.concatenate((train, test))
        rows = rows[self.present[rows]]
        paths = [self.values[row] for row in rows]
        maps: list[Array] = []
        for row, path in zip(rows, paths, strict=True):
            full_map = read_image_map(Path(path))
            check_shape(Path(path), full_map, Path(self.images[row]))
            maps.append(shrink(full_map, self.options.side))
            if maps[-1].shape != maps[0].shape:
                problem = f"{list(maps[-1].shape)} pixels, but {paths[0]} has {list(maps[0].shape)}"
                raise InputError(path, problem, hint="set side to compare maps of several sizes")
        class_options = self.options.classes, self.options.ignore
        self.maps, self.classes, self.ignore = to_classes(paths, np.stack(maps), *class_options, None)  # [T,H,W]
        self.position = {int(row): index for index, row in enumerate(rows)}
        shares = [1.0 if self.ignore is None else float(np.mean(ids != self.ignore)) for ids in self.maps]
        usable = self.present.copy()
        usable[rows] &= np.array(shares) > _LABELLED
        return usable

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        maps = self.maps[[self.position[int(row)] for row in rows]]
        return SegmentationLabels(maps, self.classes, self.ignore, side=None)

    def describe(self) -> str:
        """All values in words."""
        ignored = "" if self.ignore is None else f", {self.ignore} ignored"
        size = f"{self.maps.shape[2]} x {self.maps.shape[1]} pixels"
        return f"{self.classes} classes{ignored}, compared at {size}; 1 - mean IoU"


def _examples(values: Collection[str]) -> str:
    examples = [_shortened(text, 24) for text in islice(values, 3)]
    return ", ".join([*examples, "…"] if len(values) > 3 else examples)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
