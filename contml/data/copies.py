"""Images that appear more than once. A split that divides equal images has training images in its test split."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contml._support.door import opened
from contml._support.errors import InputError
from contml._support.packed_texts import Texts, as_texts
from contml._support.progress import note, progress_bar
from contml.data.draw import Array
from contml.data.sources import ImageSource, Vector
from contml.data.split import SPLIT_TITLES, Split
from contml.data.text_files import escaped, visible
from contml.labels.judged import JudgedItems

#: Bytes of a digest.
DIGEST = 16
#: The last bytes of files of equal size are compared first. In most files they differ.
_LAST = 4096
#: Bytes that are read at a time.
_BLOCK = 1 << 20
#: More files than this number are compared by their paths only, since reading each file would take hours.
MOST_READ = 1_000_000


def same_images(*parts: Sequence[ImageSource]) -> Array:
    """Return a number for each image `[N]` of all parts. Equal crops of files with equal content have the same number.

    An image without a file equals no other image. An image whose file is missing equals images of the same path. If
    there are more than a million files, only the paths are compared, and the command prints a note.
    """
    pictures = (source.picture if isinstance(source, Vector) else source for part in parts for source in part)
    stamps = (None if picture is None else picture.stamp for picture in pictures)
    named = [("", "") if stamp is None else (str(stamp.file), stamp.crop) for stamp in stamps]
    contents = same_files([file for file, _ in named]).tolist()
    numbers: dict[Hashable, int] = {}
    images = ((contents[row], crop) if file else row for row, (file, crop) in enumerate(named))
    return np.array([numbers.setdefault(image, row) for row, image in enumerate(images)], dtype=np.int64)


def same_files(files: Sequence[str]) -> Array:
    """Return a number for each file `[N]`: the row of the first file with equal content. "" equals no other file.

    Files of equal size are compared whole. Files that are missing are compared by their paths. If there are more than a
    million files, only the paths are compared, and the command prints a note.
    """
    files = as_texts(files)
    paths = files.numbered()[0]
    if int((~files.is_empty).sum()) > MOST_READ:
        compared = f"more than {MOST_READ:,} image files: they are compared by their paths, not by their content"
        note(f"{compared}, so copies of an image may be in training and in test")
        contents = np.arange(len(paths))
    else:
        contents = _first_equal(paths)
    if len(paths) == len(files):
        return contents
    path_ids, numbers = files.numbered()[1], np.arange(len(files))
    return np.where(files.is_empty, numbers, np.unique(path_ids, return_index=True)[1][contents[path_ids]])


def _first_equal(paths: Texts) -> Array:
    """Return, for each of P different files, the row of the first file with equal content, `[P]`."""
    sizes = np.fromiter(map(_size, paths), np.int64, len(paths))
    contents, rows = np.arange(len(paths)), np.flatnonzero(sizes > 0)
    keys = sizes[rows]
    for last in (_LAST, None):
        _, ids, counts = np.unique(keys, return_inverse=True, return_counts=True)
        rows, ids = rows[counts[ids] > 1], ids[counts[ids] > 1]
        digests = np.empty(len(rows), f"S{DIGEST}")
        with progress_bar(len(rows), "comparing image files") as progress:
            for place, row in enumerate(rows.tolist()):
                digests[place] = digest_of(paths[row], last)
                progress(place + 1)
        keys = ids * len(rows) + np.unique(digests, return_inverse=True)[1]
    _, first, ids = np.unique(keys, return_index=True, return_inverse=True)
    contents[rows] = rows[first[ids]]
    return contents


def _size(file: str) -> int:
    """Return the bytes of a file. Return 0 if it is not a regular file."""
    try:
        status = os.stat(file)  # noqa: PTH116
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def joined(groups: Sequence[str], images: Array) -> Sequence[str]:
    """Return the group of each item `[N]`. Groups that share an image are joined, and get the first of their names.

    A joined group may have more than half of the items, for example if one placeholder replaces all missing images. In
    this case groups stay as they are. Otherwise no part of the items could be drawn.

    Args:
        groups: the group of each item.
        images: the row of the first item with the same image, for each item.
    """
    rows = np.flatnonzero(images != np.arange(len(images)))
    if not len(rows):
        return groups
    from scipy.sparse import coo_array  # here: importing a loss must stay quick
    from scipy.sparse.csgraph import connected_components

    names, numbers = as_texts(groups).numbered()
    graph = coo_array((np.ones(len(rows)), (numbers[rows], numbers[images[rows]])), shape=(len(names), len(names)))
    _, components = connected_components(graph, directed=False)
    last_to_first = names.order()[::-1]
    first_name = np.empty(len(names), np.int64)  # of each component
    first_name[components[last_to_first]] = last_to_first
    joined_numbers = first_name[components][numbers]
    largest, largest_before = (np.bincount(each).max() for each in (joined_numbers, numbers))
    if largest > max(len(groups) / 2, largest_before) or bool((joined_numbers == numbers).all()):
        return groups
    return names.taken(joined_numbers)


@dataclass(frozen=True)
class Copies:
    """Images that are in the data more than once.

    Attributes:
        items: number of items whose image is also the image of an earlier item.
        divided: number of items of a split whose image is also in an earlier split, by the names of both splits.
        contradictions: number of images that have different labels.
        example: the names of two items with the same image and different labels. None if no image has different labels.
    """

    items: int
    divided: Mapping[tuple[str, str], int]
    contradictions: int
    example: tuple[str, str] | None

    def __str__(self) -> str:
        """Return one line. It is empty if no image is repeated."""
        if not self.items:
            return ""
        parts = [_counted(self.items, "item has", "items have") + " the image of another"]
        for (earlier, later), count in self.divided.items():
            is_also = f"{'is' if count == 1 else 'are'} also in the {SPLIT_TITLES[earlier]} split"
            parts.append(f"{count:,} of the {SPLIT_TITLES[later]} split {is_also}")
        if self.example is not None:
            contradictions = _counted(self.contradictions, "image has", "images have")
            one, other = self.example
            one, other = (one, other) if visible(one) != visible(other) else (escaped(one), escaped(other))
            parts.append(f"{contradictions} different labels (such as {one} and {other})")
        return "; ".join(parts)


def find_copies(splits: Mapping[str, Split]) -> Copies:
    """Compare the images of all splits, and the labels of equal images.

    If judgments are divided between splits, a judged item may be in several splits. It then counts as one item. Judged
    items have no contradictions, since judgments of one item may differ.
    """
    is_judged = any(isinstance(split.labels, JudgedItems) for split in splits.values())
    images = same_images(*(split.images for split in splits.values()))
    starts = np.cumsum([0, *(len(split) for split in splits.values())])
    items_of_image: dict[int, list[tuple[str, int]]] = {}
    for item in np.flatnonzero(np.bincount(images)[images] > 1).tolist():
        part = int(np.searchsorted(starts, item, side="right")) - 1
        name, row = [*splits][part], item - int(starts[part])
        same = items_of_image.setdefault(int(images[item]), [])
        if not (is_judged and any(splits[other].name(n) == splits[name].name(row) for other, n in same)):
            same.append((name, row))
    repeated = [same for same in items_of_image.values() if len(same) > 1]
    digests: dict[tuple[str, int], str] = {}
    divided: dict[tuple[str, str], int] = {}
    for name, split in splits.items():
        rows = [row for same in repeated for split_name, row in same if split_name == name]
        digests |= zip(((name, row) for row in rows), split.labels[rows].digests() if rows else [], strict=True)
    for same in repeated:
        names: dict[str, None] = {}  # of the splits so far
        for later, _ in same:
            for earlier in names:
                if earlier != later:
                    divided[earlier, later] = divided.get((earlier, later), 0) + 1
            names[later] = None
    contradictions = [same for same in repeated if not is_judged and len({digests[item] for item in same}) > 1]
    example = None
    if contradictions:
        (name, row), *others = contradictions[0]
        other_name, other_row = next(item for item in others if digests[item] != digests[name, row])
        example = splits[name].name(row), splits[other_name].name(other_row)
    return Copies(sum(len(same) - 1 for same in repeated), divided, len(contradictions), example)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


# -- files -------------------------------------------------------------------------------------------------------------


def digest_of(file: str, last: int | None = None) -> bytes:
    """Return a digest of the `last` bytes of a file, or of all its bytes.

    If the file cannot be read, return a digest of its path, which equals no other digest.
    """
    content = hashlib.blake2b(digest_size=DIGEST)
    try:
        with opened(Path(file)) as stream:
            if last is not None:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - last))
            while block := stream.read(_BLOCK):
                content.update(block)
    except (OSError, InputError):
        content.update(os.fsencode(file))
    return content.digest()
