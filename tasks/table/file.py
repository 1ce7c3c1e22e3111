"""Your own table or folder as a task."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveFloat, PositiveInt, Range, check_ranges
from contml.data import Task
from contml.data.tables import MAX_BYTES, MAX_ROWS, TableOptions

from .._readers.folders import data_folder
from .cells import CellFiles, Decimal
from .columns import choose_columns
from .items import choose_queries, read_items
from .labels import ClassLabel, Options, Scale
from .overview import describe_columns, suggest_config
from .reading import read_data
from .split import make_split


@check_ranges
def file(
    data: str,
    labels: dict[str, str] | None = None,
    image: str | None = None,
    pattern: str | None = None,
    root: str | None = None,
    split: str | None = None,
    test: Annotated[float, Range(above=0, below=1)] = 0.2,
    group: str | None = None,
    exclude_group: bool | None = None,
    queries: NonNegativeInt | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    scale: Scale = "std",
    decimal: Decimal = "auto",
    separator: str | None = None,
    levels: dict[str, list[str | int | float]] | None = None,
    classes: PositiveInt | None = None,
    ignore: int | None = None,
    side: PositiveInt | None = 112,
    vectors: str | None = None,
    normalize: bool = False,
    dim: PositiveInt = 100,
    heading_weight: PositiveFloat = 0.625,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
    missing_words: list[str] | None = None,
    max_bytes: PositiveInt = MAX_BYTES,
    max_rows: PositiveInt = MAX_ROWS,
    seed: NonNegativeInt = 0,
) -> Task:
    """A file with a column of image paths and columns of labels, or a folder of images: a task without code.

    `contml train --data items.csv --label age=number` needs no config. Kinds of labels: class, number, number:log
    (compared by ratio, as prices are), date, vector (several columns, or lists), geo (latitude, longitude, perhaps
    heading), ordinal, tags, captions, map (paths of label maps); a kind that is not given is guessed, and shown with
    the reason. The label distances of several labels are summed, each divided by its mean over training rows and
    multiplied by its weight.
    Everything else: docs/table.md.

    Args:
        data: the table: .csv, .tsv, .txt, .jsonl, .json (also .gz), .parquet or .xlsx; an annotation file of COCO; or a
            folder of images, where each folder in it is a class, or `pattern` says what the names of the images mean.
            Folders named train, val and test are the split.
        labels: the kind of each label by its column, or by several columns with commas, and perhaps its weight:
            {age: number, "lat,lon": geo:0.5, day: date:%d.%m.%Y}; "auto" is guessed. null: the one column that can be a
            label.
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
        scale: the unit of numbers: "std", their standard deviation over training rows; "range", from their 5th to their
            95th percentile, robust to outliers; or "none", unscaled.
        decimal: "point" or "comma" before decimals; "auto": a comma where the column has one and cells are not
            separated by commas.
        separator: the character between tags; null: the first of ; | , that the column uses.
        levels: the order of ordinal labels in words by their column, lowest first: {size: [small, medium, large]}.
        classes: number of classes of label maps; null: the highest number in them plus one.
        ignore: the class number of ignored pixels of label maps, such as 255.
        side: label maps are resized to this many pixels square; null: not resized, so all must have one size.
        vectors: a file of word vectors for captions, beside the table or anywhere: word2vec, GloVe,
            fastText, or FILE.zip/MEMBER; null: trained on the training rows.
        normalize: scale word vectors to unit length first.
        dim: dimension of word vectors that are trained.
        heading_weight: metres that a degree counts of the heading of a geo label of three columns.
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
    table_options = TableOptions(delimiter, encoding, sheet, missing_words, max_bytes, max_rows, set_by="set ")
    table = read_data(Path(data).expanduser(), pattern, table_options)
    files = CellFiles(table.root if root is None else data_folder(root, "the images"))
    ordered_levels = {name: [str(level) for level in values] for name, values in (levels or {}).items()}
    for name in ordered_levels:
        table.column(name, "levels")
    kind_options = classes, ignore, side, vectors, normalize, dim, max_bytes, max_rows, seed, heading_weight
    options = Options(files, scale, decimal, separator, ordered_levels, *kind_options)
    roles, specs = choose_columns(table, options, labels, image, split, group)
    items = read_items(table, roles, specs, options, group=group, test=test, missing=missing)
    is_class = len(items.labels) == 1 and isinstance(items.labels[0], ClassLabel)
    if exclude_group and is_class:
        allowed = "needs labels that are not classes"
        raise InputError("exclude_group", f"the label {items.labels[0].name} is a class", allowed)
    if exclude_group is None:
        exclude_group = group is not None and not is_class and items.has_groups_to_search
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
