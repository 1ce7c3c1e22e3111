"""Your own table of judgments as a task: scores of pairs, which of two items is nearer, graded items of queries."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml._support.errors import did_you_mean
from contml._support.files import table_suffix
from contml.data import ImageFile, Split, Task
from contml.data.features import read_features
from contml.data.judged_split import DivideBy, divide, with_judgments
from contml.data.sources import ImageSource, Vector
from contml.data.tables import Table, TableOptions, read_table
from contml.labels import JudgedItems, PairLabels, RankingLabels, TripletLabels

from .._readers.folders import data_folder, why_absent
from .._readers.splits import SPLIT_NAMES, TEST_PARTS, parts_of
from .cells import CellFiles, Decimal, has_decimal_comma, is_comma_pair, looks_like_paths, number_column
from .overview import without_files

_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: The columns of each form of judgments: those of items, and that of the judgment. The first form that a table has.
FORMS: dict[str, tuple[tuple[str, ...], str]] = {
    "scores of pairs": (("a", "b"), "score"),
    "distances of pairs": (("a", "b"), "distance"),
    "triplets": (("anchor", "x", "y"), "choice"),
    "odd one out": (("a", "b", "c"), "odd"),
    "grades": (("query", "item"), "grade"),
    "distances": (("query", "item"), "distance"),
}


def read_judgments(
    table: Table,
    options: TableOptions,
    *,
    items: Path | None,
    id_column: str | None,
    image: str | None,
    root: str | None,
    split: str | None,
    test: float,
    by: DivideBy | None,
    largest: float | None,
    unit: str | None,
    missing: Literal["refuse", "drop"],
    decimal: Decimal,
    seed: int,
    has_features: bool,
) -> Task:
    """The task of a table of judgments; the options are those of `table/file`.

    Raises:
        InputError: a row, a cell, an option or a table is wrong.
    """
    form, columns = _form(table)
    roles, judged = columns[:-1], columns[-1]
    names, cells = _distinct_names(table, roles)
    if largest is not None and form != "scores of pairs":
        raise InputError(
            "largest", f"{largest:g}, but the table has {form}", "is an option of scores of pairs", "omit it"
        )
    if unit and form not in ("scores of pairs", "distances of pairs"):
        raise InputError("unit", f"'{unit}', but the table has {form}", "is an option of judged pairs", "omit it")
    folder = table.root if root is None else data_folder(root, "the images")
    own = _Images(CellFiles(folder), None, {}, has_features)
    beside = _items_beside(table, own, names) if items is None else Path(items).expanduser()
    if beside is None or beside.suffix.lower() == ".npz":
        given = {"id_column": id_column, "image": image, **({} if beside is None else {"root": root})}
        for name, value in given.items():
            if value is not None:
                allowed = "is an option of a second table, which lists the image of each item"
                raise InputError(name, f"'{value}'", allowed, "omit it, or name the table: task.items=FILE")
    known = (
        own
        if beside is None
        else _vectors(beside)
        if beside.suffix.lower() == ".npz"
        else _listed_images(beside, id_column, image, root, options, has_features)
    )
    use = np.ones(len(table), dtype=bool)
    omitted: Counter[str] = Counter()

    def drop(rows: _Array, column: str, got: str, hint: str, reason: str) -> None:
        """Refuse the first of some rows, or omit them and count them."""
        if not len(rows):
            return
        if missing == "refuse":
            other = "or set missing=drop to omit such judgments"
            raise InputError(f"{table.where(rows[0])}: {column}", got, "", f"{hint}, {other}" if hint else other)
        use[rows] = False
        omitted[reason] += len(rows)

    for column in columns:
        rows = np.flatnonzero(~table.columns[column].filled & use)
        words = " or ".join(f"'{word}'" for word in table.columns[column].missing)
        got = f"empty, or {words}, which means a missing value" if words else "empty"
        drop(rows, column, got, "complete the row", "with an empty cell")
    sources: dict[int, ImageSource] = {}  # by the number of the name
    for role, numbers in zip(roles, cells.T, strict=True):
        rows = np.flatnonzero(use)
        first = np.unique(numbers[rows], return_index=True)[1]
        absent: dict[int, FileNotFoundError] = {}
        for row in rows[np.sort(first)].tolist():
            number = int(numbers[row])
            if number in sources:
                continue
            try:
                sources[number] = known.source(names[number])
            except FileNotFoundError as error:
                absent[number] = error
                if missing == "refuse":
                    break
            except InputError as error:
                subject = ": ".join(filter(None, (table.where(row), role, error.subject)))
                raise InputError(subject, error.got, error.allowed, error.hint) from None
        for missing_file in list(absent.values())[:1]:
            rows = rows[np.isin(numbers[rows], list(absent))]
            drop(rows, role, f"no image {missing_file.filename}", str(missing_file.strerror), "without an image file")
    # Two names of one image are one item: else it could be both in training and in the test.
    first_number: dict[str, int] = {}
    item_of = np.full(len(names), -1)
    for number in sources:
        item_of[number] = first_number.setdefault(known.item(names[number]), number)
    rows = np.flatnonzero(use)
    items_of_rows = item_of[cells[rows]]  # [J, roles]
    _refuse_same(table, roles, names, cells, items_of_rows, rows)
    if form in ("triplets", "odd one out"):
        values = _choices(table, roles, judged, names, cells, use)
    else:
        values = _numbers(table, judged, use, decimal, least=-np.inf if form == "scores of pairs" else 0)
    if form == "scores of pairs" and use.any():
        values = _from_largest(table, judged, values, use, largest)
    if len(rows) < 2:
        got = "1 judgment" if len(rows) else "no judgment that can be used"
        raise InputError(str(table.path), got, "needs at least 2, for training and for testing")
    # Items in the order in which the rows name them, by the first of their names.
    _, first, place = np.unique(items_of_rows, return_index=True, return_inverse=True)
    members = np.argsort(np.argsort(first))[place].reshape(items_of_rows.shape)
    numbers = cells[rows].ravel()[np.sort(first)]
    names = [names[number] for number in numbers.tolist()]

    def labels_of(part: _Array) -> JudgedItems:
        """The judgments of some of the `rows`, over all items."""
        try:
            return _labels(form, len(names), members[part], values[rows[part]], unit)
        except InputError as error:
            raise InputError(str(table.path), error.got, error.allowed) from None

    everything = np.ones(len(rows), dtype=bool)
    labels = labels_of(everything)
    identity = _identity(members, values[rows], names)
    shown = [known.shown(name) for name in names]
    whole = Split([sources[number] for number in numbers.tolist()], shown, labels)

    def part_of(part_labels: JudgedItems, left_out: int = 0) -> Split:
        """The split of some of the judgments, and their items."""
        return with_judgments(whole, part_labels.with_texts(identity=identity), left_out)

    split = split or next((name for name in table.columns if SPLIT_NAMES.fullmatch(name)), None)
    if split is not None and by is not None:
        raise InputError("by", f"{by}, but the column '{split}' names the split", hint="omit it, or rename the column")
    by = by or "item"
    if split is not None:
        part_names = np.array(parts_of(table.texts(split, "split", "task.split"), table.where, table.path, split))[rows]
        chosen = {"train": ("train",), "val": ("val",), "test": TEST_PARTS}
        masks = {part: np.isin(part_names, names_of_part) for part, names_of_part in chosen.items()}
        splits = {part: part_of(labels_of(mask)) for part, mask in masks.items() if mask.any()}
        if "train" not in splits or len(splits) < 2:
            raise InputError(
                f"{table.path}: {split}", "no judgment is left in a part", "must name train, and test or val"
            )
        description = f"as named; {_shared(splits)}"
    else:
        try:
            kept, drawn = divide(labels, shown, test, by, seed, "test")
        except InputError as error:
            hint = "set task.test to a larger share, or task.by=judgment" if by == "item" else ""
            raise InputError(f"{table.path}: {error.subject}", error.got, error.allowed, hint) from None
        left_out = labels.judged - kept.judged - drawn.judged
        splits = {"train": part_of(kept, left_out), "test": part_of(drawn)}
        description = f"drawn by {by}; {_shared(splits)}"
        if left_out:
            description += f"; {left_out:,} judgments left out, whose items are in both parts (task.by=judgment: none)"
    distinct = [len(np.unique(column)) for column in cells.T]
    used_as = [
        [role, "item", "by its name", f"{count:,} different"] for role, count in zip(roles, distinct, strict=True)
    ]
    without_file = 0
    if has_features:
        images = [source.file for source in sources.values() if isinstance(source, ImageFile)]
        without_file = len({*images}) - sum(map(own.files.has, {*images}))
    lines = [
        ["column", "used as", "because", "values"],
        ["", "table", table.form, f"{len(table):,} rows; {len(names):,} items"],
        *([["", "features", "as given", without_files(without_file, len(names))]] if without_file else []),
        *used_as,
        [judged, form, "by its name", labels.facts()],
        [split or "", "split", description, ", ".join(f"{_count(s):,} for {part}" for part, s in splits.items())],
        *([name, "not used", "", ""] for name in table.columns if name not in {*columns, split}),
        *(
            [["", "excluded", "missing=drop", ", ".join(f"{n:,} {why}" for why, n in omitted.items())]]
            if omitted
            else []
        ),
    ]
    known.forget()
    suggested = partial(_suggest_config, form)
    return Task(splits["train"], splits.get("test"), splits.get("val"), columns=lines, suggested=suggested)


def _suggest_config(form: str, train: Split) -> tuple[str, list[str]]:
    """The config for judgments of this form, and batches that fit the items."""
    name = {"scores of pairs": "pairs", "distances of pairs": "pairs", "grades": "rankings", "distances": "rankings"}
    changes = [f"sampler.batch_size={min(96, len(train))}"]
    if train.feature_dim is not None:  # items are vectors: a head on them is trained
        changes += ["model.backbone=features", "model.weights=none", "model.frozen=false"]
    return f"table/{name.get(form, 'triplets')}", changes


def _distinct_names(table: Table, roles: Sequence[str]) -> tuple[list[str], _Array]:
    """The different cells of the columns of items, and the number of each cell `[N, roles]`; -1: empty."""
    number_of: dict[str, int] = {}
    columns = []
    for role in roles:
        texts, numbers = table.column(role, "items").distinct()
        columns.append(np.array([*(number_of.setdefault(text, len(number_of)) for text in texts), -1])[numbers])
    return list(number_of), np.stack(columns, axis=1)


def has_judgments(table: Table) -> bool:
    """Whether the columns of a table are those of judgments."""
    names = {name.lower() for name in table.columns}
    return any({*items, judged} <= names for items, judged in FORMS.values())


def refuse_almost_judgments(table: Table) -> None:
    """Refuse a table that lacks one column of a form of judgments, of three or four.

    Raises:
        InputError: it is such a table.
    """
    names = {name.lower() for name in table.columns}
    if any(len({*items, judged} - names) == 1 for items, judged in FORMS.values()):
        _form(table)


def _form(table: Table) -> tuple[str, tuple[str, ...]]:
    """The form of the judgments, and the columns of its items and of the judgment."""
    by_name = {name.lower(): name for name in table.columns}
    found = [form for form, (items, judged) in FORMS.items() if {*items, judged} <= by_name.keys()]
    if len(found) == 1:
        items, judged = FORMS[found[0]]
        for name in (*items, judged):
            if len(alike := [column for column in table.columns if column.lower() == name]) > 1:
                got = f"columns {' and '.join(alike)}"
                raise InputError(str(table.path), got, f"must have one '{name}', in upper or lower case", "rename one")
        return found[0], tuple(by_name[name] for name in (*items, judged))
    forms = "; or ".join(", ".join((*items, judged)) for items, judged in FORMS.values())
    if found:
        got = f"columns of {' and of '.join(found)}"
        raise InputError(str(table.path), got, "must be of one kind", "remove or rename a column")
    raise InputError(str(table.path), f"columns {', '.join(table.columns)}", f"must have the columns {forms}")


@dataclass(frozen=True)
class _Images:
    """The images of items: the path of each name; `table`: where they are listed, None: names are paths.

    `has_features`: their files may be missing.
    """

    files: CellFiles
    table: Path | None
    cells: Mapping[str, str]
    has_features: bool

    def _path(self, name: str) -> str:
        if self.table is None:
            return self.files.place(name)
        if name not in self.cells:
            hint = did_you_mean(name, self.cells, "list it there, or correct the cell")
            raise InputError("", f"no item '{name}' in {self.table}", hint=hint)
        return self.files.place(self.cells[name])

    def source(self, name: str) -> ImageSource:
        """The image of an item.

        Raises:
            InputError: the items are listed, and this is none of them; or it is a URL.
            FileNotFoundError: there is no such file; `strerror` says what to do.
        """
        path = self._path(name)
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
        """What is the same for two names of one image."""
        return os.path.normpath(self._path(name))

    def shown(self, name: str) -> str:
        """The name of an item on pages."""
        return self.files.key(self._path(name))

    def forget(self) -> None:
        """Forget which files there are."""
        self.files.forget()


@dataclass(frozen=True)
class _Vectors:
    """The vectors of items, in place of images."""

    file: Path
    values: Mapping[str, Any]

    def source(self, name: str) -> ImageSource:
        """The vector of an item.

        Raises:
            InputError: it has none.
        """
        if name not in self.values:
            hint = did_you_mean(name, self.values, "add it there, or remove the row")
            raise InputError("", f"no vector of '{name}' in {self.file}", hint=hint)
        return Vector(self.values[name])

    def item(self, name: str) -> str:
        """The name itself."""
        return name

    def shown(self, name: str) -> str:
        """The name of an item on pages."""
        return name

    def forget(self) -> None:
        """Nothing is kept."""


def _vectors(file: Path) -> _Vectors:
    """The vectors of a file.

    Raises:
        InputError: it cannot be read, or has a name twice.
    """
    names, values = read_features(file)
    assert names is not None  # of .npz
    if repeated := next((name for name, count in Counter(names).items() if count > 1), None):
        raise InputError(str(file), f"two vectors of '{repeated}'", "must have one per name")
    return _Vectors(file, dict(zip(names, values, strict=True)))


def _items_beside(table: Table, own: _Images, names: Sequence[str]) -> Path | None:
    """The table "items" beside the judgments, if no cell is the path of an image; None: there is none."""
    is_path = own.has_features and looks_like_paths(names)
    if is_path or any(own.files.has(own.files.place(name)) for name in names):
        return None
    beside = [path for path in sorted(table.path.parent.glob("items.*")) if table_suffix(path) and path != table.path]
    return beside[0] if beside else None


def _listed_images(
    items: Path, id_column: str | None, image: str | None, root: str | None, options: TableOptions, has_features: bool
) -> _Images:
    """The images that a second table lists."""
    table = read_table(items, options, option="items")
    lower = {name.lower(): name for name in table.columns}
    id_name = id_column or lower.get("id", "id")
    ids = table.texts(id_name, "ids of items", "task.id_column")
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
    files = CellFiles(table.root if root is None else data_folder(root, "the images"))
    return _Images(files, table.path, dict(zip(ids, cells, strict=True)), has_features)


def _refuse_same(
    table: Table, roles: Sequence[str], names: Sequence[str], cells: _Array, items: _Array, rows: _Array
) -> None:
    """Refuse a row that names an item twice, by the items `[J, roles]` of the rows `[J]` that are used."""
    pairs = list(combinations(range(len(roles)), 2))
    same = np.stack([items[:, a] == items[:, b] for a, b in pairs], axis=1)
    for number in np.flatnonzero(same.any(1))[:1].tolist():
        row, (a, b) = rows[number], pairs[same[number].argmax()]
        named = " and ".join(dict.fromkeys(names[cells[row, place]] for place in (a, b)))
        got = f"{roles[a]} and {roles[b]} are the same item, {named}"
        raise InputError(table.where(row), got, "must be different items", "remove the row, or correct it")


def _choices(
    table: Table, roles: Sequence[str], judged: str, names: Sequence[str], cells: _Array, use: _Array
) -> _Array:
    """The position of the chosen item of each row: of x and y, or of the odd one out; by role or by item."""
    first = 1 if roles[0].lower() == "anchor" else 0
    choosable, own = roles[first:], cells[:, first:]
    texts, numbers = table.column(judged, "choices").distinct()
    number_of = {name: number for number, name in enumerate(names)}
    as_item = np.array([*(number_of.get(text, -2) for text in texts), -2])[numbers]
    fits = own == as_item[:, None]  # [N, choosable]
    for place, role in enumerate(choosable):
        fits[:, place] |= np.array([*(text.lower() == role.lower() for text in texts), False])[numbers]
    for row in np.flatnonzero(use & (fits.sum(1) != 1))[:1].tolist():
        items = ", ".join(names[number] for number in own[row])
        hint = "an item has the name of another column: rename it" if fits[row].any() else ""
        allowed = f"must be {' or '.join(choosable)}, or one of the items {items}"
        raise InputError(f"{table.where(row)}: {judged}", f"'{texts[numbers[row]]}'", allowed, hint)
    chosen: _Array = fits.argmax(1)
    return chosen


def _from_largest(table: Table, judged: str, values: _Array, use: _Array, largest: float | None) -> _Array:
    """The distances of scores: `largest` minus the score; default the largest score of the rows that are used."""
    top = float(values[use].max()) if largest is None else largest
    for row in np.flatnonzero(use & (values > top)).tolist():
        allowed = f"must be at most {top:g}, the score of equal items"
        raise InputError(
            f"{table.where(row)}: {judged}", f"{values[row]:g}", allowed, "set task.largest to a larger one"
        )
    distances: _Array = top - values
    return distances


def _numbers(table: Table, judged: str, use: _Array, decimal: Decimal, *, least: float) -> _Array:
    """The score, grade or distance of each row."""
    column = table.columns[judged]
    comma = has_decimal_comma(column, decimal, table.delimiter)
    values, wrong = number_column(column, comma)
    for row in wrong[use[wrong]].tolist():
        cell = column.texts([row])[0]
        hint = "omit units" if cell[:1].isdigit() and not cell[-1:].isdigit() else ""
        if not comma and is_comma_pair(cell):
            hint = "set decimal=comma for decimal commas"
        raise InputError(f"{table.where(row)}: {judged}", f"'{cell}'", "must be a finite number", hint)
    for row in np.flatnonzero(use & (values < least)).tolist():
        raise InputError(
            f"{table.where(row)}: {judged}", f"{values[row]:g}", "must be at least 0", "add a constant to all"
        )
    return values


def _labels(form: str, items: int, members: _Array, values: _Array, unit: str | None) -> JudgedItems:
    if form in ("scores of pairs", "distances of pairs"):
        return PairLabels(members, values, items, unit or "")
    if form in ("grades", "distances"):
        return RankingLabels(members, values, items, "grade" if form == "grades" else "distance", missing="drop")
    return TripletLabels(members, values.astype(np.int64), items, odd_one_out=form == "odd one out")


def _identity(members: _Array, values: _Array, names: Sequence[str]) -> list[str]:
    """What identifies the judgments of each item: a sum of hashes, so that their order does not count."""
    encoded = [name.encode(errors="surrogateescape") for name in names]
    numbers, number_of = np.unique(values, return_inverse=True)
    answers = [f"{number:g}".encode() for number in numbers.tolist()]
    columns = [*([encoded[row] for row in column] for column in members.T.tolist())]
    texts = zip(*columns, [answers[number] for number in number_of.tolist()], strict=True)
    hashes = b"".join(hashlib.blake2b(b"\t".join(text), digest_size=8).digest() for text in texts)
    sums = np.zeros(len(names), np.uint64)
    for column in members.T:
        np.add.at(sums, column, np.frombuffer(hashes, ">u8").astype(np.uint64))
    return [f"{total:016x}" for total in sums.tolist()]


def _count(split: Split) -> int:
    assert isinstance(split.labels, JudgedItems)
    return split.labels.judged


def _shared(splits: Mapping[str, Split]) -> str:
    """How many evaluated items are also training items, in words."""
    train = set(splits["train"].names)
    counts = {part: len(train & set(split.names)) for part, split in splits.items() if part != "train"}
    words = ", ".join(f"{count:,} of {len(splits[part]):,} {part} items" for part, count in counts.items())
    return f"{words} are also in training"
