"""What the readers of class data share: folders, lists, published counts, files on disk, and the split they make."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from contml import InputError
from contml.data import BoxCrop, ImageFile, Split, query_split
from contml.data.renderers.classes import ClassRenderer
from contml.labels import ClassLabels

#: A class as a data set numbers or names it.
Label: TypeAlias = "int | str"
#: Left, top, right, bottom in pixels, counted from the edges of the file's image.
Box: TypeAlias = "tuple[float, float, float, float]"
#: What happens when images or classes are missing.
Missing: TypeAlias = Literal["refuse", "drop"]

_PACKED = (".zip", ".tgz", ".tar", ".tar.gz", ".tar.bz2", ".rar", ".7z")


class Item(NamedTuple):
    """An image file and its class; box: the part of the image to crop to."""

    path: Path
    label: Label
    box: Box | None = None


class Published(NamedTuple):
    """The published size of a split; `ids` are its classes where the numbers have no gaps."""

    images: int
    classes: int
    ids: range | None = None


def data_folder(root: str, mark: str, inside: Sequence[str], what: str) -> Path:
    """The folder that holds the file or folder `mark`: the root, or a folder in it.

    Args:
        root: the folder that the user gave.
        mark: a file or folder that the data set has.
        inside: names of folders in the root that may hold it.
        what: the data set, for errors.

    Raises:
        InputError: there is no such folder, or it has no `mark`; the error names an archive that is not unpacked.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"task.root={root}: no such folder; give the folder of {what}")
    for candidate in (folder, *(folder / name for name in inside)):
        if (candidate / mark).exists():
            return candidate
    raise InputError(f"{folder}: has no {mark}{_not_unpacked(folder)}; give the folder of {what}")


def rows(path: Path, columns: Sequence[str], head: Sequence[Sequence[str]] = ()) -> Iterator[tuple[int, list[str]]]:
    """The rows of a list, split at white space, with their line numbers; empty lines are skipped.

    Args:
        path: the file.
        columns: what a row holds; the last column may contain spaces.
        head: the words of the first lines, which are not rows; "N" means any number.

    Raises:
        InputError: no such file, not text, another head, or a row with too few fields.
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
            raise InputError(f"{path}:{number}: is '{' '.join(found)[:80]}'; line {number} must be {wanted}")
    for number, line in enumerate(lines[len(head) :], start=len(head) + 1):
        fields = line.split(maxsplit=len(columns) - 1)
        if not fields:
            continue
        if len(fields) != len(columns):
            raise InputError(f"{path}:{number}: is '{line.strip()[:80]}'; a row is {' '.join(columns)}")
        fields[-1] = fields[-1].rstrip()
        yield number, fields


def csv_rows(path: Path, option: str, delimiter: str = ",") -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV file, and its rows with their line numbers; fields are stripped of white space.

    Args:
        path: the file.
        option: what to say of the option that names the file, where there is no such file.
        delimiter: the character between fields.

    Raises:
        InputError: there is no such file, or it is not a CSV file in UTF-8.
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
    """A field as a whole number, `least` or more."""
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{path}:{line}: {name} is '{text}'; it must be a whole number, {least} or more")
    return int(text)


def check_counts(
    source: Path, listed: Mapping[str, Sequence[Item]], published: Mapping[str, Published], missing: Missing
) -> None:
    """Compare what a list names with what was published.

    Raises:
        InputError: missing is "refuse" and the counts differ; or a split has fewer than two classes.
    """
    for part, items in listed.items():
        classes = {item.label for item in items}
        wanted = published[part]
        if missing == "refuse" and (len(items), len(classes)) != wanted[:2]:
            absent = [str(number) for number in wanted.ids or () if number not in classes]
            which = f" (without {', '.join(absent[:3])}{', ...' if absent[3:] else ''})" if absent else ""
            raise InputError(
                f"{source}: lists {len(items):,} {part} images of {len(classes):,} classes{which}; the published data "
                f"set has {wanted.images:,} of {wanted.classes:,}; get the list again, or set task.missing=drop to "
                "take what it has"
            )
        if len(classes) < 2:
            raise InputError(f"{source}: lists {len(classes)} {part} classes; a split needs at least 2")


def items_on_disk(source: Path, listed: Mapping[str, Sequence[Item]], missing: Missing) -> dict[str, list[Item]]:
    """The items of each part whose image file is there. Each folder is listed once: 100,000 files take a second.

    Args:
        source: the list, for errors.
        listed: the items of each part.
        missing: "refuse" raises an error when a file is missing; "drop" leaves the item out.

    Raises:
        InputError: a file is missing and that is refused, or a part has fewer than two classes left.
    """
    names_in: dict[Path, set[str]] = {}
    found: dict[str, list[Item]] = {part: [] for part in listed}
    absent: list[Item] = []
    for part, items in listed.items():
        for item in items:
            folder = item.path.parent
            if folder not in names_in:
                names_in[folder] = _names(folder)
            (found[part] if item.path.name in names_in[folder] else absent).append(item)
    too_few = any(len({item.label for item in items}) < 2 for items in found.values())
    if absent and (missing == "refuse" or too_few):
        first = absent[0].path
        total = sum(map(len, listed.values()))
        hint = "" if too_few else ", or set task.missing=drop to leave them out"
        raise InputError(
            f"{first}: no such image ({len(absent):,} of the {total:,} images in {source.name} are missing"
            f"{_reason(first, names_in[first.parent])}); get the missing images{hint}"
        )
    return found


def make_split(
    items: Sequence[Item],
    class_names: Mapping[Label, str],
    *,
    roles: Sequence[str] | None = None,
    recall_at: Sequence[int] | None = None,
    missing: int = 0,
) -> Split:
    """A split of items.

    Args:
        items: the images and their classes.
        class_names: what to call each class.
        roles: "query" or "gallery" for each item; None: every item is a query against all the others.
        recall_at: the K at which papers on the data report Recall@K.
        missing: how many items were left out because they have no image file.
    """
    labels = ClassLabels([item.label for item in items])
    queries, gallery = query_split([row for row, role in enumerate(roles or ()) if role == "query"], len(items))
    return Split(
        images=[ImageFile(item.path) if item.box is None else BoxCrop(item.path, item.box) for item in items],
        names=[str(item.path) for item in items],
        labels=labels,
        queries=queries,
        gallery=gallery,
        recall_at=recall_at,
        excluded={"without an image file": missing} if missing else {},
        renderer=ClassRenderer(labels.class_ids, [class_names[label] for label in labels.names]),
    )


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _reason(path: Path, beside: set[str]) -> str:
    if alike := [name for name in beside if name.lower() == path.name.lower()]:
        return f"; there is a {alike[0]}: upper and lower case differ"
    if beside:
        return ""
    # The highest folder that does not exist, and an archive beside it.
    absent = path.parent
    while not absent.parent.is_dir():
        absent = absent.parent
    return "" if absent.is_dir() else f"; there is no folder {absent}{_not_unpacked(absent.parent)}"


def _not_unpacked(folder: Path) -> str:
    packed = sorted(name for name in _names(folder) if name.lower().endswith(_PACKED) and not name.startswith("."))
    return f"; {packed[0]} is not unpacked" if packed else ""
