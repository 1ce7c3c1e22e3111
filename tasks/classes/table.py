"""Your own images, listed in a table with the class of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from contml import InputError
from contml._support.validation import PositiveInt, check_ranges
from contml.data import Split, Task
from contml.data.tables import MAX_BYTES, MAX_ROWS, TableOptions, read_table, refuse_object

from .._readers.folders import DiskFiles, Missing, data_folder
from .._readers.splits import TEST_PARTS, parts_of, refuse_split_columns
from .reading import ClassImage, LabelKind, half_of_classes, items_on_disk, make_split, names_alike, val_groups

_ROLES = ("query", "gallery")


@check_ranges
def csv(
    root: str,
    table: str = "images.csv",
    image: str = "image",
    label: str = "class",
    split: str = "split",
    role: str = "role",
    labels: LabelKind = "class",
    missing: Literal["refuse", "drop"] = "refuse",
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
    missing_words: list[str] | None = None,
    max_bytes: PositiveInt = MAX_BYTES,
    max_rows: PositiveInt = MAX_ROWS,
) -> Task:
    """Images listed in a table with the columns image, class and split; one row per image.

    A row with the split "query" or "gallery" is a test row with that role. Without a split column about half of the
    classes are drawn by their names for training, the rest is for testing. Without roles every test image is a query
    against all other test images. Without test images, the validation images are evaluated.

    Args:
        root: the folder that the paths of images start from.
        table: the file in that folder: CSV, TSV, JSON, Parquet or Excel.
        image: the column of paths.
        label: the column of classes: numbers or names.
        split: the column with "train", "val", "test" or nothing (not used); it may be absent, see above.
        role: the column with "query" or "gallery" for test images: for all of them or for none.
        labels: what is compared: "class"; or "year", which ends the name of the class, as in "Audi S4 Sedan 2012".
        missing: what to do with rows without an image file: "refuse", or "drop" and count them.
        delimiter: the character between the cells of a CSV file; null: found automatically.
        encoding: the encoding of a file of text.
        sheet: the sheet of an Excel file; null: the only one that is filled.
        missing_words: cells that mean a missing value, as an empty cell does; null: NA, N/A, NaN, null, None, -, ? and
            others that programs write; []: none, so that they are values.
        max_bytes: the largest file that is read, unpacked.
        max_rows: the most rows that are read.
    """
    options = TableOptions(delimiter, encoding, sheet, missing_words, max_bytes, max_rows, set_by="set ")
    folder = data_folder(root, "your images")
    path = folder / table
    rows = _read(path, folder, {"image": image, "label": label, "split": split, "role": role}, options)
    parts = {part: [row for row in rows if row.split == part] for part in ("train", "val", "test")}
    for part, members in parts.items():
        classes = {row.item.label for row in members}
        if len(classes) < 2 and (members or part == "train"):
            problem = f"{len(members)} rows of {len(classes)} classes are {part}"
            raise InputError(str(path), problem, "must be at least 2 classes")
    existing = {part: _rows_on_disk(path, members, missing) for part, members in parts.items() if members}
    if "test" in existing:
        _check_roles(path, existing["test"])
    splits = {part: _make_split(members, len(parts[part]), labels) for part, members in existing.items()}
    counts = ", ".join(f"{len({row.item.label for row in members}):,} {part}" for part, members in existing.items())
    summary = [("classes", f"{'drawn by their names: ' if rows[0].drawn else ''}{counts}")]
    summary += names_alike(dict.fromkeys(row.item.label for row in rows))
    groups = val_groups([row.item for row in existing["train"]], labels)
    return Task(splits["train"], splits.get("test"), splits.get("val"), val_groups=groups, summary=summary)


class _Row(NamedTuple):
    where: str
    item: ClassImage
    split: str
    role: str
    drawn: bool  # whether the file has no column of the split


def _read(path: Path, folder: Path, columns: Mapping[str, str], options: TableOptions) -> list[_Row]:
    table = read_table(path, options, option="table")
    images, labels = (
        table.texts(columns[option], use, option) for option, use in (("image", "images"), ("label", "classes"))
    )
    for option, cells in (("image", images), ("label", labels)):
        if "" in cells:
            row = cells.index("")
            words = ", ".join(f"'{word}'" for word in table.column(columns[option], option).missing)
            problem = f"empty, or one of {words}, which mean a missing value" if words else "empty"
            hint = "set missing_words=[] if it is a value" if words else ""
            raise InputError(
                f"{table.where(row)}: {columns[option]}", problem, "every row needs an image and a class", hint
            )
    for row, cell in table.column(columns["label"], "classes").in_brackets():
        refuse_object(cell, f"{table.where(row)}: {columns['label']}", "a class")
    on_disk = DiskFiles()
    files = [on_disk.locate([folder], image) for image in images]
    table.refuse_repeated([str(file) for file in files])
    roles = table.texts(columns["role"], "roles") if columns["role"] in table else [""] * len(table)
    for row, role in enumerate(roles):
        if role not in ("", *_ROLES):
            raise InputError(f"{table.where(row)}: {columns['role']}", f"'{role}'", "must be query, gallery or empty")
    column = columns["split"]
    drawn = column not in table
    if drawn:
        refuse_split_columns(path, [name for name in table.columns if name not in columns.values()])
        part_by_class = half_of_classes(sorted(set(labels)))
        parts = [part_by_class[label] for label in labels]
    else:
        parts = parts_of(table.texts(column, "the split"), table.where, path, column)
    return [
        _Row(
            table.where(row),
            ClassImage(file, label),
            "test" if part in TEST_PARTS else part,
            part if part in _ROLES else role,
            drawn,
        )
        for row, (file, label, part, role) in enumerate(zip(files, labels, parts, roles, strict=True))
    ]


def _rows_on_disk(path: Path, rows: list[_Row], missing: Missing) -> list[_Row]:
    existing_paths = {item.path for item in items_on_disk(path, {"": [row.item for row in rows]}, missing)[""]}
    return [row for row in rows if row.item.path in existing_paths]


def _check_roles(path: Path, rows: list[_Row]) -> None:
    without_role = [row for row in rows if not row.role]
    if without_role and len(without_role) < len(rows):
        hint = "give all test images a role, or none"
        raise InputError(without_role[0].where, "a test image without a role, while others have one", hint=hint)
    for role in _ROLES:
        if not without_role and all(row.role != role for row in rows):
            hint = "give both queries and a gallery, or no roles at all"
            raise InputError(str(path), f"no test image is '{role}'", hint=hint)


def _make_split(rows: list[_Row], listed: int, labels: LabelKind) -> Split:
    """The split of these rows, out of `listed`."""
    return make_split(
        [row.item for row in rows],
        {row.item.label: str(row.item.label) for row in rows},
        roles=[row.role for row in rows],
        missing=listed - len(rows),
        labels=labels,
    )
