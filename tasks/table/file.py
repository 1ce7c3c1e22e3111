"""Your own table or folder as a task."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, Range, check_ranges
from contml.data import Task
from contml.data.tables import MAX_BYTES, MAX_ROWS, TableOptions

from .._readers.folders import data_folder
from .cells import CellFiles, Decimal
from .columns import choose_columns
from .items import choose_queries, read_items
from .judgments import has_judgments, judgments
from .kinds import LABEL_SECTIONS, label_parts
from .label import Reading
from .overview import describe_columns, suggest_config
from .reading import read_data
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
    exclude_group: bool | None = None,
    queries: NonNegativeInt | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    decimal: Decimal = "auto",
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
    missing_words: list[str] | None = None,
    max_bytes: PositiveInt = MAX_BYTES,
    max_rows: PositiveInt = MAX_ROWS,
    seed: NonNegativeInt = 0,
) -> Task:
    """A file with a column of image paths and columns of labels, or a folder of images: a task without code.

    `contml train --data items.csv --label age=number` needs no config. 'contml list labels' lists the kinds of labels
    and their options; a kind that is not given is guessed, and shown with the reason. The label distances of several
    labels are summed, each divided by its mean over training rows and multiplied by its weight.
    Everything else: docs/table.md.

    Args:
        data: the table: .csv, .tsv, .txt, .jsonl, .json (also .gz), .parquet or .xlsx; an annotation file of COCO; or a
            folder of images, where each folder in it is a class, or `pattern` says what the names of the images mean.
            Folders named train, val and test are the split.
        labels: the kind and the options of each label by its column, or by several columns with commas:
            {price: {kind: number, scale: log}, "lat,lon": {kind: geo, weight: 0.5}}; in short: {price: number:log,
            "lat,lon": geo:0.5}. null: the one column that can be a label.
        image: the column of image paths; null: the only one.
        pattern: what the names of a folder's images mean: "{age}_{sex}_*.jpg". A field in braces is a column; a star is
            any text. With folders: "{class}/{age}.jpg".
        root: the folder that paths in the table are relative to; null: the folder of the table.
        split: the column of train, val, test, query; null: found automatically, or else the split is drawn. Without
            test rows, the validation rows are evaluated.
        test: the share of test rows, or of their groups, if the split is drawn; an approximate share.
        group: a column, such as the person, whose values may not be both in training and in test.
        exclude_group: exclude the other rows of a query's own group from its gallery, such as other photographs of
            the same house, which would be found too easily. null: where there are groups, and labels are not classes.
        queries: how many test rows, drawn by their images, are queries; 0: every row is a query against all others;
            null: 1,000 of more than 5,000 test rows, else 0.
        missing: what to do with rows without an image file or without a label: "refuse", or "drop" and count them.
        decimal: "point" or "comma" before decimals; "auto": a comma where the column has one and cells are not
            separated by commas.
        delimiter: the character between the cells of a CSV file; null: found automatically.
        encoding: the encoding of a file of text.
        sheet: the sheet of an Excel file; null: the only one that is filled.
        missing_words: cells that mean a missing value, as an empty cell does; null: NA, N/A, NaN, NaT, null, None, -, ?
            and others that programs write; []: none, so that they are values.
        max_bytes: the largest file that is read, unpacked; word vectors may have 16 GiB at least.
        max_rows: the most rows that are read; of word vectors 10 million at least.
        seed: seed of the drawn split, the drawn queries, and the training of word vectors.
    """
    if exclude_group and group is None:
        raise InputError("exclude_group", "no group", hint="set group to the column of groups")
    parts = None if labels is None else label_parts(labels)
    table_options = TableOptions(delimiter, encoding, sheet, missing_words, max_bytes, max_rows, set_by="set ")
    table = read_data(Path(data).expanduser(), pattern, table_options)
    if labels is None and has_judgments(table):
        task: Task = judgments(
            data,
            image=image,
            root=root,
            split=split,
            test=test,
            missing=missing,
            decimal=decimal,
            delimiter=delimiter,
            encoding=encoding,
            sheet=sheet,
            missing_words=missing_words,
            max_bytes=max_bytes,
            max_rows=max_rows,
            seed=seed,
        )
        return task
    files = CellFiles(table.root if root is None else data_folder(root, "the images"))
    reading = Reading(files, decimal, seed, table_options)
    roles, specs = choose_columns(table, reading, parts, image, split, group)
    items = read_items(table, roles, specs, reading, group=group, test=test, missing=missing)
    if exclude_group and items.is_class:
        allowed = "needs labels that are not classes"
        raise InputError("exclude_group", f"the label {items.labels[0].name} is a class", allowed)
    if exclude_group is None:
        exclude_group = group is not None and not items.is_class and items.has_groups_to_search
    splits = {
        part: make_split(items, part, query_rows, items.groups if exclude_group else None)
        for part, query_rows in choose_queries(items, queries, seed).items()
    }
    train_split = splits["train"]
    columns = describe_columns(table, roles, specs, items, splits, given_image=image is not None, group=group)
    files.forget()
    return Task(
        train_split,
        splits.get("test"),
        splits.get("val"),
        val_groups=None if group is None and not items.shared_images else [items.groups[r] for r in items.parts.train],
        columns=columns,
        suggested=partial(suggest_config, roles, items),
    )
