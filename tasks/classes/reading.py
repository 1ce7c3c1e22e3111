"""Functions that readers of class data share: lists of images, published counts, missing files, and the splits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from contml import InputError
from contml.data import BoxCrop, ImageFile, Split, Task, query_split
from contml.data.text_files import read_lines
from contml.data.values import whole_number
from contml.labels import ClassLabels, LabelSpace, NumberLabels

from .._readers.folders import DiskFiles, Missing, refuse_absent

#: The number or the name of a class in a data set.
Label: TypeAlias = "int | str"
#: The kind of label: classes, or the years that end the names of classes.
LabelKind: TypeAlias = Literal["class", "year"]
#: Left, top, right, bottom in pixels, counted from the edges of the file's image.
Box: TypeAlias = "tuple[float, float, float, float]"


class ClassImage(NamedTuple):
    """An image file and its class. `box` is the part of the image to crop to."""

    path: Path
    label: Label
    box: Box | None = None


class PublishedCounts(NamedTuple):
    """The published numbers of images and classes of a part. `ids` are the class numbers, or None if they have gaps."""

    images: int
    classes: int
    ids: range | None = None


def read_rows(
    path: Path, columns: Sequence[str], head: Sequence[Sequence[str]] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Read the rows of a list, split at white space, with their line numbers. Empty lines are skipped.

    Args:
        path: the file.
        columns: the names of the columns. The last column may contain spaces.
        head: the words of the first lines, which are not rows. "N" means any number.

    Raises:
        InputError: the file is missing or not text, its head differs, or a row has too few fields.
    """
    lines = dict(read_lines(path))
    for number, words in enumerate(head, start=1):
        line_words = lines.pop(number, "").split()
        if ["N" if "N" in words and whole_number(field) is not None else field for field in line_words] != list(words):
            expected = " ".join("a number" if word == "N" else word for word in words)
            raise InputError(f"{path}:{number}", f"'{' '.join(line_words)[:80]}'", f"line {number} must be {expected}")
    for number, line in lines.items():
        fields = line.split(maxsplit=len(columns) - 1)
        if len(fields) != len(columns):
            raise InputError(f"{path}:{number}", f"'{line.strip()[:80]}'", f"a row must be {' '.join(columns)}")
        fields[-1] = fields[-1].rstrip()
        yield number, fields


def number_from_one(path: Path, line: int, name: str, text: str) -> int:
    """Return a field as a whole number, 1 or more."""
    number = whole_number(text)
    if not number:
        raise InputError(f"{path}:{line}: {name}", f"'{text}'", "must be a whole number, 1 or more")
    return number


def split_by_class(items: Sequence[ClassImage], last: int) -> dict[str, list[ClassImage]]:
    """Return training items, with classes up to number `last`, and test items, with the other classes."""
    train = [item for item in items if int(item.label) <= last]
    return {"train": train, "test": [item for item in items if int(item.label) > last]}


def _items_on_disk(
    source: Path, listed: Mapping[str, Sequence[ClassImage]], published: Mapping[str, PublishedCounts], missing: Missing
) -> dict[str, list[ClassImage]]:
    """Return the items of each part whose image file exists. Each folder is listed once: 100,000 files take a second.

    Args:
        source: the list, for errors.
        listed: the items of each part.
        published: the published numbers of images and classes of each part.
        missing: what to do with other numbers, or with items without a file: "refuse", or "drop" them.

    Raises:
        InputError: the list is not complete or a file is missing, and `missing` is "refuse"; or a part has fewer than
            two classes left.
    """
    for part, items in listed.items():
        classes = {item.label for item in items}
        expected = published[part]
        if missing == "refuse" and (len(items), len(classes)) != expected[:2]:
            ids = [str(number) for number in expected.ids or () if number not in classes]
            absent_text = f" (without {', '.join(ids[:3])}{', ...' if ids[3:] else ''})" if ids else ""
            problem = f"lists {len(items):,} {part} images of {len(classes):,} classes{absent_text}"
            allowed = f"the published data set has {expected.images:,} of {expected.classes:,}"
            hint = "get the list again, or set missing=drop to use what it has"
            raise InputError(str(source), problem, allowed, hint)
        if len(classes) < 2:
            raise InputError(str(source), f"lists {len(classes)} {part} classes", "must be at least 2")
    on_disk = DiskFiles()
    existing = {part: [item for item in items if on_disk.has(item.path)] for part, items in listed.items()}
    absent = [item.path for items in listed.values() for item in items if not on_disk.has(item.path)]
    too_few = any(len({item.label for item in items}) < 2 for items in existing.values())
    if missing == "refuse" or too_few:
        refuse_absent(absent, sum(map(len, listed.values())), f"images of {source.name}", can_drop=not too_few)
    return existing


