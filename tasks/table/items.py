"""From a table to its items: labels are read and checked, incomplete rows left out, the others split and weighed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError

from .._readers.splits import part_of
from .chosen import Spec
from .described import KINDS, CaptionsLabel, MapLabel
from .guess import Roles
from .labels import Label, Options
from .parts import Parts, refuse_shared, split_by_column, split_by_draw
from .reading import Table
from .rows import Rows

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: A label's mean label distance is that of so many training rows.
_SAMPLE = 300


@dataclass(frozen=True)
class Items:
    """The items of a table, one per row that can be used.

    Args:
        paths: the image file of each row of the table.
        labels: its labels, read and fitted to the training rows.
        means: the mean label distance of each label; 1 where there is only one label.
        parts: which rows are for training and for testing.
        excluded: how many rows were left out of "train" and of "test", by reason.
        left_out: all that was left out, in words; "" where nothing was.
    """

    paths: Sequence[str]
    labels: Sequence[Label]
    means: Sequence[float]
    parts: Parts
    excluded: Mapping[str, Mapping[str, int]]
    left_out: str

    @property
    def weights(self) -> list[float]:
        """The factor of each label distance in their sum."""
        return [label.weight / mean for label, mean in zip(self.labels, self.means, strict=True)]


def read_items(
    table: Table,
    roles: Roles,
    specs: Sequence[Spec],
    options: Options,
    *,
    group: str | None,
    test: float,
    missing: Literal["refuse", "drop"],
) -> Items:
    """Read the labels, leave out incomplete rows, and split the others into training and test.

    Args:
        table: the table.
        roles: which of its columns are the images and the split.
        specs: which of its columns are the labels.
        options: how labels are read.
        group: the column of which no value may be in training and in test.
        test: the share of rows for testing where the split is drawn.
        missing: "refuse" incomplete rows, or "drop" them.

    Raises:
        InputError: a row is wrong, or too few can be used.
    """
    files, column = options.files, str(roles.image)
    paths = [files.place(cell) if cell.strip() else "" for cell in table.column(column, "image")]
    rows = Rows(table, missing)
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
    drawn = _split(table, rows, groups, roles.split, group, test, options.seed)
    if group is not None:
        refuse_shared(table, paths, drawn, "image")
    for label in labels:
        if isinstance(label, MapLabel):
            label.images = paths
        unusable = ~label.usable(drawn.train, drawn.test)
        rows.drop(unusable, f"without {label.needs} in '{label.name}'", f"'{label.name}' {label.unusable}")
    train, test_rows, query = (part[rows.usable[part]] for part in (drawn.train, drawn.test, drawn.query))
    parts = Parts(train, test_rows, query, drawn.how)
    _check_sizes(rows, parts)
    for label in labels:
        label.fit(train)
    means = [_mean_distance(label, train, options.seed) for label in labels] if len(labels) > 1 else [1.0]
    excluded = _excluded(table, rows, roles.split, drawn)
    return Items(paths, labels, means, parts, excluded, rows.describe_excluded())


def _split(
    table: Table, rows: Rows, groups: Sequence[str], split: str | None, group: str | None, share: float, seed: int
) -> Parts:
    # An image in both parts would be found by its pixels: without groups, rows of one image stay together.
    what, usable = "image" if group is None else group, np.flatnonzero(rows.usable)
    if split is None:
        if len(usable) < 6:
            raise InputError(
                f"{table.path}: has {len(usable)} rows that can be used{_left_out(rows)}; a split needs 6 or more, "
                "3 of them for testing"
            )
        return split_by_draw(groups, usable, share, seed, what)
    parts = split_by_column(table, split, usable)
    refuse_shared(table, groups, parts, what)
    _check_sizes(rows, parts)
    return parts


def _check_sizes(rows: Rows, parts: Parts) -> None:
    if min(len(parts.train), len(parts.test)) < 3:
        raise InputError(
            f"{rows.table.path}: {len(parts.train)} rows to train on and {len(parts.test)} to test, split "
            f"{parts.how}{_left_out(rows)}; each needs at least 3"
        )


def _left_out(rows: Rows) -> str:
    text = rows.describe_excluded()
    return f" (left out: {text})" if text else ""


def _excluded(table: Table, rows: Rows, split: str | None, drawn: Parts) -> dict[str, dict[str, int]]:
    """What was left out of each part, by reason; rows that were left out before a draw count as training rows."""
    if split is None:
        in_test = drawn.test
        in_train = np.setdiff1d(np.arange(len(table)), in_test)
    else:
        named = np.array([part_of(cell) for cell in table.columns[split]])
        in_train, in_test = np.flatnonzero(named == "train"), np.flatnonzero(np.isin(named, ("test", "query")))
    return {"train": rows.excluded(in_train), "test": rows.excluded(in_test)}


def _mean_distance(label: Label, train: Array, seed: int) -> float:
    """The mean label distance of some training rows to each other: what brings several labels to one scale."""
    sample = np.sort(np.random.default_rng(seed).choice(train, min(len(train), _SAMPLE), replace=False))
    count = len(sample)
    mean = float(label.space(sample).pairwise().double().sum()) / (count * (count - 1))
    if not mean > 0:
        raise InputError(f"labels: all training rows have the same {label.name}; leave it out")
    return mean
