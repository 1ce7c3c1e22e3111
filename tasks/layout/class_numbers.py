"""From the numbers in label maps to classes: which count, which are ignored, which are one class together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .._readers.text import read_csv

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Numbers that are rarely a class, and often mark pixels without a class.
_USUAL_IGNORE = (255, 65535)


class Classes(NamedTuple):
    """Label maps of class ids."""

    maps: Array  # [N,H,W]
    classes: int
    ignore: int | None


class Groups(NamedTuple):
    """The class of each number in the files; -1: the number is ignored."""

    source: str  # the CSV file
    classes: int
    class_of: dict[int, int]


def read_groups(path: Path, column: str, groups: Sequence[str] | None) -> Groups:
    """Groups of the class numbers in a CSV file, its first column, by the texts of another column.

    groups: the texts that are classes, in order, joined by "+" where several are one; None: every text is a class.

    Raises:
        InputError: no such file or column, a bad or repeated class number, or a group that is not in the column.
    """
    text_of: dict[int, str] = {}
    for line, row in read_csv(path, "names", {column: "column"})[1]:
        first = next(iter(row.values()))
        if not first.isdecimal() or int(first) in text_of:
            what = "appears twice" if first.isdecimal() else "is not a class number"
            raise InputError(f"{path}:{line}: '{first}' {what}; the first column has each class number once")
        text_of[int(first)] = row[column]
    texts = list(dict.fromkeys(text_of.values()))
    members = [text.split("+") for text in groups] if groups else [[text] for text in texts]
    class_of: dict[str, int] = {}
    for group, names in enumerate(members):
        for name in names:
            if name not in texts:
                raise InputError(f"groups: '{name}' is not in column '{column}' of {path} ({', '.join(texts)})")
            if name in class_of:
                raise InputError(f"groups: '{name}' is in two groups; each text belongs to one")
            class_of[name] = group
    return Groups(str(path), len(members), {number: class_of.get(text, -1) for number, text in text_of.items()})


def to_classes(
    paths: Sequence[str], maps: Array, classes: int | None, ignore: int | None, groups: Groups | None
) -> Classes:
    """Maps `[N, H, W]` of the numbers in files as maps of classes; `paths` are their names in errors.

    Raises:
        InputError: a number that is not a class, with its file and what to do; or there is no labelled pixel.
    """
    used = {int(number) for one in maps for number in np.unique(one)} - {ignore}
    if not used:
        raise InputError(f"{paths[0]}: all pixels of all label maps are {ignore}, which ignore leaves out")
    if groups is not None:
        return _grouped(paths, maps, ignore, groups, used)
    if classes is None:
        highest = max(used)
        if ignore is None and highest in _USUAL_IGNORE and highest - 1 not in used:
            raise InputError(
                f"{_file_with(highest, paths, maps)}: has the class number {highest}, all others are smaller than "
                f"{highest - 1}; set ignore={highest} if it means no class, else classes={highest + 1}"
            )
        classes = highest + 1
    if classes < 1:
        raise InputError(f"classes={classes}: it must be at least 1")
    if unknown := {number for number in used if not 0 <= number < classes}:
        number = min(unknown)
        raise InputError(
            f"{_file_with(number, paths, maps)}: has the class number {number}; classes={classes} allows 0 to "
            f"{classes - 1}; raise it, or set ignore={number} if it means no class"
        )
    return Classes(maps, classes, ignore)


def _grouped(paths: Sequence[str], maps: Array, ignore: int | None, groups: Groups, used: set[int]) -> Classes:
    if unknown := used - set(groups.class_of):
        number = min(unknown)
        raise InputError(
            f"{_file_with(number, paths, maps)}: has the class number {number}, which is not in {groups.source}; "
            f"add it there, or set ignore={number} if it means no class"
        )
    ignored = groups.classes  # ignored pixels get the first number after the classes
    table = np.full(max(used) + 1, ignored, np.min_scalar_type(ignored))
    for number in used:
        table[number] = ignored if groups.class_of[number] < 0 else groups.class_of[number]
    known = maps != ignore if ignore is not None else np.ones(maps.shape, bool)
    return Classes(np.where(known, table[np.where(known, maps, 0)], ignored).astype(table.dtype), ignored, ignored)


def _file_with(number: int, paths: Sequence[str], maps: Array) -> str:
    """The first file that contains a number."""
    return next(path for path, one in zip(paths, maps, strict=True) if (one == number).any())