def published_task(
    listed: Mapping[Path, Mapping[str, Sequence[ClassImage]]],
    published: Mapping[str, PublishedCounts],
    missing: Missing,
    class_names: Mapping[Label, str],
    recall_at: Sequence[int],
    labels: LabelKind = "class",
) -> Task:
    """Build the task of a published data set, and check for complete lists and files.

    `listed` are the items of each list by part: "train", and "test" or "query" and "gallery".
    """
    found: dict[str, list[ClassImage]] = {}
    for source, items_of in listed.items():
        found |= _items_on_disk(source, items_of, published, missing)
    counts = {part: len(items) for items_of in listed.values() for part, items in items_of.items()}

    def split(parts: Sequence[str], recall_at: Sequence[int] | None = None) -> Split:
        items = [item for part in parts for item in found[part]]
        roles = [part for part in parts for _ in found[part]]
        num_missing = sum(counts[part] for part in parts) - len(items)
        return make_split(items, class_names, roles=roles, recall_at=recall_at, missing=num_missing, labels=labels)

    train, *test = counts
    # A validation split does not divide the classes, if labels are years.
    val_groups = [str(item.label) for item in found[train]] if labels == "year" else None
    return Task(split([train]), split(test, recall_at), val_groups=val_groups)


def make_split(
    items: Sequence[ClassImage],
    class_names: Mapping[Label, str],
    *,
    roles: Sequence[str] = (),
    recall_at: Sequence[int] | None = None,
    missing: int = 0,
    labels: LabelKind = "class",
) -> Split:
    """Build a split of items.

    Args:
        items: the images and their classes.
        class_names: the name of each class.
        roles: "query" for items that are queries; the others are the gallery. Without "query", every item is a query
            for all others.
        recall_at: the K at which papers on the data set report Recall@K.
        missing: number of items that were omitted because they have no image file.
        labels: the kind of label.
    """
    space: LabelSpace = ClassLabels([item.label for item in items])
    if labels == "year":
        years = {label: _year(class_names[label]) for label in sorted({item.label for item in items}, key=str)}
        space = NumberLabels([years[item.label] for item in items], unit="years")
    space = space.with_texts([class_names[item.label] for item in items])
    query_rows = query_split([row for row, role in enumerate(roles) if role == "query"], len(items))
    images = [ImageFile(item.path) if item.box is None else BoxCrop(item.path, item.box) for item in items]
    recall_at = recall_at if labels == "class" else None
    excluded = {"without an image file": missing} if missing else {}
    return Split(images, [str(i.path) for i in items], space, *query_rows, recall_at=recall_at, excluded=excluded)


def _year(name: str) -> int:
    """Return the year that ends the name of a class, as in "Audi S4 Sedan 2012"."""
    last_words = name.split()[-1:]
    if not last_words or not re.fullmatch(r"(1[89]|20)\d\d", last_words[0]):
        raise InputError(f"class {name!r}", "its name does not end with a year", hint="set labels=class")
    return int(last_words[0])
