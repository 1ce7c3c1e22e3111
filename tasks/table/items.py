"""The items of a table: labels are read, incomplete rows are refused or omitted, and the others are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contml import InputError
from contml._support.validation import as_rows
from contml.data import draw, draw_queries
from contml.data.draw import positions

from .._readers.folders import Missing, why_absent
from .._readers.splits import TEST_PARTS, parts_of, queries_like
from .cells import CellFiles
from .columns import KINDS, Roles, Spec
from .labels import Array, CaptionsLabel, ClassLabel, Label, MapLabel, Options
from .reading import Table

#: The mean label distance of a label is estimated on this many training rows.
_SAMPLE = 300
#: With more test rows than the first number, the default number of queries is the second.
_MANY, _QUERIES = 5_000, 1_000


class Parts(NamedTuple):
    """Rows of a table for training, validation and testing, and how they were split, in words."""

    train: Array
    val: Array
    test: Array
    query: Array  # the test rows that are queries; empty: all are
    how: str

    @property
    def used(self) -> dict[str, Array]:
        """The rows of each part; validation and test rows may be absent, but not both."""
        return {"train": self.train} | {k: v for k, v in (("val", self.val), ("test", self.test)) if len(v)}


@dataclass(frozen=True)
class Items:
    """The items of a table, one per usable row.

    Args:
        paths: the image file of each row of the table.
        names: its path relative to the folder of the images, where it is in that folder.
        labels: its labels, read and fitted to the training rows.
        means: the mean label distance of each label; 1 where there is only one label.
        parts: which rows are for training, validation and testing.
        keys: the cell of the image and the cells of the labels of each row, by which queries are drawn.
        texts: the cells of the labels of each row; of all rows of an image, if its captions were merged.
        groups: what a validation split does not divide, for each row: its group, or its image.
        excluded: how many rows of "train", "val" and "test" were omitted, by reason.
        omitted: all that was omitted, in words; "" for nothing.
    """

    paths: Sequence[str]
    names: Sequence[str]
    labels: Sequence[Label]
    means: Sequence[float]
    parts: Parts
    keys: Sequence[str]
    texts: Sequence[str]
    groups: Sequence[str]
    excluded: Mapping[str, Mapping[str, int]]
    omitted: str

    @property
    def shared_images(self) -> bool:
        """Whether training rows share an image; rows of a class of their own are not divided in any case."""
        classes = [label for label in self.labels if isinstance(label, ClassLabel)]
        if len(self.labels) == 1 and classes and not closed_set(classes[0], self.parts):
            return False
        return len({self.groups[row] for row in self.parts.train}) < len(self.parts.train)

    @property
    def weights(self) -> list[float]:
        """The factor of each label distance in their sum."""
        return [label.weight / mean for label, mean in zip(self.labels, self.means, strict=True)]


def closed_set(label: ClassLabel, parts: Parts) -> bool:
    """Whether a class of the rows that are evaluated is also in training."""
    train, *others = ({label.values[row] for row in rows} for rows in parts.used.values())
    return any(train & other for other in others)


def read_items(
    table: Table, roles: Roles, specs: list[Spec], options: Options, *, group: str | None, test: float, missing: Missing
) -> Items:
    """Read the labels, omit incomplete rows, and split the others into training and test.

    Args:
        table: the table.
        roles: its columns of images and of the split.
        specs: its labels.
        options: how labels are read.
        group: the column whose values may not be both in training and in test.
        test: the share of rows for testing where the split is drawn.
        missing: "refuse" incomplete rows, or "drop" and count them.

    Raises:
        InputError: a row is wrong, or too few can be used.
    """
    files, column = options.files, str(roles.image)
    paths = [files.place(cell) if cell.strip() else "" for cell in table.column(column, "image")]
    rows = _Rows(table, missing)
    rows.drop_without_image(column, paths, files)
    labels = [KINDS[spec.kind](spec.columns, spec.weight, table, options) for spec in specs]
    rows.drop_without_label(labels)
    images = [files.key(cell) for cell in table.columns[column]]
    groups = images
    if group is not None:
        groups = [cell.strip() for cell in table.column(group, "group")]
        rows.drop(np.array([not name for name in groups]), f"without a value in '{group}'", f"no {group}")
    shared = [c for label in labels if not isinstance(label, CaptionsLabel) for c in label.columns]
    cells = [table.columns[c] for label in labels for c in label.columns]
    texts = ["\t".join(row) for row in zip(*cells, strict=True)]
    rows.merge_captions(paths, labels, [*shared, *(c for c in (roles.split, group) if c is not None)], texts)
    drawn = _split(table, rows, groups, roles.split, group or "image", test, options.seed)
    if group is not None:
        _refuse_shared(table, images, drawn, "image")
    for label in labels:
        if isinstance(label, MapLabel):
            label.images = paths
        _known_rows(label, drawn.train)
        unusable = ~label.usable(drawn.train, np.concatenate((drawn.val, drawn.test)))
        if len(labels) == 1:
            rows.drop(unusable, f"without {label.needs} in '{label.name}'", f"'{label.name}' {label.unusable}")
        label.present = label.present & ~unusable
    rows.drop_without_label(labels)
    train, val, test_rows, query = (part[rows.usable[part]] for part in drawn[:4])
    parts = Parts(train, val, test_rows, query, drawn.how)
    rows.check_sizes(parts, drawn)
    for label in labels:
        label.fit(_known_rows(label, parts.train))
    keys = [f"{image}\t{text}" for image, text in zip(images, texts, strict=True)]
    means = [1.0]
    if len(labels) > 1:
        means = [_mean_distance(label, _known_rows(label, parts.train), keys, options.seed) for label in labels]
    if roles.split is None:  # rows that were omitted before the draw count as training rows
        whole = {"train": np.setdiff1d(np.arange(len(table)), drawn.test), "val": drawn.val, "test": drawn.test}
    else:
        whole = _rows_of_parts(table, roles.split, np.arange(len(table)))
    excluded = {part: rows.excluded(members) for part, members in whole.items()}
    return Items(paths, images, labels, means, parts, keys, texts, groups, excluded, rows.omitted)


def _known_rows(label: Label, train: Array) -> Array:
    """The training rows that have this label.

    Raises:
        InputError: there are fewer than three.
    """
    known = train[label.present[train]]
    if len(known) < 3:
        got = f"{len(known)} of {len(train):,} training rows have {label.content}"
        raise InputError(f"labels: {label.name}", got, "must be at least 3", "choose another label")
    return known


class _Rows:
    """The rows that can be used so far, `usable` `[N]`, and those that were omitted, by reason."""

    def __init__(self, table: Table, missing: Missing) -> None:
        self.table, self.missing = table, missing
        self.usable = np.ones(len(table), dtype=bool)
        self._dropped: dict[str, Array] = {}  # row numbers by reason

    def drop(self, incomplete: Array, reason: str, problem: str, hint: str = "complete the table") -> None:
        """Omit the rows that `incomplete` `[N]` marks, or refuse the first of them.

        Args:
            incomplete: bool, one per row of the table.
            reason: why rows are omitted, as in "2 without an image file".
            problem: what is wrong with the first of these rows, for the error.
            hint: what to do about it.

        Raises:
            InputError: there are such rows, and they are refused.
        """
        rows = np.flatnonzero(incomplete & self.usable)
        if not len(rows):
            return
        if self.missing == "refuse":
            found = f"{problem} ({len(rows):,} such of {len(self.usable):,} rows)"
            drop = ", or set missing=drop to omit such rows" if len(rows) < self.usable.sum() else ""
            raise InputError(self.table.where(rows[0]), found, hint=hint + drop)
        self._dropped[reason] = np.concatenate((self._dropped.get(reason, rows[:0]), rows))
        self.usable[rows] = False

    def drop_without_label(self, labels: Sequence[Label]) -> None:
        """Omit the rows without the label, or, of several labels, without any of them."""
        if len(labels) == 1:
            (label,) = labels
            problem = label.problem(int(label.present.argmin()))
            self.drop(~label.present, f"without {label.content} in '{label.name}'", problem, self._complete)
        else:
            absent = ~np.any([label.present for label in labels], axis=0)
            self.drop(absent, "without any label", "no label", self._complete)

    @property
    def _complete(self) -> str:
        """What to do where a label is missing."""
        return "its name must fit the pattern" if self.table.path.is_dir() else "complete the table"

    def drop_without_image(self, column: str, paths: Sequence[str], files: CellFiles) -> None:
        """Omit the rows without an image file."""
        absent = np.array([not (path and files.has(path)) for path in paths])
        if not absent.any():
            return
        row = int(absent.argmax())
        if "://" in paths[row]:
            hint = "save the images to files and give their paths"
            raise InputError(self.table.where(row), "the image is a URL", "must be the path of a file", hint)
        why = why_absent(Path(paths[row])) if paths[row] else ""
        problem = f"no image {paths[row]}" if paths[row] else f"the cell of '{column}' is empty"
        wrong_name = why and Path(paths[row]).parent.is_dir()
        hint = "correct the cell" if wrong_name else f"paths are relative to {files.root}: set root"
        self.drop(absent, "without an image file", problem, f"{why}; {hint}" if why else hint)

    def merge_captions(
        self, paths: Sequence[str], labels: Sequence[Label], shared: Sequence[str], texts: list[str]
    ) -> None:
        """Merge all rows of an image into one, where captions are labels: many tables have one row per caption.

        Args:
            paths: the image of each row.
            labels: the labels.
            shared: the columns that must be equal in all rows of an image.
            texts: the cells of the labels of each row; those of merged rows are joined, in alphabetical order.
        """
        captions = [label for label in labels if isinstance(label, CaptionsLabel)]
        if not captions:
            return
        first_row: dict[str, int] = {}
        merged: dict[int, list[str]] = {}
        for row in np.flatnonzero(self.usable).tolist():
            first = first_row.setdefault(paths[row], row)
            if first == row:
                continue
            for name in shared:
                cells = self.table.columns[name]
                if cells[first] != cells[row]:
                    found = f"'{cells[row]}', but '{cells[first]}' in {self.table.where(first)}"
                    allowed = "must be equal in all rows of an image, whose captions are merged"
                    raise InputError(f"{self.table.where(row)}: {name}", found, allowed)
            for label in captions:
                label.merge(first, row)
            merged.setdefault(first, [texts[first]]).append(texts[row])
            self.usable[row] = False
        for first, cells in merged.items():
            texts[first] = "\n".join(sorted(cells))

    def excluded(self, rows: Array) -> dict[str, int]:
        """How many of these rows were omitted, by reason."""
        counts = {reason: int(np.isin(dropped, rows).sum()) for reason, dropped in self._dropped.items()}
        return {reason: count for reason, count in counts.items() if count}

    @property
    def omitted(self) -> str:
        """What was omitted, in words; "" for nothing."""
        return ", ".join(f"{len(dropped):,} {reason}" for reason, dropped in self._dropped.items())

    def check_sizes(self, parts: Parts, named: Parts) -> None:
        """Refuse fewer than three rows of a part, of those that were named or drawn."""
        counts = {part: len(getattr(parts, part)) for part in named.used}
        if min(counts.values()) < 3:
            names = {"train": "training", "val": "validation"}
            found = " and ".join(f"{count} {names.get(part, part)}" for part, count in counts.items())
            omitted = f"omitted: {self.omitted}" if self.omitted else ""
            got = f"{found} rows, split {parts.how}"
            raise InputError(str(self.table.path), got, "must be at least 3 each", omitted)


def _split(
    table: Table, rows: _Rows, groups: Sequence[str], column: str | None, what: str, share: float, seed: int
) -> Parts:
    """The split by a column, or by drawing whole groups (images, if no groups are given)."""
    usable = np.flatnonzero(rows.usable)
    if column is not None:
        parts = split_by_column(table, column, usable)
        # An image in both parts would be found by its pixels.
        _refuse_shared(table, groups, parts, what)
        rows.check_sizes(parts, parts)
        return parts
    if len(usable) < 6:
        omitted = f"omitted: {rows.omitted}" if rows.omitted else ""
        raise InputError(str(table.path), f"{len(usable)} usable rows", "needs at least 6 to draw a split", omitted)
    return split_by_draw(groups, usable, share, seed, what)


def split_by_column(table: Table, column: str, rows: Array) -> Parts:
    """The parts that a column names; rows with an empty cell are not used.

    Raises:
        InputError: a cell that names no part, or no training rows, or none to test on.
    """
    named = _rows_of_parts(table, column, rows)
    rest = len(rows) - sum(len(named[part]) for part in ("train", "val", "test"))
    how = f"by the column '{column}'" + (f", {rest:,} rows in no part" if rest else "")
    return Parts(named["train"], named["val"], named["test"], named["query"], how)


def _rows_of_parts(table: Table, column: str, rows: Array) -> dict[str, Array]:
    """The rows that a column names for each part; "test" are all test rows, "query" those that are queries."""
    named = np.array(parts_of(table.column(column, "split"), table.where, table.path, column))[rows]
    words = {"train": ("train",), "val": ("val",), "test": TEST_PARTS, "query": ("query",)}
    return {part: rows[np.isin(named, own)] for part, own in words.items()}


def split_by_draw(groups: Sequence[str], rows: Array, share: float, seed: int, what: str) -> Parts:
    """Draw whole groups, such as persons or images, for testing, by a hash of their names.

    Raises:
        InputError: there are fewer than two groups.
    """
    keys = [groups[row] for row in rows]
    distinct = len(set(keys))
    if distinct < 2:
        raise InputError("group", f"all {len(rows)} rows have one {what}", "a split needs at least two")
    testing = draw(keys, share, seed, "test", least=min(3 if what == "image" else 2, distinct // 2))
    how = f"drawn, about {share:.0%} for testing, no {what} in both (seed {seed})"
    return Parts(rows[~testing], rows[:0], rows[testing], rows[:0], how)


def _refuse_shared(table: Table, groups: Sequence[str], parts: Parts, what: str) -> None:
    """Refuse a split with a group in two parts."""
    first: dict[str, tuple[str, int]] = {}
    for part, rows in parts.used.items():
        for row in rows:
            other, earlier = first.setdefault(groups[row], (part, row))
            if other != part:
                found = f"{what} '{groups[row]}' is in {part} here, in {other} in {table.where(earlier)}"
                raise InputError(table.where(row), found, hint="give each to one of them")


def choose_queries(items: Items, queries: int | None, seed: int) -> dict[str, Array]:
    """The positions of the queries among the rows of each part; empty: every row is a query."""
    parts = items.parts
    if len(parts.query):
        count, named = len(parts.test), len(parts.query)
        if queries is not None:
            raise InputError("queries", str(queries), hint=f"omit it: the split names {named} queries")
        if named > count - 2:
            raise InputError("queries", f"{named} of {count} test rows", "must leave at least 2 others to find")
        chosen = np.flatnonzero(np.isin(parts.test, parts.query))
        return {part: chosen if part == "test" else chosen[:0] for part in parts.used}
    counts = {part: _QUERIES if len(rows) > _MANY else 0 for part, rows in parts.used.items()}
    if queries is not None:
        counts = dict.fromkeys(counts, queries)
        if "test" in counts and "val" in counts:
            counts["val"] = queries_like(queries, len(parts.test), len(parts.val))
    return {
        part: _drawn_queries([items.keys[row] for row in rows], 0 if part == "train" else counts[part], seed)
        for part, rows in parts.used.items()
    }


def _drawn_queries(keys: Sequence[str], count: int, seed: int) -> Array:
    if not count:
        return np.empty(0, np.int64)
    order = sorted(range(len(keys)), key=lambda row: keys[row])  # several rows of an image in any order of the file
    drawn = as_rows(draw_queries(count, [keys[row].partition("\t")[0] for row in order], seed), len(keys))
    return np.sort(np.array([order[place] for place in drawn.tolist()], np.int64))


def _mean_distance(label: Label, train: Array, keys: Sequence[str], seed: int) -> float:
    """The mean label distance between some training rows, drawn by their cells, which normalizes a label of a sum."""
    place = positions([keys[row] for row in train], seed, "mean label distance")
    sample = train[np.argsort(place, kind="stable")[:_SAMPLE]]  # in this order: a rounded sum depends on it
    count = len(sample)
    mean = float(label.space(sample).pairwise().double().sum()) / (count * (count - 1))
    if not mean > 0:
        raise InputError(f"labels: {label.name}", "equal in all training rows", hint="omit it")
    return mean
