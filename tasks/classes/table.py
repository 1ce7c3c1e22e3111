"""Your own images, listed in a CSV file with the class of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from contml import InputError
from contml.data import Split, Task

from .._readers.folders import Missing, data_folder
from .._readers.text import add_once, read_csv
from .reading import Item, items_on_disk, make_split

#: Splits that a row may name although they are neither `train` nor `test`; such rows are not used.
_OTHER_SPLITS = ("", "train", "test", "val", "valid", "validation")
_ROLES = ("query", "gallery")


def csv(
    root: str,
    table: str = "images.csv",
    image: str = "image",
    label: str = "class",
    split: str = "split",
    role: str = "role",
    train: str = "train",
    test: str = "test",
    missing: Literal["refuse", "drop"] = "refuse",
) -> Task:
    """Images listed in a CSV file with the columns image, class and split; one row per image.

    A row with the split "query" or "gallery" is a test row with that role. Without a split column the classes are
    sorted (as numbers where all are numbers): the first half is for training, the rest for testing. Without roles every
    test image is a query against all other test images.

    Args:
        root: the folder that the paths of images start from.
        table: the CSV file in that folder; in a .tsv file the cells are separated by tabs.
        image: the column of paths.
        label: the column of classes: numbers or names.
        split: the column with "train", "test", "val" or nothing; it may be absent, see above.
        role: the column with "query" or "gallery" for test images: for all of them or for none.
        train: the split to train on.
        test: the split to test on, for example "val" while options are chosen. Rows of other splits are not used.
        missing: what to do with rows without an image file: "refuse", or "drop" and count them.
    """
    folder = data_folder(root, "your images")
    path = folder / table
    rows = _read(path, folder, {"image": image, "label": label, "split": split, "role": role})
    if any(row.split is None for row in rows):
        rows = _split_by_half(rows, train, test)
    elif unknown := next((row for row in rows if row.split not in (*_OTHER_SPLITS, *_ROLES, train, test)), None):
        allowed = "must be train, test, val, query, gallery, empty, or a name given as train or test"
        raise InputError(f"{path}:{unknown.line}: {split}", f"'{unknown.split}'", allowed)
    parts = {name: [row for row in rows if row.split == name] for name in (train, test)}
    for name, members in parts.items():
        classes = {row.item.label for row in members}
        if len(classes) < 2:
            found = f"{len(members)} rows of {len(classes)} classes are '{name}' in the column '{split}'"
            raise InputError(str(path), found, "must be at least 2 classes")
    train_rows, test_rows = (_rows_on_disk(path, parts[name], missing) for name in (train, test))
    _check_roles(path, test_rows)
    return Task(_make_split(train_rows, len(parts[train])), _make_split(test_rows, len(parts[test])))


class _Row(NamedTuple):
    line: int
    item: Item
    split: str | None  # None: the file has no such column
    role: str


def _read(path: Path, folder: Path, columns: Mapping[str, str]) -> list[_Row]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    needed = {columns[option]: option for option in ("image", "label")}
    head, table = read_csv(path, "table", needed, delimiter, uneven=True)
    rows: list[_Row] = []
    lines: dict[str, int] = {}
    for line, row in table:
        image, label, split, role = (row.get(column, "") for column in columns.values())
        for option, value in (("image", image), ("label", label)):
            if not value:
                raise InputError(f"{path}:{line}: {columns[option]}", "empty", "every row needs an image and a class")
        item = Item(folder / image, label)
        add_once(lines, str(item.path), path, line)
        if role not in ("", *_ROLES):
            raise InputError(f"{path}:{line}: {columns['role']}", f"'{role}'", "must be query, gallery or empty")
        if split in _ROLES:
            split, role = "test", split
        rows.append(_Row(line, item, split if columns["split"] in head else None, role))
    if not rows:
        raise InputError(str(path), "has no rows", hint="write one row per image, with its class")
    return rows


def _split_by_half(rows: list[_Row], train: str, test: str) -> list[_Row]:
    """The first half of the classes for training, the rest for testing."""
    names = {str(row.item.label) for row in rows}
    ordered = sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
    first = set(ordered[: len(ordered) // 2])
    return [row._replace(split=train if row.item.label in first else test) for row in rows]


def _rows_on_disk(path: Path, rows: list[_Row], missing: Missing) -> list[_Row]:
    found = {item.path for item in items_on_disk(path, {"": [row.item for row in rows]}, missing)[""]}
    return [row for row in rows if row.item.path in found]


def _check_roles(path: Path, rows: list[_Row]) -> None:
    without = [row for row in rows if not row.role]
    if without and len(without) < len(rows):
        hint = "give all test images a role, or none"
        raise InputError(f"{path}:{without[0].line}", "a test image without a role, while others have one", hint=hint)
    for role in _ROLES:
        if not without and all(row.role != role for row in rows):
            hint = "give both queries and a gallery, or no roles at all"
            raise InputError(str(path), f"no test image is '{role}'", hint=hint)


def _make_split(rows: list[_Row], listed: int) -> Split:
    """The split of these rows, out of `listed`."""
    return make_split(
        [row.item for row in rows],
        {row.item.label: str(row.item.label) for row in rows},
        roles=[row.role for row in rows],
        missing=listed - len(rows),
    )
