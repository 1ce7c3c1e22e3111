"""Your own table of judgments as a task: scores of pairs, comparisons of items, or graded items of queries."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml._support.errors import did_you_mean
from contml._support.files import table_suffix
from contml._support.validation import FiniteFloat
from contml.data import ImageFile, Split, Task
from contml.data.carve import DivideBy, divide, with_judgments
from contml.data.features import read_features
from contml.data.sources import ImageSource, Vector
from contml.data.tables import Table, read_table
from contml.data.text_files import spelled_alike
from contml.labels import JudgedItems, PairLabels, RankingLabels, TripletLabels

from .._readers.folders import why_absent
from .._readers.splits import SPLIT_NAMES, TEST_PARTS, parts_of
from .cells import CellFiles, has_decimal_comma, is_comma_pair, looks_like_paths, number_column, thousands
from .label import Reading
from .overview import without_files

_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Form(NamedTuple):
    """The column names of a table of judgments. They are in lower case, without spaces and underscores.

    Attributes:
        name: the name of the form.
        items: the columns of items.
        judged: the column of the judgment. "": the columns of items already express the judgment.
        meaning: the meaning of a judgment.
    """

    name: str
    items: tuple[str, ...]
    judged: str
    meaning: str

    @property
    def columns(self) -> tuple[str, ...]:
        """All column names."""
        return tuple(filter(None, (*self.items, self.judged)))


_MORE, _LESS = "higher is more alike", "lower is more alike"
_PAIRS = [("a", "b"), ("left", "right"), ("first", "second")]
_PAIRS += [(f"{each}{x}", f"{each}{y}") for each in ("image", "img", "item") for x, y in (("a", "b"), ("1", "2"))]
_QUERIES = [("query", item) for item in ("item", "candidate", "document")]
#: The forms of judgments. If several have one name, docs and errors show the first one.
FORMS = [
    *(Form("scores of pairs", pair, name, _MORE) for pair in _PAIRS for name in ("score", "similarity", "rating")),
    *(Form("distances of pairs", pair, name, _LESS) for pair in _PAIRS for name in ("distance", "dissimilarity")),
    Form("triplets", ("anchor", "x", "y"), "choice", "the item that is nearer to the anchor"),
    Form("triplets", ("anchor", "positive", "negative"), "", "the positive is nearer to the anchor"),
    Form("odd one out", ("a", "b", "c"), "odd", "the item that is apart from both others"),
    *(Form("grades", pair, name, _MORE) for pair in _QUERIES for name in ("grade", "relevance")),
    *(Form("distances", pair, "distance", _LESS) for pair in _QUERIES),
]
_SHOWN = [form for n, form in enumerate(FORMS) if form.name not in {each.name for each in FORMS[:n]}]


@dataclass(frozen=True)
class JudgmentOptions:
    """Options for reading judgments.

    Args:
        items: a second table with the image of each item; or a .npz file with `names` `[N]` and `features` `[N, F]`, a
            vector of each item. null: the table "items" beside the judgments, if it exists and no cell is an image;
            otherwise judgments name the images themselves.
        id_column: the column of the table `items` with the names that judgments use. null: `id`.
        by: the unit of a drawn split. "item": no test judgment has an item of training. Items that judgments connect
            stay in one part. If they connect more than half of all items, judgments between both parts are left
            out. "judgment": items may be in both parts. null: "item".
        largest: for scores of pairs, the score of equal items, such as 10 on a scale from 0 to 10. A label distance is
            this number minus the score. null: the largest score.
        unit: for judged pairs, the unit of scores and distances, such as "points". null: no unit.
    """

    items: Path | None = None
    id_column: str | None = None
    by: DivideBy | None = None
    largest: FiniteFloat | None = None
    unit: str | None = None


def read_judgments(table: Table, options: Reading, judged: JudgmentOptions) -> Task:
    """Return the task of a table of judgments.

    Args:
        table: the table.
        options: the options of the task.
        judged: the options of judgments.

    Raises:
        InputError: a row, a cell, an option or a table is wrong.
    """
    found, columns = _form(table)
    form = found.name
    if judged.largest is not None and form != "scores of pairs":
        got = f"{judged.largest:g}, but the table has {form}"
        raise InputError("judgments.largest", got, "is an option of scores of pairs", "omit it")
    if judged.unit and form not in ("scores of pairs", "distances of pairs"):
        got = f"'{judged.unit}', but the table has {form}"
        raise InputError("judgments.unit", got, "is an option of judged pairs", "omit it")
    rows = _JudgmentRows(table, columns, options, judged)
    known = _known_items(table, options, judged, rows.names)
    sources = rows.find_items(known)
    judgments = rows.judgments(form, known, sources)
    split = options.split or next((name for name in table.columns if SPLIT_NAMES.fullmatch(name)), "")
    splits, description = _splits(judgments, split, options)
    lines = [
        ["column", "used as", "because", "values"],
        ["", "table", table.form, f"{len(table):,} rows; {len(judgments.whole):,} items"],
    ]
    if options.has_features:
        images = {source.file for source in sources.values() if isinstance(source, ImageFile)}
        if count := len(images) - sum(map(known.files.has, images)):
            lines.append(["", "features", "as given", without_files(count, len(judgments.whole))])
    for role, numbers in zip(rows.roles, rows.cells.T, strict=True):
        lines.append([role, "item", "by its name", f"{len(np.unique(numbers)):,} different"])
    facts = [judgments.labels().facts(), spelled_alike(judgments.names, "items")]
    if rows.judged:
        facts.append(thousands(table.columns[rows.judged], options.table.decimal))
    lines += [
        [rows.judged, form, f"by name: {found.meaning}", "; ".join(filter(None, facts))],
        [split, "split", description, ", ".join(f"{_count(s):,} for {part}" for part, s in splits.items())],
        *([name, "not used", "", ""] for name in table.columns if name not in {*rows.roles, rows.judged, split}),
    ]
    if rows.omitted:
        lines.append(["", "excluded", "missing=drop", ", ".join(f"{n:,} {why}" for why, n in rows.omitted.items())])
    options.files.forget()
    suggested = partial(_suggest_config, form)
    return Task(splits["train"], splits.get("test"), splits.get("val"), columns=lines, suggested=suggested)


class _JudgmentRows:
    """The rows of a table of judgments: a mask `use` `[N]` of the rows that can be used, and the omitted rows.

    Attributes:
        roles: the columns of items.
        judged: the column of the judgment. "": the columns of items already express the judgment.
        names: the different cells of the columns of items.
        cells: the number of the name in each cell `[N, roles]`. -1: the cell is empty.
    """

    def __init__(self, table: Table, columns: tuple[str, ...], options: Reading, judged: JudgmentOptions) -> None:
        self.table, self.options, self.judged_options = table, options, judged
        self.roles, self.judged = columns[:-1], columns[-1]
        number_of: dict[str, int] = {}
        numbered = []
        for role in self.roles:
            texts, numbers = table.column(role, "items").distinct()
            numbered.append(np.array([*(number_of.setdefault(text, len(number_of)) for text in texts), -1])[numbers])
        self.names, self.cells = list(number_of), np.stack(numbered, axis=1)
        self.use = np.ones(len(table), dtype=bool)
        self.omitted: Counter[str] = Counter()

    def find_items(self, known: _KnownItems) -> dict[int, ImageSource]:
        """Return the image of each item, by the number of its name. Incomplete rows are omitted or refused."""
        for column in filter(None, (*self.roles, self.judged)):
            rows = np.flatnonzero(~self.table.columns[column].filled & self.use)
            words = " or ".join(f"'{word}'" for word in self.table.columns[column].missing)
            got = f"empty, or {words}, which means a missing value" if words else "empty"
            self._drop(rows, column, got, "complete the row", "with an empty cell")
        sources: dict[int, ImageSource] = {}
        for role, numbers in zip(self.roles, self.cells.T, strict=True):
            rows = np.flatnonzero(self.use)
            first = np.unique(numbers[rows], return_index=True)[1]
            absent: dict[int, FileNotFoundError] = {}
            for row in rows[np.sort(first)].tolist():
                number = int(numbers[row])
                if number in sources:
                    continue
                try:
                    sources[number] = known.source(self.names[number])
                except FileNotFoundError as error:
                    absent[number] = error
                    if self.options.missing == "refuse":
                        break
                except InputError as error:
                    subject = ": ".join(filter(None, (self.table.where(row), role, error.subject)))
                    raise InputError(subject, error.got, error.allowed, error.hint) from None
            for file in list(absent.values())[:1]:
                rows = rows[np.isin(numbers[rows], list(absent))]
                self._drop(rows, role, f"no image {file.filename}", str(file.strerror), "without an image file")
        return sources

    def _drop(self, rows: _Array, column: str, got: str, hint: str, reason: str) -> None:
        """Refuse the first of some rows, or omit and count the rows."""
        if not len(rows):
            return
        if self.options.missing == "refuse":
            other = "or set missing=drop to omit such judgments"
            raise InputError(f"{self.table.where(rows[0])}: {column}", got, "", f"{hint}, {other}" if hint else other)
        self.use[rows] = False
        self.omitted[reason] += len(rows)

    def judgments(self, form: str, known: _KnownItems, sources: Mapping[int, ImageSource]) -> _TableJudgments:
        """Return the judgments of the rows that are used."""
        # Two names of one image are one item. Otherwise an image could be in training and in the test.
        first_number: dict[str, int] = {}
        item_of = np.full(len(self.names), -1)
        for number in sources:
            item_of[number] = first_number.setdefault(known.item(self.names[number]), number)
        rows = np.flatnonzero(self.use)
        items = item_of[self.cells[rows]]  # [J, roles]
        self._refuse_same(items, rows)
        values = self._values(form)
        if len(rows) < 2:
            got = "1 judgment" if len(rows) else "no judgment that can be used"
            raise InputError(str(self.table.path), got, "needs at least 2, for training and for testing")
        # Items are in the order of the rows that name them first.
        _, first, place = np.unique(items, return_index=True, return_inverse=True)
        members = np.argsort(np.argsort(first))[place].reshape(items.shape)
        numbers = self.cells[rows].ravel()[np.sort(first)].tolist()
        names, images = [self.names[number] for number in numbers], [sources[number] for number in numbers]
        return _TableJudgments(self, form, rows, members, values[rows], names, images, [*map(known.shown, names)])

    def _refuse_same(self, items: _Array, rows: _Array) -> None:
        """Refuse a row that names an item twice. `items` `[J, roles]` are the items of the used rows `[J]`."""
        pairs = list(combinations(range(len(self.roles)), 2))
        same = np.stack([items[:, a] == items[:, b] for a, b in pairs], axis=1)
        for number in np.flatnonzero(same.any(1))[:1].tolist():
            row, (a, b) = rows[number], pairs[same[number].argmax()]
            named = " and ".join(dict.fromkeys(self.names[self.cells[row, place]] for place in (a, b)))
            got = f"{self.roles[a]} and {self.roles[b]} are the same item, {named}"
            raise InputError(self.table.where(row), got, "must be different items", "remove the row, or correct it")

    def _values(self, form: str) -> _Array:
        """Return the judged value of each row: a distance, a grade, or the position of the chosen item."""
        if form in ("triplets", "odd one out"):
            return self._choices()
        values = self._numbers(least=-np.inf if form == "scores of pairs" else 0)
        if form != "scores of pairs" or not self.use.any():
            return values
        largest = self.judged_options.largest
        top = float(values[self.use].max()) if largest is None else largest
        for row in np.flatnonzero(self.use & (values > top)).tolist():
            allowed = f"must be at most {top:g}, the score of equal items"
            raise self._error(row, f"{values[row]:g}", allowed, "set task.judgments.largest to a larger one")
        return top - values

    def _choices(self) -> _Array:
        """Return the position of the chosen item of each row: of x and y, or of the odd one out.

        A cell may name the column or the item.
        """
        if not self.judged:  # the positive, the first item after the anchor, is chosen
            return np.zeros(len(self.table), np.int64)
        first = 1 if self.roles[0].lower() == "anchor" else 0
        choosable, own = self.roles[first:], self.cells[:, first:]
        texts, numbers = self.table.column(self.judged, "choices").distinct()
        number_of = {name: number for number, name in enumerate(self.names)}
        as_item = np.array([*(number_of.get(text, -2) for text in texts), -2])[numbers]
        fits = own == as_item[:, None]  # [N, choosable]
        for place, role in enumerate(choosable):
            fits[:, place] |= np.array([*(text.lower() == role.lower() for text in texts), False])[numbers]
        for row in np.flatnonzero(self.use & (fits.sum(1) != 1))[:1].tolist():
            items = ", ".join(self.names[number] for number in own[row])
            hint = "an item has the name of another column: rename it" if fits[row].any() else ""
            allowed = f"must be {' or '.join(choosable)}, or one of the items {items}"
            raise self._error(row, f"'{texts[numbers[row]]}'", allowed, hint)
        return fits.argmax(1)

    def _numbers(self, *, least: float) -> _Array:
        """Return the score, grade or distance of each row."""
        column = self.table.columns[self.judged]
        comma = has_decimal_comma(column, self.options.table.decimal, self.table.delimiter)
        values, wrong = number_column(column, comma)
        for row in wrong[self.use[wrong]].tolist():
            cell = column.texts([row])[0]
            hint = "omit units" if cell[:1].isdigit() and not cell[-1:].isdigit() else ""
            if not comma and is_comma_pair(cell):
                hint = "set table.decimal=comma for decimal commas"
            raise self._error(row, f"'{cell}'", "must be a finite number", hint)
        for row in np.flatnonzero(self.use & (values < least)).tolist():
            raise self._error(row, f"{values[row]:g}", "must be at least 0", "add a constant to all")
        return values

    def _error(self, row: int, got: str, allowed: str, hint: str) -> InputError:
        return InputError(f"{self.table.where(row)}: {self.judged}", got, allowed, hint)


@dataclass(frozen=True, eq=False)
class _TableJudgments:
    """Judgments of items.

    Attributes:
        source: the rows of the table.
        form: the name of a form.
        rows: the row of each judgment `[J]`.
        members: the items of each judgment `[J, roles]`.
        values: the judged values `[J]`.
        names: the name of each item in the table.
        images: the image of each item.
        shown: the name of each item in reports.
    """

    source: _JudgmentRows
    form: str
    rows: _Array
    members: _Array
    values: _Array
    names: list[str]
    images: list[ImageSource]
    shown: list[str]

    def labels(self, part: _Array | slice = slice(None)) -> JudgedItems:
        """Return the label space of some of the judgments, with all items."""
        members, values, count = self.members[part], self.values[part], len(self.names)
        try:
            if self.form in ("scores of pairs", "distances of pairs"):
                return PairLabels(members, values, count, self.source.judged_options.unit or "")
            if self.form in ("grades", "distances"):
                of: Literal["grade", "distance"] = "grade" if self.form == "grades" else "distance"
                return RankingLabels(members, values, count, of, missing="drop")
            return TripletLabels(members, values.astype(np.int64), count, odd_one_out=self.form == "odd one out")
        except InputError as error:
            raise InputError(str(self.source.table.path), error.got, error.allowed) from None

    @cached_property
    def whole(self) -> Split:
        """All items, with all judgments."""
        return Split(self.images, self.shown, self.labels())

    @cached_property
    def identity(self) -> list[str]:
        """A key of the judgments of each item: a sum of hashes, which does not depend on the order of judgments."""
        encoded = [name.encode(errors="surrogateescape") for name in self.names]
        numbers, number_of = np.unique(self.values, return_inverse=True)
        answers = [f"{number:g}".encode() for number in numbers.tolist()]
        columns = [*([encoded[row] for row in column] for column in self.members.T.tolist())]
        texts = zip(*columns, [answers[number] for number in number_of.tolist()], strict=True)
        hashes = b"".join(hashlib.blake2b(b"\t".join(text), digest_size=8).digest() for text in texts)
        sums = np.zeros(len(self.names), np.uint64)
        for column in self.members.T:
            np.add.at(sums, column, np.frombuffer(hashes, ">u8").astype(np.uint64))
        return [f"{total:016x}" for total in sums.tolist()]

    def part(self, labels: JudgedItems, left_out: int = 0) -> Split:
        """Return the split of some of the judgments and their items."""
        return with_judgments(self.whole, labels.with_texts(identity=self.identity), left_out)


def _splits(judgments: _TableJudgments, split: str, options: Reading) -> tuple[dict[str, Split], str]:
    """Return the splits by name, and a description of their origin: the column `split`, or a draw if it is ""."""
    table, by = judgments.source.table, judgments.source.judged_options.by
    if split:
        if by is not None:
            got = f"{by}, but the column '{split}' names the split"
            raise InputError("judgments.by", got, hint="omit it, or rename the column")
        parts = parts_of(table.texts(split, "split", "task.split"), table.where, table.path, split)
        part_names = np.array(parts)[judgments.rows]
        chosen = {"train": ("train",), "val": ("val",), "test": TEST_PARTS}
        masks = {part: np.isin(part_names, names) for part, names in chosen.items()}
        splits = {part: judgments.part(judgments.labels(mask)) for part, mask in masks.items() if mask.any()}
        if "train" not in splits or len(splits) < 2:
            got, allowed = "no judgment is left in a part", "must name train, and test or val"
            raise InputError(f"{table.path}: {split}", got, allowed)
        return splits, f"as named; {_shared(splits)}"
    by, labels = by or "item", judgments.labels()
    try:
        kept, drawn = divide(labels, judgments.shown, options.test, by, options.seed, "test")
    except InputError as error:
        hint = "set task.test to a larger share, or task.judgments.by=judgment" if by == "item" else ""
        raise InputError(f"{table.path}: {error.subject}", error.got, error.allowed, hint) from None
    left_out = labels.judged - kept.judged - drawn.judged
    splits = {"train": judgments.part(kept, left_out), "test": judgments.part(drawn)}
    description = f"drawn by {by}; {_shared(splits)}"
    if left_out:
        left = f"{left_out:,} judgments left out, whose items are in both parts"
        description += f"; {left} (task.judgments.by=judgment: none)"
    return splits, description


def _known_items(table: Table, options: Reading, judged: JudgmentOptions, names: Sequence[str]) -> _KnownItems:
    """Return the images or the vectors of the items. Cells name them, or a second file lists them."""
    beside = _items_beside(table, options, names) if judged.items is None else Path(judged.items).expanduser()
    if beside is None or beside.suffix.lower() == ".npz":
        given = {"judgments.id_column": judged.id_column, "image": options.image}
        for name, value in {**given, **({} if beside is None else {"root": options.root})}.items():
            if value is not None:
                allowed = "is an option of a second table, which lists the image of each item"
                raise InputError(name, f"'{value}'", allowed, "omit it, or name the table: task.judgments.items=FILE")
    if beside is None:
        return _KnownItems(options.files, options.has_features)
    if beside.suffix.lower() != ".npz":
        return _listed_images(beside, options, judged)
    vector_names, values = read_features(beside)
    assert vector_names is not None  # a .npz file has names
    if repeated := next((name for name, count in Counter(vector_names).items() if count > 1), None):
        raise InputError(str(beside), f"two vectors of '{repeated}'", "must have one per name")
    return _KnownItems(options.files, True, beside, dict(zip(vector_names, values, strict=True)), "vector of")


def _suggest_config(form: str, train: Split) -> tuple[str, list[str]]:
    """Return the config for judgments of this form, with batches that fit the items."""
    name = {"scores of pairs": "pairs", "distances of pairs": "pairs", "grades": "rankings", "distances": "rankings"}
    changes = [f"sampler.batch_size={min(96, len(train))}"]
    if train.feature_dim is not None:  # items are vectors, so a head is trained on them
        changes += ["model.backbone=features", "model.weights=none", "model.frozen=false"]
    return f"table/{name.get(form, 'triplets')}", changes


def _column_names(table: Table) -> dict[str, list[str]]:
    """Return the columns of a table by their names in the style of `Form`."""
    found: dict[str, list[str]] = {}
    for name in table.columns:
        found.setdefault(re.sub(r"[\s_-]", "", name).lower(), []).append(name)
    return found


def has_judgments(table: Table) -> bool:
    """Return True if the columns of a table are columns of judgments."""
    names = _column_names(table)
    return any(names.keys() >= {*form.columns} for form in FORMS)


def refuse_almost_judgments(table: Table) -> None:
    """Refuse a table that has all but one of the three or four columns of a form of judgments.

    Raises:
        InputError: the table lacks one column of a form.
    """
    names = _column_names(table).keys()
    if any(len({*form.items, form.judged} - names) == 1 for form in _SHOWN) or any(names >= {*f.items} for f in FORMS):
        _form(table)


def _form(table: Table) -> tuple[Form, tuple[str, ...]]:
    """Return the form of the judgments, and the columns of its items and of the judgment."""
    by_name = _column_names(table)
    found = [form for form in FORMS if by_name.keys() >= {*form.columns}]
    if len(found) == 1:
        form = found[0]
        for name in form.columns:
            if len(alike := by_name[name]) > 1:
                got = f"columns {' and '.join(alike)}"
                raise InputError(str(table.path), got, f"must have one '{name}'", "rename one")
        return form, tuple(by_name[name][0] if name else "" for name in (*form.items, form.judged))
    if found:
        named = [", ".join(by_name[name][0] for name in form.columns) for form in found]
        got = f"columns of {' and of '.join(dict.fromkeys(form.name for form in found))} ({'; '.join(named)})"
        raise InputError(str(table.path), got, "must be of one kind", "remove or rename a column")
    forms = "; or ".join(", ".join((*form.items, form.judged)) for form in _SHOWN)
    raise InputError(str(table.path), f"columns {', '.join(table.columns)}", f"must have the columns {forms}")


@dataclass(frozen=True)
class _KnownItems:
    """The images of items, or vectors in place of images.

    `files` finds the image files. `cells` holds the path or the vector of each name, as the file `table` lists it. If
    `table` is None, names are paths. With `has_features`, image files may be missing.
    """

    files: CellFiles
    has_features: bool
    table: Path | None = None
    cells: Mapping[str, Any] = field(default_factory=dict)
    what: str = "item"

    def _find(self, name: str) -> Any:
        """Return the path or the vector of a name."""
        if self.table is not None and name not in self.cells:
            hint = did_you_mean(name, self.cells, "list it there, or correct the cell")
            raise InputError("", f"no {self.what} '{name}' in {self.table}", hint=hint)
        cell = self.cells.get(name, name)
        return self.files.place(cell) if isinstance(cell, str) else cell

    def source(self, name: str) -> ImageSource:
        """Return the image or the vector of an item.

        Raises:
            InputError: the name is not in the list of items, or is a URL.
            FileNotFoundError: the file is missing. `strerror` holds the remedy.
        """
        path = self._find(name)
        if not isinstance(path, str):
            return Vector(path)
        if self.has_features:
            return ImageFile(Path(path))
        if "://" in path:
            raise InputError("", "a URL", "must be the path of a file", "save the images to files and give their paths")
        if not self.files.has(path):
            reason = why_absent(Path(path))
            hint = f"{reason}; " * bool(reason) + f"paths are relative to {self.files.root}: correct it, or set root"
            raise FileNotFoundError(0, hint, path)
        return ImageFile(Path(path))

    def item(self, name: str) -> str:
        """Return a key of an item, which is the same for two names of one image."""
        path = self._find(name)
        return os.path.normpath(path) if isinstance(path, str) else name

    def shown(self, name: str) -> str:
        """Return the name of an item in reports."""
        path = self._find(name)
        return self.files.key(path) if isinstance(path, str) else name


def _items_beside(table: Table, options: Reading, names: Sequence[str]) -> Path | None:
    """Return the table "items" beside the judgments, if no cell is the path of an image.

    Return None if there is no such table.
    """
    is_path, files = options.has_features and looks_like_paths(names), options.files
    if is_path or any(files.has(files.place(name)) for name in names):
        return None
    beside = (path for path in sorted(table.path.parent.glob("items.*")) if table_suffix(path) and path != table.path)
    return next(beside, None)


def _listed_images(items: Path, options: Reading, judged: JudgmentOptions) -> _KnownItems:
    """Return the images that a second table lists."""
    table, image = read_table(items, options.table, option="items"), options.image
    lower = {name.lower(): name for name in table.columns}
    id_name = judged.id_column or lower.get("id", "id")
    ids = table.texts(id_name, "ids of items", "task.judgments.id_column")
    if image is None:
        candidates = [name for name in table.columns if name != id_name]
        paths = [name for name in candidates if looks_like_paths(list(filter(None, table.columns[name].texts())))]
        if len(paths) != 1:
            got = f"{len(paths)} columns of image files" if paths else "no column of image files"
            raise InputError(str(table.path), got, "needs one", "set task.image to its name")
        image = paths[0]
    cells = table.texts(image, "images of items", "task.image")
    for row, (name, cell) in enumerate(zip(ids, cells, strict=True)):
        if not (name and cell):
            column = image if name else id_name
            raise InputError(f"{table.where(row)}: {column}", "empty", hint="complete the row, or remove it")
    table.refuse_repeated(ids)
    files = CellFiles(table.root) if options.root is None else options.files
    return _KnownItems(files, options.has_features, table.path, dict(zip(ids, cells, strict=True)))


def _count(split: Split) -> int:
    assert isinstance(split.labels, JudgedItems)
    return split.labels.judged


def _shared(splits: Mapping[str, Split]) -> str:
    """Describe the number of evaluated items that are also training items."""
    train = set(splits["train"].names)
    counts = {part: len(train & set(split.names)) for part, split in splits.items() if part != "train"}
    words = ", ".join(f"{count:,} of {len(splits[part]):,} {part} items" for part, count in counts.items())
    return f"{words} are also in training"
