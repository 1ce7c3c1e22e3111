"""Labels of a table that are texts or files: classes, levels, tags, captions, label maps.

Labels that are numbers are in number_labels.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from contml import InputError
from contml._support.packed_texts import TextLists, Texts
from contml._support.validation import PositiveInt
from contml.data import View
from contml.data.renderers.labels import LabelMapExplainer, LabelMapRenderer, map_legend, shrink
from contml.data.tables import text_lists
from contml.labels import ClassLabels, LabelSpace, OrdinalLabels, SegmentationLabels, TagLabels
from contml.labels.caption_words import split_words

from .._readers.folders import why_absent
from .._readers.label_maps import MapChecks, check_shape, read_groups, read_map, to_classes
from ..captions.distance import CaptionDistance, DistanceOptions, WordWeights, vectors_in_words, word_vectors
from .cells import decimal_comma, number, separator
from .label import Array, Cells, FittedLabel, LabelColumn, TableLabel

#: With more different numbers than this, ordinal labels need whole numbers that repeat.
_MOST_LEVELS = 20
#: A column hardly repeats if its share of different values is at least this number.
_NEARLY_ALL = 0.9
#: Two maps with more than this share of labelled pixels have labelled pixels in common. Others may have none.
_LABELLED = 0.5


class ClassLabel(TableLabel):
    """A text or number. The label distance is 0 between equal values, else 1."""

    holds_text = True

    def read(self, cells: Cells) -> LabelColumn:
        """Return the text of each row, "" if the text is missing."""
        (column,) = cells.columns
        texts = column.packed_texts()
        names, numbers = texts.numbered()
        normal = Texts(normalize("NFC", name) for name in names)
        values = texts if normal == names else normal.taken(numbers)
        return LabelColumn(self, cells, values, column.filled, cells.missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Count the classes. Refuse fewer than two classes, or classes with one row each."""
        names, numbers = column.values.taken(train).numbered()
        if len(names) < 2:
            problem = f"'{names[0]}' in all of {len(train):,} training rows"
            raise column.cells.error(problem, hint="choose another label")
        if len(names) == len(train):
            problem = f"each of the {len(train):,} training rows has a class of its own"
            raise column.cells.error(problem, hint="choose another label or kind")
        counts = np.bincount(numbers)
        least, most = counts.min(), counts.max()
        class_size = f"{least}" if least == most else f"{least} to {most}"
        summary = f"{len(names)} classes of {class_size} training rows: {_examples(names)}"
        return column.fitted(lambda rows: ClassLabels(column.of(rows)), summary)


