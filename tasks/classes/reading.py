"""What the readers of class data share: folders, lists, published counts, files on disk, and the split they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from contml import InputError
from contml.data import BoxCrop, ImageFile, Split, query_split
from contml.data.renderers.classes import ClassRenderer
from contml.labels import ClassLabels

from .._readers.folders import Files, Missing, refuse_absent
from .._readers.text import read_lines

#: A class as a data set numbers or names it.
Label: TypeAlias = "int | str"
#: Left, top, right, bottom in pixels, counted from the edges of the file's image.
Box: TypeAlias = "tuple[float, float, float, float]"


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


def rows(path: Path, columns: Sequence[str], head: Sequence[Sequence[str]] = ()) -> Iterator[tuple[int, list[str]]]:
    """The rows of a list, split at white space, with their line numbers; empty lines are skipped.

    Args:
        path: the file.
        columns: what a row holds; the last column may contain spaces.
        head: the words of the first lines, which are not rows; "N" means any number.

    Raises:
        InputError: no such file, not text, another head, or a row with too few fields.
    """
    lines = dict(read_lines(path))
    for number, words in enumerate(head, start=1):
        found = lines.pop(number, "").split()
        if ["N" if "N" in words and field.isdecimal() else field for field in found] != list(words):
            wanted = " ".join("a number" if word == "N" else word for word in words)
            raise InputError(f"{path}:{number}: is '{' '.join(found)[:80]}'; line {number} must be {wanted}")
    for number, line in lines.items():
        fields = line.split(maxsplit=len(columns) - 1)
        if len(fields) != len(columns):
            raise InputError(f"{path}:{number}: is '{line.strip()[:80]}'; a row is {' '.join(columns)}")
        fields[-1] = fields[-1].rstrip()
        yield number, fields


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
                f"set has {wanted.images:,} of {wanted.classes:,}; get the list again, or set missing=drop to "
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
    on_disk = Files()
    found = {part: [item for item in items if on_disk.has(item.path)] for part, items in listed.items()}
    absent = [item.path for items in listed.values() for item in items if not on_disk.has(item.path)]
    too_few = any(len({item.label for item in items}) < 2 for items in found.values())
    if missing == "refuse" or too_few:
        refuse_absent(absent, sum(map(len, listed.values())), f"images of {source.name}", can_drop=not too_few)
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
