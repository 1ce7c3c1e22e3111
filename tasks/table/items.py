"""The items of a table: labels are read, incomplete rows are refused or omitted, and the others are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contml import InputError
from contml.data import draw_queries

from .._readers.folders import Missing
from .._readers.splits import part_of
from .cells import CellFiles
from .columns import KINDS, Roles, Spec
from .labels import Array, CaptionsLabel, Label, MapLabel, Options
from .reading import Table

#: The mean label distance of a label is estimated on this many training rows.
_SAMPLE = 300
#: With more test rows than the first number, the default number of queries is the second.
_MANY, _QUERIES = 5_000, 1_000


class Parts(NamedTuple):
    """Rows of a table for training and testing, and how they were split, in words."""

    train: Array
    test: Array
    query: Array  # the test rows that are queries; empty: all are
    how: str


@dataclass(frozen=True)
class Items:
    """The items of a table, one per usable row.

    Args:
        paths: the image file of each row of the table.
        labels: its labels, read and fitted to the training rows.
        means: the mean label distance of each label; 1 where there is only one label.
        parts: which rows are for training and for testing.
        excluded: how many rows of "train" and of "test" were omitted, by reason.
        omitted: all that was omitted, in words; "" for nothing.
    """

    paths: Sequence[str]
    labels: Sequence[Label]
    means: Sequence[float]
    parts: Parts
    excluded: Mapping[str, Mapping[str, int]]
    omitted: str

    @property
    def weights(self) -> list[float]:
        """The factor of each label distance in their sum."""
        return [label.weight / mean for label, mean in zip(self.labels, self.means, strict=True)]


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
    for label in labels:
        problem = label.problem(int(label.present.argmin()))
        rows.drop(~label.present, f"without {label.content} in '{label.name}'", problem)
    groups = paths
    if group is not None:
        groups = [cell.strip() for cell in table.column(group, "group")]
        rows.drop(np.array([not name for name in groups]), f"without a value in '{group}'", f"no {group}")
    shared = [c for label in labels if not isinstance(label, CaptionsLabel) for c in label.columns]
    rows.merge_captions(paths, labels, [*shared, *(c for c in (roles.split, group) if c is not None)])
    drawn = _split(table, rows, groups, roles.split, group or "image", test, options.seed)
    if group is not None:
        _refuse_shared(table, paths, drawn, "image")
    for label in labels:
        if isinstance(label, MapLabel):
            label.images = paths
        unusable = ~label.usable(drawn.train, drawn.test)
        rows.drop(unusable, f"without {label.needs} in '{label.name}'", f"'{label.name}' {label.unusable}")
    train, test_rows, query = (part[rows.usable[part]] for part in drawn[:3])
    parts = Parts(train, test_rows, query, drawn.how)
    rows.check_sizes(parts)
    for label in labels:
        label.fit(train)
    means = [_mean_distance(label, train, options.seed) for label in labels] if len(labels) > 1 else [1.0]
    if roles.split is None:  # rows that were omitted before the draw count as training rows
        in_test = drawn.test
        in_train = np.setdiff1d(np.arange(len(table)), in_test)
    else:
        named = np.array([part_of(cell) for cell in table.columns[roles.split]])
        in_train, in_test = np.flatnonzero(named == "train"), np.flatnonzero(np.isin(named, ("test", "query")))
    excluded = {"train": rows.excluded(in_train), "test": rows.excluded(in_test)}
    return Items(paths, labels, means, parts, excluded, rows.omitted)


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
            raise InputError(self.table.where(rows[0]), found, hint=f"{hint}, or set missing=drop to omit such rows")
        self._dropped[reason] = np.concatenate((self._dropped.get(reason, rows[:0]), rows))
        self.usable[rows] = False

    def drop_without_image(self, column: str, paths: Sequence[str], files: CellFiles) -> None:
        """Omit the rows without an image file."""
        absent = np.array([not (path and files.has(path)) for path in paths])
        if not absent.any():
            return
        row = int(absent.argmax())
        if "://" in paths[row]:
            hint = "save the images to files and give their paths"
            raise InputError(self.table.where(row), "the image is a URL", "must be the path of a file", hint)
        problem = f"no image {paths[row]}" if paths[row] else f"the cell of '{column}' is empty"
        self.drop(absent, "without an image file", problem, f"paths are relative to {files.root}: set root")

    def merge_captions(self, paths: Sequence[str], labels: Sequence[Label], shared: Sequence[str]) -> None:
        """Merge all rows of an image into one, where captions are labels: many tables have one row per caption.

        `shared` are the columns that must be equal in all rows of an image.
        """
        captions = [label for label in labels if isinstance(label, CaptionsLabel)]
        if not captions:
            return
        first_row: dict[str, int] = {}
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
            self.usable[row] = False

    def excluded(self, rows: Array) -> dict[str, int]:
        """How many of these rows were omitted, by reason."""
        counts = {reason: int(np.isin(dropped, rows).sum()) for reason, dropped in self._dropped.items()}
        return {reason: count for reason, count in counts.items() if count}

    @property
    def omitted(self) -> str:
        """What was omitted, in words; "" for nothing."""
        return ", ".join(f"{len(dropped):,} {reason}" for reason, dropped in self._dropped.items())

    def check_sizes(self, parts: Parts) -> None:
        """Refuse a part of fewer than three rows."""
        if min(len(parts.train), len(parts.test)) < 3:
            found = f"{len(parts.train)} training and {len(parts.test)} test rows, split {parts.how}"
            omitted = f"omitted: {self.omitted}" if self.omitted else ""
            raise InputError(str(self.table.path), found, "must be at least 3 each", omitted)


def _split(
    table: Table, rows: _Rows, groups: Sequence[str], column: str | None, what: str, share: float, seed: int
) -> Parts:
    """The split by a column, or by drawing whole groups (images, if no groups are given)."""
    usable = np.flatnonzero(rows.usable)
    if column is not None:
        parts = split_by_column(table, column, usable)
        # An image in both parts would be found by its pixels.
        _refuse_shared(table, groups, parts, what)
        rows.check_sizes(parts)
        return parts
    if len(usable) < 6:
        omitted = f"omitted: {rows.omitted}" if rows.omitted else ""
        raise InputError(str(table.path), f"{len(usable)} usable rows", "needs at least 6 to draw a split", omitted)
    return split_by_draw(groups, usable, share, seed, what)


def split_by_column(table: Table, column: str, rows: Array) -> Parts:
    """The parts that a column names; rows with an empty cell and validation rows are not used.

    Raises:
        InputError: an unknown part.
    """
    cells = table.column(column, "split")
    named = np.array([part_of(cells[row]) for row in rows])
    for row, part in zip(rows, named, strict=True):
        if not part and cells[row].strip():
            allowed = "must be train, test, query (a test row that is a query), val or empty (not used)"
            raise InputError(f"{table.where(row)}: {column}", f"'{cells[row].strip()}'", allowed)
    rest = int((named == "val").sum() + (named == "").sum())
    how = f"by the column '{column}'" + (f", {rest:,} rows in neither part" if rest else "")
    return Parts(rows[named == "train"], rows[(named == "test") | (named == "query")], rows[named == "query"], how)


def split_by_draw(groups: Sequence[str], rows: Array, share: float, seed: int, what: str) -> Parts:
    """Draw whole groups, such as persons or images, until about a share of the rows is for testing.

    Raises:
        InputError: there are fewer than two groups.
    """
    number: dict[str, int] = {}
    group = np.array([number.setdefault(groups[row], len(number)) for row in rows])
    if len(number) < 2:
        raise InputError("group", f"all {len(rows)} rows have one {what}", "a split needs at least two")
    sizes = np.bincount(group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    cumulative = np.cumsum(sizes[order])
    test_groups = 1 + int(np.abs(cumulative[:-1] - share * len(rows)).argmin())
    testing = np.isin(group, order[:test_groups])
    how = f"drawn, {share:.0%} for testing, no {what} in both (seed {seed})"
    return Parts(rows[~testing], rows[testing], rows[:0], how)


def _refuse_shared(table: Table, groups: Sequence[str], parts: Parts, what: str) -> None:
    """Refuse a split with a group in both parts."""
    first = {groups[row]: row for row in parts.train}
    for row in parts.test:
        if groups[row] in first:
            found = f"{what} '{groups[row]}' is in test here, in train in {table.where(first[groups[row]])}"
            raise InputError(table.where(row), found, hint="give each to one of them")


def choose_queries(parts: Parts, queries: int | None, seed: int) -> Array:
    """The positions of the queries among the test rows; empty: every row is a query."""
    count, named = len(parts.test), len(parts.query)
    if not named:
        default = _QUERIES if count > _MANY else 0
        return np.sort(np.asarray(draw_queries(default if queries is None else queries, count, seed), np.int64))
    if queries is not None:
        raise InputError("queries", str(queries), hint=f"omit it: the split names {named} queries")
    if named > count - 2:
        raise InputError("queries", f"{named} of {count} test rows", "must leave at least 2 others to find")
    return np.flatnonzero(np.isin(parts.test, parts.query))


def _mean_distance(label: Label, train: Array, seed: int) -> float:
    """The mean label distance between some training rows, which normalizes the labels of a sum."""
    sample = np.sort(np.random.default_rng(seed).choice(train, min(len(train), _SAMPLE), replace=False))
    count = len(sample)
    mean = float(label.space(sample).pairwise().double().sum()) / (count * (count - 1))
    if not mean > 0:
        raise InputError(f"labels: {label.name}", "equal in all training rows", hint="omit it")
    return mean