@dataclass(frozen=True)
class OrdinalLabel(TableLabel):
    """Ordered levels, such as ratings. The label distance is the difference of ranks as a share of the scale.

    Args:
        levels: the levels, lowest first: [small, medium, large]. null: the numbers in the cells.
    """

    levels: list[str | int | float] | None = None

    def read(self, cells: Cells) -> LabelColumn:
        """Return the level of each row, "" if the level is missing."""
        values, present = cells.columns[0].packed_texts(), cells.columns[0].filled
        distinct, numbers = values.numbered()
        if self.levels is None:
            order = self._numbers(cells, values)
            levels = list(dict.fromkeys(order.values()))
            distinct = Texts(order.get(value, value) for value in distinct)
            values = distinct.taken(numbers)
        else:
            levels = [str(level) for level in self.levels]
        for code, value in enumerate(distinct):
            if value and value not in levels:
                row = int((numbers == code).argmax())
                raise cells.error_at(row, f"'{value}' is not a level", f"levels has {', '.join(levels)}")
        if len(levels) < 2:
            raise cells.error(f"{len(levels)} level", "must have at least 2")
        return LabelColumn(self, cells, (values, levels), present, cells.missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Return the label, which depends on no rows."""
        values, levels = column.values
        listed_levels = levels if len(levels) < 8 else [*levels[:3], "…", levels[-1]]
        summary = f"{len(levels)} levels: {' < '.join(listed_levels)}"
        return column.fitted(lambda rows: OrdinalLabels(values.taken(rows), levels), summary)

    def _numbers(self, cells: Cells, values: Texts) -> dict[str, str]:
        """Return the level of each different cell, lowest first.

        Of equal numbers, such as 4 and 4.0, the shortest text is the level.

        Raises:
            InputError: the cells are words, or are amounts, whose ranks do not show their differences.
        """
        distinct, _ = cells.columns[0].distinct()
        comma = decimal_comma(distinct, cells.reading.table.decimal, cells.table.delimiter)
        order = {value: number(value, comma) for value in distinct}
        if words := [value for value, parsed in order.items() if parsed is None]:
            hint = f"or set levels=[LOWEST, ..., HIGHEST], all of them in order, of {', '.join(sorted(distinct)[:5])}"
            problem = f"levels in words ({_examples(words)})" if len(words) == len(order) else f"the level '{words[0]}'"
            raise cells.error_at(values.index(words[0]), problem, "must be numbers", hint)
        fractional_value = next((value for value, parsed in order.items() if not (parsed or 0.0).is_integer()), None)
        num_levels, num_rows = len(order), int(cells.columns[0].filled.sum())
        if num_levels > _MOST_LEVELS and (fractional_value is not None or num_levels >= _NEARLY_ALL * num_rows):
            example = next(iter(order)) if fractional_value is None else fractional_value
            problem = f"'{example}', one of {num_levels:,} different numbers in {num_rows:,} rows"
            allowed = f"ordinal needs at most {_MOST_LEVELS} levels, or levels that repeat"
            hint = f"set the kind {cells.name}=number, or give levels"
            raise cells.error_at(values.index(example), problem, allowed, hint)
        ascending = sorted(distinct, key=lambda value: (order[value] or 0.0, len(value), value))
        shortest: dict[float | None, str] = {}
        return {value: shortest.setdefault(order[value], value) for value in ascending}


@dataclass(frozen=True)
class TagsLabel(TableLabel):
    """A list of tags, a;b;c or a JSON list, [] for no tags. The label distance is 1 - shared tags / all tags of both.

    Args:
        separator: the character between tags. null: the first of ; | , that the column uses.
    """

    separator: str | None = None

    holds_text = True

    def read(self, cells: Cells) -> LabelColumn:
        """Return the tags of each row, without tags if they are missing."""
        (column,), missing = cells.columns, cells.missing
        mark = self.separator or separator(cell for cell in text_lists(column, Counter()) if isinstance(cell, str))
        present = np.zeros(len(column), bool)

        def tags() -> Iterator[list[str]]:
            for row, cell in enumerate(text_lists(column, missing)):
                present[row] = cell is not None
                if isinstance(cell, str):
                    if (cell[0], cell[-1]) == ("[", "]"):
                        allowed = "must be a list in the syntax of JSON, or tags between separators"
                        raise cells.error_at(row, f"'{cell[:60]}'", allowed)
                    cell = cell.split(mark) if mark else [cell]
                yield [tag.strip() for tag in cell or () if tag.strip()]

        return LabelColumn(self, cells, TextLists(tags()), present, missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Count the tags."""
        values = column.values.taken(train)
        counts = Counter(values.texts)
        summary = f"{len(counts)} tags, up to {values.lengths.max()} per row: {_examples(counts)}"
        return column.fitted(lambda rows: TagLabels(column.of(rows)), summary)


@dataclass(frozen=True)
class CaptionsLabel(TableLabel):
    """Texts, in one or several columns or a JSON list. The label distance is the Word Mover's Distance, or another one.

    Args:
        distance: the distance between captions: wmd, tfidf or mean_vector; or a weighted sum, {wmd: 0.5, tfidf: 0.5},
            with each distance divided by its mean in training.
        word_weights: the weights of words in wmd and mean_vector: count (1), or idf, of the training captions.
        vectors: a file of word vectors, beside the table or anywhere: word2vec, GloVe or fastText.
            null: word vectors are trained on the training rows.
        normalize: scale word vectors to unit length first.
        dim: dimension of word vectors that are trained.
    """

    distance: str | dict[str, float] = "wmd"
    word_weights: WordWeights = "count"
    vectors: str | None = None
    normalize: bool = False
    dim: PositiveInt = 100

    takes = (1, None)
    holds_text = merges = True
    content = "a caption"
    needs = "a word that has a vector"
    unusable = "has no word that has a vector"
    most_rows = (20_000, 3_000)
    loss = "{name: smooth_rank, temperature: 0.03}"

    def read(self, cells: Cells) -> LabelColumn:
        """Return the captions of each row."""
        missing = cells.missing
        rows = zip(*(text_lists(column, missing) for column in cells.columns), strict=True)
        texts = ([text for cell in row for text in ([cell] if isinstance(cell, str) else cell or ())] for row in rows)
        values = TextLists([normalize("NFC", text).strip() for text in row if text.strip()] for row in texts)
        return LabelColumn(self, cells, values, values.lengths > 0, missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:
        """Read or train word vectors, if the distance uses them.

        A row can be used if its captions have a word, and the word has a vector.
        """
        cells, values, choice = column.cells, column.values, DistanceOptions(self.distance, self.word_weights)
        if code := [name for name in choice.weights if ":" in name]:
            hint = "a function of yours is an option of captions/coco and captions/flickr"
            raise InputError("distance", code[0], "must be wmd, tfidf or mean_vector", hint)
        path = None if self.vectors is None else Path(cells.reading.files.root) / Path(self.vectors).expanduser()
        train_captions, test_captions = map(values.taken, (train, test))
        seed = cells.reading.seed
        vectors: Mapping[str, Any] = {}
        source = ", ".join(choice.weights)
        if choice.needs_vectors:
            vectors = word_vectors(path, train_captions, test_captions, self.dim, seed)
            words = vectors_in_words(path, vectors, train_captions, f"task.{cells.part.section}.vectors")
            source = f"{len(vectors):,} words with a vector ({words})"
        distance = CaptionDistance(choice, train_captions, test_captions, vectors, self.normalize, seed)
        known = ({word for text in texts for word in split_words(text)} for texts in values)
        known = (words & vectors.keys() if choice.needs_vectors else words for words in known)
        usable = np.fromiter(map(bool, known), bool, len(values))
        usable_rows = train[usable[train]] if usable[train].any() else train
        example = _shortened(values[usable_rows[0]][0], 40)
        summary = f"up to {values.lengths[usable_rows].max()} per row, {source}: '{example}'"
        return column.fitted(lambda rows: distance.labels(column.of(rows))[0], summary, usable)


@dataclass(frozen=True)
class MapLabel(TableLabel):
    """Paths of label maps, PNG files of class numbers. The label distance is 1 - mean IoU.

    Args:
        classes: number of classes. null: the highest number in the maps plus one.
        ignore: the class number of ignored pixels, such as 255.
        side: maps are resized to this many pixels square. null: maps are not resized, so all must have one size.
        names: a table in the folder of the images that describes the class numbers in its first column.
        column: the column of the table `names` that groups class numbers. Equal values become one class.
        groups: the values of the column that are classes, in order. Values joined by "+" are one class. Others are
            ignored. null: every value is a class.
    """

    classes: PositiveInt | None = None
    ignore: int | None = None
    side: PositiveInt | None = 112
    names: str | None = None
    column: str | None = None
    groups: tuple[str, ...] | None = None

    content = "a label map"
    needs = "enough labelled pixels"
    unusable = "has at most half of its pixels labelled"
    most_rows = (20_000, 10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.names is None) != (self.column is None) or (self.groups is not None and self.column is None):
            raise InputError("names, column and groups", "one without the others", hint="give names and column")
        if self.names is not None and self.classes is not None:
            raise InputError("classes", str(self.classes), "must be null with names", "the groups are the classes")

    def read(self, cells: Cells) -> LabelColumn:
        """Return the path of each map. The maps are read later."""
        paths = [cells.reading.files.place(cell) for cell in cells.columns[0].texts()]
        file_exists = np.array([cells.reading.files.has(path) for path in paths])
        return LabelColumn(self, cells, paths, cells.columns[0].filled & file_exists, cells.missing)

    def problem(self, column: LabelColumn, row: int) -> str:
        """Return the error of a row without a file."""
        if not column.cells.columns[0].filled[row]:
            return super().problem(column, row)
        path, root = column.values[row], column.cells.reading.files.root
        reason = why_absent(Path(path))
        return f"{column.name}: no such file {path}, relative to root {root}{f'; {reason}' if reason else ''}"

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:
        """Read the maps of these rows. Maps with labels on more than half of their pixels can be used."""
        rows = np.concatenate((train, test))
        cells, paths = column.cells, [column.values[row] for row in rows]
        maps, checks = list[Array](), MapChecks()
        for row, path in zip(rows, paths, strict=True):
            full_map, palette = read_map(Path(path))
            checks.add(path, full_map, palette)
            check_shape(Path(path), full_map, Path(cells.images[row]))
            maps.append(shrink(full_map, self.side))
            if maps[-1].shape != maps[0].shape:
                problem = f"{list(maps[-1].shape)} pixels, but {paths[0]} has {list(maps[0].shape)}"
                raise InputError(path, problem, hint="set side to compare maps of several sizes")
        groups = None
        if self.names is not None and self.column is not None:
            groups = read_groups(Path(cells.reading.files.root) / self.names, self.column, self.groups)
        stack, classes, ignore = to_classes(paths, np.stack(maps), self.classes, self.ignore, groups)  # [T,H,W]
        class_names = [f"class {number}" for number in range(classes)] if groups is None else groups.names
        position = {int(row): index for index, row in enumerate(rows)}
        shares = [1.0 if ignore is None else float(np.mean(ids != ignore)) for ids in stack]
        usable = column.present.copy()
        usable[rows] &= np.array(shares) > _LABELLED
        height, width = stack.shape[1:]
        ignored = "" if ignore is None else f", {ignore} ignored"
        summary = f"{classes} classes{ignored}, compared at {width} x {height} pixels; 1 - mean IoU"
        summary += checks.words()

        def space(rows: Array) -> LabelSpace:
            labels = SegmentationLabels(stack[[position[int(row)] for row in rows]], classes, ignore, side=None)
            labels.part_names = class_names
            return labels

        def view(_: Array, labels: SegmentationLabels) -> View:
            renderer = LabelMapRenderer(labels, height, width)
            return View(renderer, map_legend(class_names, ignore), LabelMapExplainer(renderer))

        return column.fitted(space, summary, usable, view)


def _examples(values: Collection[str]) -> str:
    examples = [_shortened(text, 24) for text in islice(values, 3)]
    return ", ".join([*examples, "…"] if len(values) > 3 else examples)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
