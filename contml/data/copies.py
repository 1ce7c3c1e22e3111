"""Images that are the same: a split that divides them finds training images in its test."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contml._support.progress import progress_bar
from contml.data.sources import ImageSource, Stamp, Vector
from contml.data.split import SPLIT_TITLES, Split

#: The last bytes of files of equal size are compared first: of most, these differ.
_LAST = 4096


def stamps_of(sources: Iterable[ImageSource]) -> list[Stamp | None]:
    """Returns the file and the crop of each image; of features, those of their image. None of an image of no file."""
    pictures = (source.picture if isinstance(source, Vector) else source for source in sources)
    return [None if picture is None else picture.stamp for picture in pictures]


def same_images(stamps: Sequence[Stamp | None]) -> list[int]:
    """Returns a number for each image `[N]`, the same for equal crops of files with equal content.

    Files of equal size are compared whole. An image of no file, or of one that cannot be read, equals no other.
    """
    contents = same_files(["" if stamp is None else str(stamp.file) for stamp in stamps])
    numbers: dict[Hashable, int] = {}
    images = (row if stamp is None else (contents[row], stamp.crop) for row, stamp in enumerate(stamps))
    return [numbers.setdefault(image, len(numbers)) for image in images]


def same_files(files: Sequence[str]) -> list[int]:
    """Returns a number for each file `[N]`, the same for files with equal content; "" equals no other."""
    unique = [file for file in dict.fromkeys(files) if file]
    numbers: dict[Hashable, int] = {}
    contents = zip(unique, _contents(unique), strict=True)
    number_of = {file: numbers.setdefault(content, len(numbers)) for file, content in contents}
    return [number_of[file] if file else -1 - row for row, file in enumerate(files)]


def joined(groups: Sequence[str], images: Sequence[int]) -> list[str]:
    """Returns the group of each item `[N]`; groups that share an image are one, with the first of their names.

    Args:
        groups: the group of each item.
        images: a number for each item, the same for equal images.
    """
    parents = {group: group for group in groups}

    def first(group: str) -> str:
        while parents[group] != group:
            parents[group] = group = parents[parents[group]]
        return group

    group_of_image: dict[int, str] = {}
    for group, image in zip(groups, images, strict=True):
        low, high = sorted((first(group), first(group_of_image.setdefault(image, group))))
        parents[high] = low
    return [first(group) for group in groups]


@dataclass(frozen=True)
class Copies:
    """Images that are in the data more than once.

    Attributes:
        items: number of items whose image is that of an earlier item.
        divided: number of items of a split whose image is also in an earlier split, by the names of both splits.
        contradictions: number of images that have different labels.
        example: the names of two items of one of them; None if there are none.
    """

    items: int
    divided: Mapping[tuple[str, str], int]
    contradictions: int
    example: tuple[str, str] | None

    def __str__(self) -> str:
        """One line; empty if no image is repeated."""
        if not self.items:
            return ""
        parts = [_counted(self.items, "item has", "items have") + " the image of another"]
        for (earlier, later), count in self.divided.items():
            is_also = f"{'is' if count == 1 else 'are'} also in the {SPLIT_TITLES[earlier]} split"
            parts.append(f"{count:,} of the {SPLIT_TITLES[later]} split {is_also}")
        if self.example is not None:
            contradictions = _counted(self.contradictions, "image has", "images have")
            parts.append(f"{contradictions} different labels (such as {' and '.join(self.example)})")
        return "; ".join(parts)


def find_copies(splits: Mapping[str, Split]) -> Copies:
    """Compares the images of all splits, and the labels of those that are the same."""
    items = [(name, row) for name, split in splits.items() for row in range(len(split))]
    images = same_images([stamp for split in splits.values() for stamp in stamps_of(split.images)])
    items_of_image: dict[int, list[tuple[str, int]]] = {}
    for image, item in zip(images, items, strict=True):
        items_of_image.setdefault(image, []).append(item)
    repeated = [same for same in items_of_image.values() if len(same) > 1]
    digests: dict[tuple[str, int], str] = {}
    divided: dict[tuple[str, str], int] = {}
    for name, split in splits.items():
        rows = [row for same in repeated for split_name, row in same if split_name == name]
        digests |= zip(((name, row) for row in rows), split.labels[rows].digests() if rows else [], strict=True)
    for same in repeated:
        for number, (later, _) in enumerate(same):
            for earlier in dict.fromkeys(name for name, _ in same[:number] if name != later):
                divided[earlier, later] = divided.get((earlier, later), 0) + 1
    contradictions = [same for same in repeated if len({digests[item] for item in same}) > 1]
    example = None
    if contradictions:
        (name, row), *others = contradictions[0]
        other_name, other_row = next(item for item in others if digests[item] != digests[name, row])
        example = splits[name].name(row), splits[other_name].name(other_row)
    return Copies(sum(len(same) - 1 for same in repeated), divided, len(contradictions), example)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


# -- files -------------------------------------------------------------------------------------------------------------


def _contents(files: Sequence[str]) -> list[Hashable]:
    """What tells the content of each file from that of the others: its size, then its last bytes, then a hash."""
    keys: list[Hashable] = [_size(file) or file for file in files]
    for function in (_last_bytes, _hash):
        rows = _not_unique(keys)
        with progress_bar(len(rows), "comparing image files") as progress:
            for done, row in enumerate(rows, start=1):
                keys[row] = keys[row], function(files[row])
                progress(done)
    return keys


def _not_unique(keys: Sequence[Hashable]) -> list[int]:
    rows_of_key: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of_key.setdefault(key, []).append(row)
    return [row for rows in rows_of_key.values() if len(rows) > 1 for row in rows]


def _size(file: str) -> int:
    """The size of a file in bytes; 0 of anything but a regular file that exists."""
    try:
        status = os.stat(file)  # noqa: PTH116  # a million times
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _last_bytes(file: str) -> Hashable:
    def read(path: Path) -> bytes:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _LAST))
            return stream.read(_LAST)

    return _or_itself(file, read)


def _hash(file: str) -> Hashable:
    def read(path: Path) -> bytes:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest()

    return _or_itself(file, read)


def _or_itself(file: str, read: Callable[[Path], bytes]) -> Hashable:
    try:
        return read(Path(file))
    except OSError:  # it equals no other
        return file
