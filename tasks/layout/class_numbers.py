"""From the numbers in label maps to classes: which count, which are ignored, which are one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .pairs import read_table

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Numbers that hardly anybody gives a class, and many give to pixels without one.
_USUAL_IGNORE = (255, 65535)


class Classes(NamedTuple):
    """Label maps of class ids."""

    maps: Array  # [N,H,W]
    classes: int
    ignore: int | None


class Groups(NamedTuple):
    """Which class each number belongs to; -1: to none, it is ignored."""

    source: str
    classes: int
    of: dict[int, int]


def read_groups(path: Path, column: str, groups: Sequence[str] | None) -> Groups:
    """Groups of the class numbers in a CSV file, its first column, by the texts of another column.

    groups: the texts that are classes, in order, joined by "+" where several are one; None: every text is a class.

    Raises:
        InputError: no such file or column, a number that is none or stands twice, or a group that is not in the column.
    """
    text_of: dict[int, str] = {}
    for line, row in read_table(path, (column,)):
        first = next(iter(row.values()))
        if not first.isdecimal() or int(first) in text_of:
            what = "stands twice" if first.isdecimal() else "is no class number"
            raise InputError(f"{path}, line {line}: '{first}' {what}; the first column has each class number once")
        text_of[int(first)] = row[column]
    texts = list(dict.fromkeys(text_of.values()))
    members = [text.split("+") for text in groups] if groups else [[text] for text in texts]
    class_of: dict[str, int] = {}
    for group, names in enumerate(members):
        for name in names:
            if name not in texts:
                raise InputError(f"task.groups: '{name}' is not in column '{column}' of {path} ({', '.join(texts)})")
            if name in class_of:
                raise InputError(f"task.groups: '{name}' stands in two groups")
            class_of[name] = group
    return Groups(str(path), len(members), {number: class_of.get(text, -1) for number, text in text_of.items()})


def to_classes(
    paths: Sequence[str], maps: Array, classes: int | None, ignore: int | None, groups: Groups | None
) -> Classes:
    """Maps `[N, H, W]` of the numbers in files as maps of classes; `paths` name them in errors.

    Raises:
        InputError: a number that is no class: the file, the number and what to do are told.
    """
    used = {int(number) for one in maps for number in np.unique(one)} - {ignore}
    if not used:
        raise InputError(f"{paths[0]}: all pixels of all label maps are {ignore}, which task.ignore leaves out")
    if groups is not None:
        return _grouped(paths, maps, ignore, groups, used)
    if classes is None:
        top = max(used)
        if ignore is None and top in _USUAL_IGNORE and top - 1 not in used:
            raise InputError(
                f"{_holder(paths, maps, top)}: has the class number {top}, all others are smaller than {top - 1}; "
                f"set task.ignore={top} if it means no class, else task.classes={top + 1}"
            )
        classes = top + 1
    if classes < 1:
        raise InputError(f"task.classes={classes}: there is at least 1 class")
    if strange := {number for number in used if not 0 <= number < classes}:
        number = min(strange)
        raise InputError(
            f"{_holder(paths, maps, number)}: has the class number {number}; task.classes={classes} allows 0 to "
            f"{classes - 1}; raise it, or set task.ignore={number} if it means no class"
        )
    return Classes(maps, classes, ignore)


def _grouped(paths: Sequence[str], maps: Array, ignore: int | None, groups: Groups, used: set[int]) -> Classes:
    if strange := used - set(groups.of):
        number = min(strange)
        raise InputError(
            f"{_holder(paths, maps, number)}: has the class number {number}, which is not in {groups.source}; add it "
            f"there, or set task.ignore={number} if it means no class"
        )
    # What is ignored becomes a number of its own behind the classes.
    none = groups.classes
    table = np.full(max(used) + 1, none, np.min_scalar_type(none))
    for number in used:
        table[number] = none if groups.of[number] < 0 else groups.of[number]
    known = maps != ignore if ignore is not None else np.ones(maps.shape, bool)
    return Classes(np.where(known, table[np.where(known, maps, 0)], none).astype(table.dtype), none, none)


def _holder(paths: Sequence[str], maps: Array, number: int) -> str:
    """The first file that holds a number."""
    return next(path for path, one in zip(paths, maps, strict=True) if (one == number).any())
