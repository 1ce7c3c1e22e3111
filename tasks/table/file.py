"""Your own table or folder as a task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow

from contml import InputError
from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.config import ConfiguredPart, Fields, section
from contml.data import Task
from contml.data.tables import Table

from .._readers.folders import data_folder
from .boxes import refuse_kinds_of_images, with_boxes
from .cells import CellFiles, TableReading
from .columns import choose_columns
from .items import choose_queries, read_items
from .judgments import JudgmentOptions, has_judgments, read_judgments, refuse_almost_judgments
from .kinds import LABEL_SECTIONS, label_parts
from .label import Reading
from .overview import describe_columns, suggestion
from .reading import read_data, with_listed_split
from .split import make_split


@check_ranges
def file(
    data: str,
    labels: Annotated[dict[str, Any] | None, LABEL_SECTIONS] = None,
    image: str | None = None,
    pattern: str | None = None,
    root: str | None = None,
    split: str | None = None,
    test: Annotated[float, Range(above=0, below=1)] = 0.2,
    group: str | None = None,
    frame: str | None = None,
    exclude_group: bool | None = None,
    queries: NonNegativeInt | None = None,
    judgments: Annotated[dict[str, Any] | None, Fields(JudgmentOptions)] = None,
    missing: Literal["refuse", "drop"] = "refuse",
    table: Annotated[dict[str, Any] | None, Fields(TableReading)] = None,
    seed: NonNegativeInt = 0,
    *,
    has_features: bool = False,
) -> Task:
    """Read a file with images and labels, or with judgments of images, or a folder of images, without code.

    `contml train --data items.csv --label age=number` needs no config. 'contml list labels' lists the kinds of labels
    and their options. If no kind is given, the kind is guessed and shown with the reason. The label distances of
    several labels are summed. Each is divided by its mean over training rows and multiplied by its weight.
    docs/table.md describes everything else.

    A file without `labels` may hold judgments of images, in place of a label of each image. It then has one of these
    groups of columns: `a, b, score`; `a, b, distance`; `anchor, x, y, choice`; `a, b, c, odd`; `query, item, grade`;
    `query, item, distance`; or `anchor, positive, negative`. Each row is the answer of one judge. docs/judgments.md
    describes everything else, and other names of the columns.

    Args:
        data: the table: .csv, .tsv, .txt, .jsonl, .json (also .gz), .parquet or .xlsx; an annotation file of COCO; a
            file of poses (joints.npz); or a folder of images. Each folder in it is a class, or `pattern` explains
            the names of the images. Folders named train, val and test are the split.
        labels: the kind and the options of each label by its column, or by several columns with commas:
            {price: {kind: number, scale: log}, "lat,lon": {kind: geo, weight: 0.5}}; in short: {price: number:log,
            "lat,lon": geo:0.5}. null: the one column that can be a label.
        image: the column of image paths. null: the only one. With judgments, the column in the table `items`.
        pattern: the pattern of a folder's image names: "{age}_{sex}_*.jpg". A field in braces is a column; a star is
            any text. With folders: "{class}/{age}.jpg".
        root: the folder that paths in the table are relative to. null: the folder of the table with the paths.
        split: the column of train, val, test, query; or lists of names of images: a JSON file {"train": [...], "test":
            [...], "queries": [...]}, or a folder with train.txt and test.txt. null: found automatically, or else the
            split is drawn. Without test rows, the validation rows are evaluated.
        test: the approximate share of test rows, of their groups, or of judged items, if the split is drawn.
        group: a column, such as the person, whose values may not be both in training and in test.
        frame: in place of a group, the column of frame numbers. Rows of one part of the split whose frame numbers
            follow each other are one group.
        exclude_group: exclude the other rows of a query's own group from its gallery. Other photographs of the same
            house would be found too easily. null: true if there are groups and labels are not classes.
        queries: number of test rows, drawn by their images, that are queries. 0: every row is a query for all others.
            null: 1,000 if there are more than 5,000 test rows, else 0.
        judgments: options of judgments: items, id_column, by, largest, unit.
        missing: what to do with rows without an image file or without a label, or with an empty cell of a judgment:
            "refuse", or "drop" and count them.
        table: options of cells: delimiter, encoding, sheet, missing_words, decimal, box, max_bytes, max_rows.
        seed: seed of the drawn split, the drawn queries, and the training of word vectors.
        has_features: True if a file of features replaces the images, so that image files may be missing.
    """
    if exclude_group and group is None and frame is None:
        raise InputError("exclude_group", "no group", hint="set group to the column of groups")
    if group is not None and frame is not None:
        raise InputError("group and frame", "both are given", hint="give the column of one of them")
    parts = None if labels is None else label_parts(labels)
    options, judged = section("table", TableReading, table), section("judgments", JudgmentOptions, judgments)
    rows, split = with_listed_split(read_data(Path(data).expanduser(), pattern, options), image, split)
    files = CellFiles(rows.root if root is None else data_folder(root, "the images"))
    grouping = group, frame, exclude_group, queries
    reading = Reading(files, options, image, root, split, test, *grouping, missing, seed, has_features)
    if labels is None and has_judgments(rows):
        unused = {"table.box": options.box, "group": group, "exclude_group": exclude_group, "queries": queries}
        _refuse_given(unused, "judgments", "labels")
        return read_judgments(rows, reading, judged)
    _refuse_given({f"judgments.{name}": value for name, value in vars(judged).items()}, "labels", "judgments")
    task = _read_labelled(rows, reading, parts)
    files.forget()
    del rows
    pyarrow.default_memory_pool().release_unused()  # otherwise the process keeps the memory of the table
    return task


def _read_labelled(table: Table, reading: Reading, parts: Mapping[str, ConfiguredPart] | None) -> Task:
    """Return the task of a table with labels.

    `parts` are the kinds of the labels. If None, the label is the one column that can be a label.
    """
    if reading.table.box is not None:
        table = with_boxes(table, reading.table.box, reading)
    try:
        roles, specs = choose_columns(table, reading, parts)
    except InputError:
        if parts is None:
            refuse_almost_judgments(table)
        raise
    if table.boxes is not None:
        refuse_kinds_of_images({",".join(spec.columns): spec.part.name for spec in specs})
    rows = read_items(table, roles, specs, reading)
    group, exclude_group = reading.group or reading.frame, reading.exclude_group
    if exclude_group and rows.is_class:
        allowed = "needs labels that are not classes"
        raise InputError("exclude_group", f"the label {rows.labels[0].name} is a class", allowed)
    if exclude_group is None:
        exclude_group = group is not None and not rows.is_class and rows.has_groups_to_search
    splits = {
        part: make_split(rows, part, query_rows, group, exclude_group=exclude_group)
        for part, query_rows in choose_queries(rows, reading.queries, reading.seed).items()
    }
    is_divided = group is None and not rows.shared_images
    val_groups = None if is_divided else rows.groups.taken(rows.parts.train)
    columns, suggested = describe_columns(table, roles, specs, rows, splits, reading), suggestion(roles, rows)
    train, test, val = splits["train"], splits.get("test"), splits.get("val")
    return Task(train, test, val, val_groups=val_groups, columns=columns, suggested=suggested)


def _refuse_given(options: Mapping[str, object], found: str, needed: str) -> None:
    """Refuse options that the data do not use.

    Raises:
        InputError: one of the options is given.
    """
    for name, value in options.items():
        if value is not None:
            hint = "omit it" if found == "judgments" else "omit it, or omit labels and name the columns of judgments"
            raise InputError(name, f"{value}, but the table has {found}", f"is an option of {needed}", hint)
