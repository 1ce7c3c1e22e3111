"""The items of a table. Labels are read, incomplete rows are refused or omitted, and the other rows are split."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contml import InputError
from contml._support.packed import taken
from contml._support.packed_texts import TextLists, Texts, as_texts, joined as joined_columns
from contml._support.validation import as_rows
from contml.data import draw, draw_queries, refuse_equal
from contml.data.copies import joined, same_files
from contml.data.draw import positions
from contml.data.sources import box_names
from contml.data.tables import Column, Table
from contml.data.values import whole_number

from .._readers.folders import Missing, why_absent
from .._readers.splits import TEST_PARTS, parts_of, queries_like
from .boxes import box_problem
from .cells import CellFiles
from .columns import Roles, Spec
from .label import Array, Cells, FittedLabel, LabelColumn, Reading
from .text_labels import ClassLabel

#: The mean label distance of a label is estimated on this many training rows.
_SAMPLE = 300
#: If there are more test rows than the first number, the default number of queries is the second number.
_MANY, _QUERIES = 5_000, 1_000


class SplitRows(NamedTuple):
    """Rows of a table for training, validation and testing, and a description of the split."""

    train: Array
    val: Array
    test: Array
    query: Array  # the test rows that are queries; empty: all test rows are queries
    description: str

    @property
    def used(self) -> dict[str, Array]:
        """The rows of each part. Validation and test rows may be absent, but not both."""
        return {"train": self.train} | {k: v for k, v in (("val", self.val), ("test", self.test)) if len(v)}


@dataclass(frozen=True)
class Items:
    """The items of a table, one per usable row.

    Args:
        paths: the image file of each row of the table.
        names: the path of each row's image, relative to the folder of images if it is there. A box adds its number.
        boxes: the box of each row in its image, as in `Table`.
        labels: the labels, fitted to the training rows.
        means: the mean label distance of each label. 1 if there is only one label.
        parts: which rows are for training, validation and testing.
        texts: the cells of the labels of each row, or of all rows of an image, if its captions were merged.
        groups: for each row, its group or its image, which a drawn split does not divide. Groups that share an image
            are joined.
        excluded: number of rows of "train", "val" and "test" that were omitted, by reason.
        omitted: a description of all omitted rows. "" if no rows were omitted.
        without_file: number of rows that have features but no image file.
        metadata: the columns of texts or numbers, without the columns of images and of the split.
    """

    paths: Texts
    names: Texts
    boxes: Array | None
    labels: Sequence[FittedLabel]
    means: Sequence[float]
    parts: SplitRows
    texts: Texts
    groups: Texts
    excluded: Mapping[str, Mapping[str, int]]
    omitted: str
    without_file: int
    metadata: Mapping[str, Column]

    def keys(self, rows: Array) -> Texts:
        """Return the image of some rows and the cells of their labels, by which queries are drawn."""
        return _keys(self.names, self.texts, rows)

    @property
    def is_class(self) -> bool:
        """True if the only label is a class."""
        return len(self.labels) == 1 and isinstance(self.labels[0].kind, ClassLabel)

    @property
    def shared_images(self) -> bool:
        """True if training rows share an image and a split can divide these rows.

        A split never divides the rows of a class if training and test have different classes.
        """
        if self.is_class and not closed_set(self.labels[0], self.parts):
            return False
        if self.groups.num_different() == len(self.groups):  # this check needs no copy of the training rows
            return False
        return self.groups.taken(self.parts.train).num_different() < len(self.parts.train)

    @property
    def has_groups_to_search(self) -> bool:
        """True if every part to evaluate has at least two groups, so that a query has other groups to search.

        A validation part may be drawn from the training rows, which then need at least four groups.
        """
        counts = {part: self.groups.taken(rows).num_different() for part, rows in self.parts.used.items()}
        drawn_from = counts.pop("train")
        return min(counts.values()) >= 2 and ("val" in counts or drawn_from >= 4)

    @property
    def weights(self) -> list[float]:
        """The factor of each label distance in their sum."""
        return [label.kind.weight / mean for label, mean in zip(self.labels, self.means, strict=True)]


def closed_set(label: FittedLabel, parts: SplitRows) -> bool:
    """Return True if a class of the evaluated rows is also in training. `label` is a label of classes."""
    train_classes, *evaluated_parts = (different(label.values, rows) for rows in parts.used.values())
    return any(train_classes & classes for classes in evaluated_parts)


def different(texts: Sequence[str], rows: Array) -> set[str]:
    """Return the different texts of these rows."""
    return {*as_texts(taken(texts, rows)).numbered()[0]}


def read_items(table: Table, roles: Roles, specs: list[Spec], reading: Reading) -> Items:
    """Read the labels, omit incomplete rows, and split the other rows into training and test.

    Args:
        table: the table.
        roles: the columns of images and of the split.
        specs: the labels.
        reading: the options of the task.

    Raises:
        InputError: a row is wrong, or too few rows can be used.
    """
    files, seed, column, group = reading.files, reading.seed, str(roles.image), reading.group
    image_cells = table.packed_texts(column, "image")
    paths = Texts(files.place(cell) if cell else "" for cell in image_cells)
    rows = _TableRows(table, reading.missing)
    has_file = np.fromiter(map(files.has, paths), bool, len(paths))
    rows.drop_without_image(column, paths, ~paths.is_empty & (has_file | reading.has_features), files)
    own_tables = [replace(table, columns={name: table.columns[name] for name in spec.columns}) for spec in specs]
    columns = [Cells(spec.part, own, paths, reading).read() for spec, own in zip(specs, own_tables, strict=True)]
    rows.drop_without_label(columns)
    images = names = Texts(map(files.key, image_cells))
    if table.boxes is not None:
        names = Texts(box_names(images))
        rows.drop(np.asarray(np.isnan(table.boxes).any(1)), "without a box", "no box")
        invalid, allowed = box_problem(table.boxes)
        rows.drop(invalid, "with an empty box", allowed)
    del image_cells
    groups = images
    if group is not None:
        groups = table.packed_texts(group, "group")
        rows.drop(groups.is_empty, f"without a value in '{group}'", f"no {group}")
    shared_columns = [c for label in columns if not label.kind.merges for c in label.cells.table.columns]
    texts = joined_columns([table.packed_texts(c, "labels") for spec in specs for c in spec.columns], "\t")
    shared_columns += [c for c in (roles.split, group) if c is not None]
    columns, texts = rows.merged(paths if table.boxes is None else names, columns, shared_columns, texts)
    if roles.split is None:
        files_used = [path if use else "" for path, use in zip(paths, rows.usable.tolist(), strict=True)]
        groups = as_texts(joined(groups, same_files(files_used)))
    split = _split(table, rows, groups, roles.split, group or "image", reading)
    if reading.frame is not None:
        groups = _runs(table, reading.frame, split)
    if group is not None:
        _refuse_shared(table, images, split, "image")
    labels = [label_column.fit(split.train, np.concatenate((split.val, split.test))) for label_column in columns]
    rows.drop_without_label(labels)
    train, val, test_rows, query = (part_rows[rows.usable[part_rows]] for part_rows in split[:4])
    parts = SplitRows(train, val, test_rows, query, split.description)
    rows.check_sizes(parts, split)
    for label in labels:
        refuse_equal(label.space(label.known(parts.train)), label.cells.part.section)
    means = [1.0]
    if len(labels) > 1:
        known = [label.known(parts.train) for label in labels]
        keys = (_keys(names, texts, part_rows) for part_rows in known)
        means = [_mean_distance(*each, seed) for each in zip(labels, known, keys, strict=True)]
    if roles.split is None:  # rows that were omitted before the draw count as training rows
        rows_by_part = {"train": np.setdiff1d(np.arange(len(table)), split.test), "val": split.val, "test": split.test}
    else:
        rows_by_part = _rows_of_parts(table, roles.split, np.arange(len(table)))
    excluded = {part: rows.excluded(part_rows) for part, part_rows in rows_by_part.items()}
    others = {name: column for name, column in table.columns.items() if name not in (roles.image, roles.split)}
    metadata = {name: column for name, column in others.items() if column.kind in ("text", "number")}
    counts = excluded, rows.omitted, int((~has_file[np.concatenate([*parts.used.values()])]).sum())
    return Items(paths, names, table.boxes, labels, means, parts, texts, groups, *counts, metadata)


class _TableRows:
    """The rows that can still be used, a mask `usable` `[N]`, and the omitted rows by reason."""

    def __init__(self, table: Table, missing: Missing) -> None:
        self.table, self.missing = table, missing
        self.usable = np.ones(len(table), dtype=bool)
        self._dropped: dict[str, Array] = {}  # row numbers by reason

    def drop(
        self, incomplete: Array, reason: str, problem: str, hint: str = "complete the table", otherwise: str = ""
    ) -> None:
        """Omit the rows that `incomplete` `[N]` marks, or refuse the first of these rows.

        Args:
            incomplete: bool, one per row of the table.
            reason: the reason to omit rows, as in "2 without an image file".
            problem: the problem of the first of these rows, for the error.
            hint: the remedy for the error.
            otherwise: another remedy.

        Raises:
            InputError: there are incomplete rows, and the option `missing` is "refuse".
        """
        rows = np.flatnonzero(incomplete & self.usable)
        if not len(rows):
            return
        if self.missing == "refuse":
            message = f"{problem} ({len(rows):,} such of {len(self.usable):,} rows)"
            drop_hint = ", or set missing=drop to omit such rows" if len(rows) < self.usable.sum() else ""
            raise InputError(self.table.where(rows[0]), message, hint=hint + drop_hint + otherwise)
        self._dropped[reason] = np.concatenate((self._dropped.get(reason, rows[:0]), rows))
        self.usable[rows] = False

    def drop_without_label(self, labels: Sequence[LabelColumn]) -> None:
        """Omit the rows without the label. With several labels, omit the rows without any label."""
        if len(labels) > 1:
            absent = ~np.any([label.present for label in labels], axis=0)
            self.drop(absent, "without any label", "no label", self._complete)
            return
        (label,) = labels
        lacks, problem, note = label.absence(int(label.present.argmin()))
        self.drop(~label.present, f"without {lacks} in '{label.name}'", problem, self._complete, note)

    @property
    def _complete(self) -> str:
        """The hint for a missing label."""
        return "its name must fit the pattern" if self.table.path.is_dir() else "complete the table"

    def drop_without_image(self, column: str, paths: Texts, has_image: Array, files: CellFiles) -> None:
        """Omit the rows without an image. `has_image` is a mask `[N]`."""
        if has_image.all():
            return
        row = int(has_image.argmin())
        if "://" in paths[row]:
            hint = "save the images to files and give their paths"
            raise InputError(self.table.where(row), "the image is a URL", "must be the path of a file", hint)
        reason = why_absent(Path(paths[row])) if paths[row] else ""
        problem = f"no image {paths[row]}" if paths[row] else f"the cell of '{column}' is empty"
        folder = os.path.dirname(paths[row])  # noqa: PTH120
        wrong_name = reason and os.path.isdir(folder)  # noqa: PTH112
        hint = "correct the cell" if wrong_name else f"paths are relative to {files.root}: set root"
        self.drop(~has_image, "without an image file", problem, f"{reason}; {hint}" if reason else hint)

    def merged(
        self, paths: Texts, labels: Sequence[LabelColumn], shared: Sequence[str], texts: Texts
    ) -> tuple[list[LabelColumn], Texts]:
        """Merge the rows of an image into its first row, if a kind of label merges its values, as captions do.

        Return the labels and their cells.

        Args:
            paths: the image of each row.
            labels: the labels.
            shared: the columns that must be equal in all rows of an image.
            texts: the cells of the labels of each row. The cells of merged rows are joined, in alphabetical order.

        Raises:
            InputError: a cell of a shared column differs between the rows of an image.
        """
        if not any(label.kind.merges for label in labels):
            return list(labels), texts
        usable = np.flatnonzero(self.usable)
        numbers = paths.taken(usable).numbered()[1]
        first_rows = np.arange(len(paths))
        first_rows[usable] = usable[np.unique(numbers, return_index=True)[1][numbers]]
        others = np.flatnonzero(first_rows != np.arange(len(paths)))  # the rows of an image after its first
        if not len(others):
            return list(labels), texts
        found: list[tuple[int, str]] = []  # the first row that differs in each shared column
        for name in shared:
            cells = self.table.packed_texts(name, "labels")
            differs = cells.taken(others).differs(cells.taken(first_rows[others]))
            found += [(int(row), name) for row in others[differs][:1]]
        if found:
            row, name = min(found, key=itemgetter(0))
            first_row = int(first_rows[row])
            cell, first_cell = self.table.column(name, "labels").texts([row, first_row])
            problem = f"'{cell}', but '{first_cell}' in {self.table.where(first_row)}"
            allowed = "must be equal in all rows of an image, whose captions are merged"
            raise InputError(f"{self.table.where(row)}: {name}", problem, allowed)
        self.usable[others] = False
        images, counts = np.unique(first_rows[others], return_counts=True)  # the first rows of images with others
        grouped = np.concatenate((images, others))
        grouped = grouped[np.argsort(first_rows[grouped], kind="stable")]
        groups = TextLists.of_lengths(texts.taken(grouped), counts + 1)
        joined_texts = Texts("\n".join(sorted(group)) for group in groups)
        rows = np.arange(len(texts))
        rows[images] = len(texts) + np.arange(len(images))
        merged = Texts.concatenated([texts, joined_texts]).taken(rows)
        return [label.merged(first_rows) if label.kind.merges else label for label in labels], merged

    def excluded(self, rows: Array) -> dict[str, int]:
        """Return the number of omitted rows among these rows, by reason."""
        counts = {reason: int(np.isin(dropped, rows).sum()) for reason, dropped in self._dropped.items()}
        return {reason: count for reason, count in counts.items() if count}

    @property
    def omitted(self) -> str:
        """A description of the omitted rows. "" if no rows were omitted."""
        return ", ".join(f"{len(dropped):,} {reason}" for reason, dropped in self._dropped.items())

    def check_sizes(self, parts: SplitRows, named: SplitRows) -> None:
        """Refuse fewer than three rows of a part that was named or drawn."""
        counts = {part: len(getattr(parts, part)) for part in named.used}
        if min(counts.values()) < 3:
            names = {"train": "training", "val": "validation"}
            sizes = " and ".join(f"{count} {names.get(part, part)}" for part, count in counts.items())
            omitted = f"omitted: {self.omitted}" if self.omitted else ""
            problem = f"{sizes} rows, split {parts.description}"
            raise InputError(str(self.table.path), problem, "must be at least 3 each", omitted)


def _split(table: Table, rows: _TableRows, groups: Texts, column: str | None, what: str, reading: Reading) -> SplitRows:
    """Split the rows by a column, or draw whole groups, such as persons or images, by a hash of their names.

    Rows with an empty cell in the column are not used.

    Raises:
        InputError: a cell names no part, training rows or test rows are missing, or there are fewer than two groups.
    """
    usable = np.flatnonzero(rows.usable)
    if column is not None:
        found = _rows_of_parts(table, column, usable)
        num_unused = len(usable) - sum(len(found[part]) for part in ("train", "val", "test"))
        description = f"by the column '{column}'" + (f", {num_unused:,} rows in no part" if num_unused else "")
        parts = SplitRows(found["train"], found["val"], found["test"], found["query"], description)
        # An image in both parts would be found by its pixels.
        _refuse_shared(table, groups, parts, what)
        rows.check_sizes(parts, parts)
        return parts
    if len(usable) < 6:
        omitted = f"omitted: {rows.omitted}" if rows.omitted else ""
        raise InputError(str(table.path), f"{len(usable)} usable rows", "needs at least 6 to draw a split", omitted)
    keys = groups.taken(usable)
    num_groups = keys.num_different()
    if num_groups < 2:
        raise InputError("group", f"all {len(usable)} rows have one {what}", "a split needs at least two")
    least = min(3 if what == "image" else 2, num_groups // 2)
    is_test = draw(keys, reading.test, reading.seed, "test", least=least)
    description = f"drawn, {is_test.mean():.0%} for testing, no {what} in both (seed {reading.seed})"
    return SplitRows(usable[~is_test], usable[:0], usable[is_test], usable[:0], description)


def _runs(table: Table, column: str, parts: SplitRows) -> Texts:
    """Return the group of each row: rows of one part of a named split with consecutive frame numbers.

    Raises:
        InputError: the split is drawn, or a cell is not a frame number.
    """
    if parts.description.startswith("drawn"):
        raise InputError("frame", column, "needs a column of the split", "set group to a column instead")
    cells, names = table.texts(column, "frames", "frame"), [""] * len(table)
    numbers = {row: whole_number(cells[row]) for rows in parts.used.values() for row in rows.tolist()}
    for row, number in numbers.items():
        if number is None:
            raise InputError(f"{table.where(row)}: {column}", f"'{cells[row]}'", "must be a whole number, 0 or more")
    for rows in parts.used.values():
        first = last = -2
        for row in sorted(rows.tolist(), key=lambda row: numbers[row] or 0):
            number = numbers[row] or 0
            first = first if number - last <= 1 else number
            names[row], last = f"frames from {first}", number
    return Texts(names)


def _rows_of_parts(table: Table, column: str, rows: Array) -> dict[str, Array]:
    """Return the rows that a column names for each part.

    "test" are all test rows, "query" the test rows that are queries.
    """
    texts, numbers = table.packed_texts(column, "split").numbered()
    first_rows = np.unique(numbers, return_index=True)[1]
    parts = np.array(parts_of(texts, lambda number: table.where(int(first_rows[number])), table.path, column))
    words_by_part = {"train": ("train",), "val": ("val",), "test": TEST_PARTS, "query": ("query",)}
    return {part: rows[np.isin(parts, words)[numbers[rows]]] for part, words in words_by_part.items()}


def _refuse_shared(table: Table, groups: Texts, parts: SplitRows, what: str) -> None:
    """Refuse a split with a group in two parts."""
    different_groups, numbers = groups.numbered()
    first_row = np.full(len(different_groups), -1)  # the first row of each group in the parts so far
    rows_of_part: dict[str, Array] = {}
    for part, rows in parts.used.items():
        if len(shared := rows[first_row[numbers[rows]] >= 0]):
            row, first = int(shared[0]), int(first_row[numbers[shared[0]]])
            first_part = next(name for name, its_rows in rows_of_part.items() if first in its_rows)
            problem = f"{what} '{groups[row]}' is in {part} here, in {first_part} in {table.where(first)}"
            raise InputError(table.where(row), problem, hint="give each to one of them")
        rows_of_part[part] = rows
        group_ids, first_indices = np.unique(numbers[rows], return_index=True)
        first_row[group_ids] = rows[first_indices]


def choose_queries(items: Items, queries: int | None, seed: int) -> dict[str, Array]:
    """Return the positions of the queries among the rows of each part. If empty, every row is a query."""
    parts = items.parts
    if len(parts.query):
        num_test, num_queries = len(parts.test), len(parts.query)
        if queries is not None:
            raise InputError("queries", str(queries), hint=f"omit it: the split names {num_queries} queries")
        if num_queries > num_test - 2:
            problem = f"{num_queries} of {num_test} test rows"
            raise InputError("queries", problem, "must leave at least 2 others to find")
        query_positions = np.flatnonzero(np.isin(parts.test, parts.query))
        return {part: query_positions if part == "test" else query_positions[:0] for part in parts.used}
    counts = {part: _QUERIES if len(rows) > _MANY else 0 for part, rows in parts.used.items()}
    if queries is not None:
        counts = dict.fromkeys(counts, queries)
        if "test" in counts and "val" in counts:
            counts["val"] = queries_like(queries, len(parts.test), len(parts.val))
    drawn = dict.fromkeys(parts.used, np.empty(0, np.int64))
    for part, rows in parts.used.items():
        if part != "train" and counts[part]:
            keys = items.keys(rows)
            order = keys.order()  # several rows of an image in any order of the file
            images = keys.taken(order).replaced("(?s)\t.*", "")
            drawn[part] = np.sort(order[as_rows(draw_queries(counts[part], images, seed), len(keys)).numpy()])
    return drawn


def _keys(images: Texts, texts: Texts, rows: Array) -> Texts:
    """Join the image and the cells of the labels of some rows.

    A draw by these keys does not depend on the order of the file.
    """
    return joined_columns([images.taken(rows), texts.taken(rows)], "\t")


def _mean_distance(label: FittedLabel, train: Array, keys: Texts, seed: int) -> float:
    """Return the mean label distance between a sample of training rows. It normalizes a label in a sum of labels."""
    random_positions = positions(keys, seed, "mean label distance")
    sample = train[np.argsort(random_positions, kind="stable")[:_SAMPLE]]  # a rounded sum depends on the order
    count = len(sample)
    mean = float(label.space(sample).pairwise().double().sum()) / (count * (count - 1))
    if not mean > 0:
        raise label.cells.error(f"equal in {count} random training rows", hint="omit it")
    return mean
