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

#: Splits that a row may name although neither `train` nor `test` asks for them; such rows are left out.
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

    A row with the split "query" or "gallery" is a test row with that role. Without a column of splits the classes are
    sorted (as numbers where all are numbers): the first half is for training, the rest for testing. Without roles every
    test image is a query against all other test images.

    Args:
        root: the folder that the paths of images start from.
        table: the CSV file in that folder; a file that ends in .tsv has tabs between its columns.
        image: the column of paths.
        label: the column of classes: numbers or names.
        split: the column with "train", "test", "val" or nothing; the file need not have it, see above.
        role: the column with "query" or "gallery" for test images: for all of them or for none.
        train: the split to train on.
        test: the split to test on, for example "val" while options are chosen. All other rows are left out.
        missing: "refuse" raises an error when an image is missing; "drop" leaves such images out.
    """
    folder = data_folder(root, "your images")
    path = folder / table
    rows = _read(path, folder, {"image": image, "label": label, "split": split, "role": role})
    if any(row.split is None for row in rows):
        rows = _split_by_half(rows, train, test)
    elif unknown := next((row for row in rows if row.split not in (*_OTHER_SPLITS, *_ROLES, train, test)), None):
        raise InputError(
            f"{path}:{unknown.line}: {split} is '{unknown.split}'; allowed are train, test, val, query, gallery, "
            "an empty field, and what train and test name"
        )
    parts = {name: [row for row in rows if row.split == name] for name in (train, test)}
    for name, members in parts.items():
        classes = {row.item.label for row in members}
        if len(classes) < 2:
            raise InputError(
                f"{path}: {len(members)} rows of {len(classes)} classes are '{name}' in the column '{split}'; a split "
                "needs at least 2 classes"
            )
    on_disk = {name: _rows_on_disk(path, members, missing) for name, members in parts.items()}
    _check_roles(path, on_disk[test])
    train_split, test_split = (_make_split(on_disk[name], len(parts[name])) for name in (train, test))
    return Task(train=train_split, test=test_split)


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
        values = {option: row.get(column, "") for option, column in columns.items()}
        for option in ("image", "label"):
            if not values[option]:
                raise InputError(f"{path}:{line}: '{columns[option]}' is empty; give every row an image and a class")
        item = Item(folder / values["image"], values["label"])
        add_once(lines, str(item.path), path, line)
        split = values["split"] if columns["split"] in head else None
        role = values["role"]
        if role not in ("", *_ROLES):
            raise InputError(f"{path}:{line}: '{columns['role']}' is '{role}'; allowed are query and gallery")
        if split in _ROLES:
            split, role = "test", split
        rows.append(_Row(line, item, split, role))
    if not rows:
        raise InputError(f"{path}: has no rows; write one row per image, with its class")
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
        raise InputError(
            f"{path}:{without[0].line}: is neither query nor gallery, but other test images are; give all test images "
            "a role, or none"
        )
    for role in _ROLES:
        if not without and all(row.role != role for row in rows):
            raise InputError(f"{path}: no test image is '{role}'; give both queries and a gallery, or no roles at all")


def _make_split(rows: list[_Row], listed: int) -> Split:
    """The split of these rows, out of `listed`."""
    return make_split(
        [row.item for row in rows],
        {row.item.label: str(row.item.label) for row in rows},
        roles=[row.role for row in rows] if any(row.role for row in rows) else None,
        missing=listed - len(rows),
    )
