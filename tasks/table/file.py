"""A table of one's own as a task: which column is what, which rows can be used, how labels are weighed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml.labels import LabelSpace, WeightedLabels
from contml.reporting.table import number

from .cells import Decimal
from .chosen import choose
from .described import KINDS, CaptionsLabel, MapLabel
from .guess import pair_up
from .labels import Label, Options, Scale
from .parts import Parts, choose_queries, refuse_shared, split_by_column, split_by_draw
from .paths import Files
from .reading import read_table
from .rows import Rows
from .split import TableSplit

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Rows whose label distances to each other tell a label's mean label distance.
_SAMPLE = 300
#: Up to so many training rows the nearest by label are found in minutes; of these kinds fewer, alone and in a sum.
_NEAREST, _SLOWER = 50_000, {"captions": (20_000, 3_000), "map": (20_000, 10_000)}


class TableFile:
    """A CSV or Parquet file with a column of image paths and columns of labels: a task without code.

    `contml train --data items.csv --label age=number` needs no config. Kinds of labels: class, number, vector (several
    columns, or lists), place (latitude and longitude), ordinal, tags, captions, map (paths of label maps); a kind not
    told is guessed, and shown with the reason. The label distances of several labels are added up, each divided by
    its mean over training rows and times its weight. docs/table.md tells all.

    Args:
        data: the table: .csv, .tsv, .txt or .parquet.
        labels: the kind of each label by its column, or columns with commas between, and perhaps its weight:
            {age: number, "lat,lon": place:0.5}; "auto" is guessed. null: the one column that can be a label.
        image: the column of image paths; null: found.
        root: the folder that paths in the table are relative to; null: the folder of the table.
        split: the column of train, test, query, val; null: found, or else the split is drawn.
        test: the share of rows for testing where the split is drawn.
        group: a column, such as the person, of which no value may be in training and in test.
        queries: how many test rows, drawn, query the others; 0: every one queries all others; null: 1,000 of more than
            5,000 test rows, else 0.
        missing: what to do with rows without an image file or without a label: "refuse", or "drop" and count them.
        scale: the unit of numbers: "std", their standard deviation over training rows; "range", from their 5th to their
            95th percentile, which far values do not move; or "none", as they are.
        decimal: "point" or "comma" before decimals; "auto": a comma where the column shows one and cells are not
            separated by commas.
        separator: between tags; null: the first of ; | , that the column uses.
        levels: of ordinal labels in words by their column, from the lowest: {size: [small, medium, large]}.
        classes: how many classes label maps have; null: as many as the highest number says.
        ignore: the class number of pixels of label maps that do not count, such as 255.
        side: label maps are compared at this many pixels square; null: as they are, all of one size.
        vectors: a file of word vectors for captions, beside the table or anywhere: word2vec binary or text, GloVe text,
            gensim's own; null: trained on the training rows.
        normalize: word vectors to unit length first.
        dim: dimension of word vectors that are trained.
        delimiter: between the cells of a CSV file; null: found.
        encoding: of a CSV file.
        seed: of the drawn split, the drawn queries, and word vectors that are trained.
    """

    def __init__(
        self,
        data: str,
        labels: dict[str, str] | None = None,
        image: str | None = None,
        root: str | None = None,
        split: str | None = None,
        test: float = 0.2,
        group: str | None = None,
        queries: int | None = None,
        missing: Literal["refuse", "drop"] = "refuse",
        scale: Scale = "std",
        decimal: Decimal = "auto",
        separator: str | None = None,
        levels: dict[str, list[str | int | float]] | None = None,
        classes: int | None = None,
        ignore: int | None = None,
        side: int | None = 112,
        vectors: str | None = None,
        normalize: bool = False,
        dim: int = 100,
        delimiter: str | None = None,
        encoding: str = "utf-8",
        seed: int = 0,
    ) -> None:
        if not 0 < test < 1:
            raise InputError(f"task.test={test}: it is a share of the rows, between 0 and 1")
        for option, value, least in (("seed", seed, 0), ("dim", dim, 1), ("side", side, 1)):
            if value is not None and value < least:
                raise InputError(f"task.{option}={value}: allowed are {least} and more")
        table = read_table(Path(data).expanduser(), delimiter, encoding)
        files = Files(table.path.parent if root is None else _folder(root))
        order = {name: [str(level) for level in several] for name, several in (levels or {}).items()}
        for name in order:
            table.column(name, "task.levels")
        options = Options(
            *(files, scale, decimal, separator, order, classes, ignore, side, vectors, normalize, dim, seed)
        )
        self.columns = len(table.columns) + len(table.opaque)
        self.roles, self.specs = choose(table, files, decimal, labels, image, split, group)
        self.group = group
        self.why_image = "its cells name image files" if image is None else "as told"
        column = str(self.roles.image)
        cells = table.column(column, "task.image")
        paths = [files.place(cell) if cell.strip() else "" for cell in cells]
        self.example = next((cell for cell in cells if cell.strip()), "")

        self.rows = Rows(table, missing)
        self.rows.without_images(column, paths, files)
        read = [KINDS[spec.kind](spec.columns, spec.weight, table, options) for spec in self.specs]
        for label in read:
            told = label.lack(int(label.present.argmin())) if missing == "refuse" else f"no {label.name}"
            self.rows.without(~label.present, told)
        units = paths
        if group is not None:
            units = [cell.strip() for cell in table.column(group, "task.group")]
            self.rows.without(np.array([not unit for unit in units]), f"no {group}")
        alike = [c for label in read if not isinstance(label, CaptionsLabel) for c in label.columns]
        self.rows.merge_images(paths, read, [*alike, *(c for c in (self.roles.split, group) if c is not None)])
        parts = self._parts(units, test, seed)
        if group is not None:
            refuse_shared(table, paths, parts, "image")
        for label in read:
            if isinstance(label, MapLabel):
                label.images = paths
            self.rows.without(~label.usable(parts.train, parts.test), f"{label.lacking} in {label.name}")
        left = [rows[self.rows.usable[rows]] for rows in (parts.train, parts.test, parts.query)]
        parts = Parts(left[0], left[1], left[2], parts.how)
        self._check_sizes(parts)
        for label in read:
            label.fit(parts.train)
        self.parts, self.read = parts, read
        self.means = [_mean_distance(label, parts.train, seed) for label in read] if len(read) > 1 else [1.0]
        self.weights = [label.weight / mean for label, mean in zip(read, self.means, strict=True)]
        self.train = TableSplit(paths, parts.train, read, self.weights, self._space(parts.train), parts.train[:0])
        asking = choose_queries(parts, queries, seed)
        self.test = TableSplit(paths, parts.test, read, self.weights, self._space(parts.test), asking)
        table.columns.clear()  # the labels have what they need
        files.forget()

    def _parts(self, units: Sequence[str], test: float, seed: int) -> Parts:
        # An image on both sides would be found by its pixels: without groups, rows of one image stay together.
        what = "image" if self.group is None else self.group
        table, rows = self.rows.table, np.flatnonzero(self.rows.usable)
        if self.roles.split is None:
            if len(rows) < 6:
                raise InputError(
                    f"{table.path}: has {len(rows)} rows that can be used{self._left_out()}; a split needs 6 or more, "
                    "3 of them for testing"
                )
            return split_by_draw(units, rows, test, seed, what)
        parts = split_by_column(table, self.roles.split, rows)
        refuse_shared(table, units, parts, what)
        self._check_sizes(parts)
        return parts

    def _check_sizes(self, parts: Parts) -> None:
        if min(len(parts.train), len(parts.test)) < 3:
            raise InputError(
                f"{self.rows.table.path}: {len(parts.train)} rows to train on and {len(parts.test)} to test, split "
                f"{parts.how}{self._left_out()}; each needs at least 3"
            )

    def _left_out(self) -> str:
        return f" ({self.rows.told()} left out)" if self.rows.dropped else ""

    def _space(self, rows: Array) -> LabelSpace:
        spaces = [label.space(rows) for label in self.read]
        if len(spaces) == 1:
            return spaces[0]
        each = zip(self.read, self.means, strict=True)
        unit = " + ".join(f"{_times(label.weight)}{label.name} / {number(mean)}" for label, mean in each)
        return WeightedLabels(dict(zip(spaces, self.weights, strict=True)), unit=unit)

    def suited(self) -> tuple[str, list[str]]:
        """The config that suits the labels, and its changes: what was found, told, and batches that fit the rows."""
        kinds = {
            label.name: label.kind if label.weight == 1 else f"{label.kind}:{label.weight!r}" for label in self.read
        }
        changes = [f"task.labels={json.dumps(kinds, ensure_ascii=False)}"]
        for option, column in (("image", self.roles.image), ("split", self.roles.split)):
            if column is not None:
                changes.append(f"task.{option}={json.dumps(column, ensure_ascii=False)}")
        rows = len(self.train)
        classes = self.train.labels.class_ids
        if classes is not None:
            several = min(16, int(classes.max()) + 1, rows // 2)
            sizes = {"classes": several, "instances": min(6, rows // several)}
            return "table/classes", [*changes, *(f"sampler.{name}={size}" for name, size in sizes.items())]
        batch, neighbours = min(100, rows), min(5, rows - 1)
        limits = [_SLOWER.get(label.kind, (_NEAREST, _NEAREST))[len(self.read) > 1] for label in self.read]
        if rows > min(limits):
            return "table/default", [*changes, f"sampler={{name: uniform, batch_size: {batch}, batches: 25}}"]
        sizes = {
            "batch_size": batch,
            "anchors_per_batch": max(1, min(16, batch // (1 + neighbours))),
            "neighbours": neighbours,
        }
        return "table/default", [*changes, *(f"sampler.{name}={size}" for name, size in sizes.items())]

    def described(self) -> list[list[str]]:
        """What every column is used for, why, and what it holds: a table of texts, its header first."""
        lines = [["column", "used as", "because", "values"]]
        lines.append(["", "table", self.rows.table.form, f"{len(self.rows.usable):,} rows, {self.columns} columns"])
        lines.append([str(self.roles.image), "image", self.why_image, self.example])
        several, used = len(self.read) > 1, {column for spec in self.specs for column in spec.columns}
        for spec, label, mean in zip(self.specs, self.read, self.means, strict=True):
            kind = f"{spec.kind} x {label.weight:g}" if several else spec.kind
            about = f"; mean label distance {number(mean)}, taken as 1" if several else ""
            lines.append([spec.name, kind, spec.why, label.extent() + about])
        queries = "all" if self.test.queries is None else f"{len(self.test.queries):,}"
        sizes = f"{len(self.train):,} to train on, {len(self.test):,} to test, {queries} of these query"
        lines.append([self.roles.split or self.group or "", "split", self.parts.how, sizes])
        for name, guess in pair_up(self.roles.guesses).items():
            if not {name, *name.split(",")} & {*used, self.group}:
                lines.append([name, "not used", guess.why, f"could be {guess.kind}" if guess.kind else ""])
        if self.rows.dropped:
            lines.append(["", "left out", "task.missing=drop", self.rows.told()])
        return lines


def _times(weight: float) -> str:
    return "" if weight == 1 else f"{weight:g} x "


def _folder(root: str) -> Path:
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"task.root={root}: no such folder; give the folder that the paths in the table start from")
    return folder


def _mean_distance(label: Label, train: Array, seed: int) -> float:
    """The mean label distance of some training rows to each other: what brings several labels to one scale."""
    some = np.sort(np.random.default_rng(seed).choice(train, min(len(train), _SAMPLE), replace=False))
    count = len(some)
    mean = float(label.space(some).pairwise().double().sum()) / (count * (count - 1))
    if not mean > 0:
        raise InputError(f"task.labels: all training rows are alike in {label.name}; leave it out")
    return mean
