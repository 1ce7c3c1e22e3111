"""What the readers of published data sets share: folders, lists, counts held to the published ones, files there."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from contml import InputError

from .split import Box, ClassSplit

#: A class as a data set numbers or names it.
Label: TypeAlias = "int | str"

_PACKED = (".zip", ".tgz", ".tar", ".tar.gz", ".tar.bz2", ".rar", ".7z")


class Item(NamedTuple):
    """An image and its class, as a list says."""

    path: Path
    label: Label
    box: Box | None = None


class Published(NamedTuple):
    """What a split of a data set has, as it was published; `ids` are its classes where they are numbered through."""

    images: int
    classes: int
    ids: range | None = None


def data_folder(root: str, mark: str, inside: Sequence[str], what: str) -> Path:
    """The folder that holds the file or folder `mark`: the root, or a folder of one of these names in it.

    Raises:
        InputError: no such folder, or nothing of that name in it: an archive that is not unpacked is named.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"task.root={root}: no such folder; give the folder of {what}")
    for candidate in (folder, *(folder / name for name in inside)):
        if (candidate / mark).exists():
            return candidate
    raise InputError(f"{folder}: has no {mark}{_not_unpacked(folder)}; give the folder of {what}")


def rows(path: Path, columns: Sequence[str], head: Sequence[Sequence[str]] = ()) -> Iterator[tuple[int, list[str]]]:
    """The rows of a list, split at runs of white space, with their line numbers; empty lines are passed over.

    Args:
        path: the file.
        columns: what a row holds; the last may hold spaces.
        head: the words of its first lines, which are no rows; "N" stands for any number.

    Raises:
        InputError: no such file, not text, another head, or a row of fewer fields.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{_not_unpacked(path.parent)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; get it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    for number, words in enumerate(head, start=1):
        found = lines[number - 1].split() if number <= len(lines) else []
        if ["N" if "N" in words and field.isdecimal() else field for field in found] != list(words):
            wanted = " ".join("a number" if word == "N" else word for word in words)
            raise InputError(f"{path}:{number}: is '{' '.join(found)[:80]}'; the line begins the file with '{wanted}'")
    for number, line in enumerate(lines[len(head) :], start=len(head) + 1):
        fields = line.split(maxsplit=len(columns) - 1)
        if not fields:
            continue
        if len(fields) != len(columns):
            raise InputError(f"{path}:{number}: is '{line.strip()[:80]}'; a row is {' '.join(columns)}")
        fields[-1] = fields[-1].rstrip()
        yield number, fields


def csv_rows(path: Path, option: str, delimiter: str = ",") -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV file, and its rows with their line numbers, fields without white space around them.

    Raises:
        InputError: no such file (`option` is what names it), or not a CSV file in UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {option}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restval="")
    found: list[tuple[int, dict[str, str]]] = []
    try:
        columns = [*(reader.fieldnames or [])]
        for row in reader:
            found.append((reader.line_num, {column: row[column].strip() for column in columns}))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num + 1}: not a row of a CSV file ({error})") from None
    return columns, found


def whole(path: Path, line: int, name: str, text: str, least: int = 1) -> int:
    """A field that is a whole number, from `least` up."""
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{path}:{line}: {name} is '{text}'; it must be a whole number from {least} up")
    return int(text)


def check_counts(
    source: Path, found: Mapping[str, Sequence[Item]], published: Mapping[str, Published], complete: bool
) -> None:
    """Hold what a list names to what was published.

    Raises:
        InputError: complete, and images or classes are missing or too many; or a split of fewer than two classes.
    """
    for part, items in found.items():
        classes = {item.label for item in items}
        wanted = published[part]
        if complete and (len(items), len(classes)) != wanted[:2]:
            absent = [str(number) for number in wanted.ids or () if number not in classes]
            which = f" (no {', '.join(absent[:3])}{', ...' if absent[3:] else ''})" if absent else ""
            raise InputError(
                f"{source}: lists {len(items):,} {part} images of {len(classes):,} classes{which}, "
                f"published are {wanted.images:,} of {wanted.classes:,}; get the list again, or set "
                "task.complete=false to take what it has"
            )
        if len(classes) < 2:
            raise InputError(f"{source}: lists {len(classes)} {part} classes; a split needs at least 2")


def there(source: Path, sides: Mapping[str, Sequence[Item]], complete: bool) -> dict[str, list[Item]]:
    """The items of each part whose files are there; folders are listed once, so that 100,000 files take a second.

    Raises:
        InputError: complete, and a file is missing; or of a part hardly any are there.
    """
    listed: dict[Path, set[str]] = {}
    kept: dict[str, list[Item]] = {part: [] for part in sides}
    missing: list[Item] = []
    for part, items in sides.items():
        for item in items:
            folder = item.path.parent
            if folder not in listed:
                listed[folder] = _names(folder)
            (kept[part] if item.path.name in listed[folder] else missing).append(item)
    scarce = [part for part, items in kept.items() if len({item.label for item in items}) < 2]
    if missing and (complete or scarce):
        first = missing[0].path
        total = sum(map(len, sides.values()))
        what = "complete the copy" + ("" if scarce else ", or set task.complete=false to leave them out")
        raise InputError(
            f"{first}: no such image ({len(missing):,} of the {total:,} in {source.name} are missing"
            f"{_reason(first, listed[first.parent])}); {what}"
        )
    return kept


def make_split(
    items: Sequence[Item],
    class_names: Mapping[Label, str],
    *,
    missing: int = 0,
    roles: Sequence[str] | None = None,
) -> ClassSplit:
    """A split of these items; roles, one an item: "query" or "gallery"."""
    return ClassSplit(
        [item.path for item in items],
        [str(item.path) for item in items],
        [item.label for item in items],
        class_names,
        boxes=[item.box for item in items] if any(item.box for item in items) else None,
        queries=None if roles is None else [row for row, role in enumerate(roles) if role == "query"],
        missing=missing,
    )


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _reason(path: Path, beside: set[str]) -> str:
    if alike := [name for name in beside if name.lower() == path.name.lower()]:
        return f"; there is a {alike[0]}, and upper and lower case differ"
    if beside:
        return ""
    # The highest folder that is not there, and what lies beside it.
    gone = path.parent
    while not gone.parent.is_dir():
        gone = gone.parent
    return "" if gone.is_dir() else f"; there is no folder {gone}{_not_unpacked(gone.parent)}"


def _not_unpacked(folder: Path) -> str:
    packed = sorted(name for name in _names(folder) if name.lower().endswith(_PACKED) and not name.startswith("."))
    return f", but {packed[0]}, which is not unpacked" if packed else ""
