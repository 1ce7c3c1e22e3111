"""Images of one's own, listed in a CSV file with a class each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from contml import InputError

from .reading import Item, csv_rows, make_split, there
from .split import ClassSplit

#: What the column of splits may say beside the names that are asked for: a row of these takes no part.
_LEFT_OUT = ("", "train", "test", "val", "valid", "validation")
_ROLES = ("query", "gallery")


class ClassTable:
    """Images listed in a CSV file, with a class each: "image,class,split" and a row an image.

    A row of the split "query" or "gallery" is a test row of that role. Without a column of splits the classes are
    sorted (as numbers where all are), and the first half of them is for training, the others for testing. Without roles
    every test image queries all other test images.

    Args:
        root: the folder that the paths of images begin at.
        table: the CSV file in it; one that ends in .tsv has tabs between its columns.
        image: the column of paths.
        label: the column of classes: numbers or names.
        split: the column that says "train", "test", "val" or nothing; where the file has none, see above.
        role: the column that says "query" or "gallery" of test images, all or none.
        train: which rows to train on.
        test: which rows to test on; "val", for one, while options are chosen. All other rows are left out.
        complete: refuse to start when an image is missing; false leaves such images out.
    """

    def __init__(
        self,
        root: str,
        table: str = "images.csv",
        image: str = "image",
        label: str = "class",
        split: str = "split",
        role: str = "role",
        train: str = "train",
        test: str = "test",
        complete: bool = True,
    ) -> None:
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise InputError(f"task.root={root}: no such folder; give the folder of your images")
        path = folder / table
        rows = _read(path, folder, {"image": image, "label": label, "split": split, "role": role})
        splits = {row.split for row in rows}
        if None in splits:
            rows = _by_halves(rows, train, test)
        elif unknown := next((r for r in rows if r.split not in (*_LEFT_OUT, *_ROLES, train, test)), None):
            raise InputError(
                f"{path}:{unknown.line}: {split} is '{unknown.split}'; allowed are train, test, val, query, gallery, "
                "nothing, and what task.train and task.test name"
            )
        sides = {name: [row for row in rows if row.split == name] for name in (train, test)}
        for name, members in sides.items():
            if len({row.item.label for row in members}) < 2:
                raise InputError(
                    f"{path}: {len(members)} rows of {len({row.item.label for row in members})} classes are '{name}' "
                    f"in its column '{split}'; a split needs at least 2 classes"
                )
        _check_roles(path, sides[test])
        self.train, self.test = (_split(path, sides[name], complete) for name in (train, test))


class _Row(NamedTuple):
    line: int
    item: Item
    split: str | None  # None: the file has no such column
    role: str


def _read(path: Path, folder: Path, columns: Mapping[str, str]) -> list[_Row]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    head, table = csv_rows(path, "task.table names the CSV file of your images", delimiter)
    for option in ("image", "label"):
        if columns[option] not in head:
            raise InputError(
                f"{path}: has no column '{columns[option]}' (it has {', '.join(head)}); name it with task.{option}"
            )
    found: list[_Row] = []
    lines: dict[Path, int] = {}
    for line, row in table:
        values = {option: row.get(column, "") for option, column in columns.items()}
        for option in ("image", "label"):
            if not values[option]:
                raise InputError(f"{path}:{line}: '{columns[option]}' is empty; give each image a class")
        item = Item(folder / values["image"], values["label"])
        if item.path in lines:
            raise InputError(f"{path}:{line}: {item.path} stands in line {lines[item.path]} as well")
        lines[item.path] = line
        split = values["split"] if columns["split"] in head else None
        role = values["role"]
        if role not in ("", *_ROLES):
            raise InputError(f"{path}:{line}: '{columns['role']}' is '{role}'; allowed are query and gallery")
        if split in _ROLES:
            split, role = "test", split
        found.append(_Row(line, item, split, role))
    if not found:
        raise InputError(f"{path}: has no rows; list an image a row, with its class")
    return found


def _by_halves(rows: list[_Row], train: str, test: str) -> list[_Row]:
    """The first half of the classes to train on, the rest to test on."""
    names = {str(row.item.label) for row in rows}
    ordered = sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
    first = set(ordered[: len(ordered) // 2])
    return [row._replace(split=train if row.item.label in first else test) for row in rows]


def _check_roles(path: Path, rows: list[_Row]) -> None:
    without = [row for row in rows if not row.role]
    if without and len(without) < len(rows):
        raise InputError(
            f"{path}:{without[0].line}: says neither query nor gallery, but other test images do; say it of all or none"
        )
    for role in _ROLES:
        if not without and all(row.role != role for row in rows):
            raise InputError(f"{path}: no test image is '{role}'; an evaluation needs both, or no roles at all")


def _split(path: Path, rows: list[_Row], complete: bool) -> ClassSplit:
    items = there(path, {"": [row.item for row in rows]}, complete)[""]
    role = {row.item.path: row.role for row in rows}
    roles = [role[item.path] for item in items]
    return make_split(
        items,
        {item.label: str(item.label) for item in items},
        missing=len(rows) - len(items),
        roles=roles if any(roles) else None,
    )
