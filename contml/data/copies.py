"""Images that are the same: a split that divides them finds training images in its test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contml._support.door import opened
from contml._support.errors import InputError
from contml._support.packed_texts import Texts, as_texts
from contml._support.progress import note, progress_bar
from contml.data.draw import Array
from contml.data.sources import ImageFiles, ImageSource, PackedFiles, Vector, Vectors
from contml.data.split import SPLIT_TITLES, Split
from contml.labels.judged import JudgedItems

#: Bytes of a digest.
DIGEST = 16
#: The last bytes of files of equal size are compared first: of most, these differ.
_LAST = 4096
#: Bytes that are read at a time.
_BLOCK = 1 << 20
#: More files than these are compared by their paths alone: reading each would take hours.
MOST_READ = 1_000_000


def same_images(*parts: Sequence[ImageSource]) -> Array:
    """Returns a number for each image `[N]` of all parts, the same for equal crops of files with equal content.

    An image without a file equals no other image. An image whose file is missing equals images of the same path. Of
    more than a million files, only the paths are compared, and this is printed.
    """
    pictures = [part.pictures if isinstance(part, Vectors) else part for part in parts]
    packed = [part for part in pictures if isinstance(part, PackedFiles)]
    if len(packed) == len(parts):
        files = same_files(Texts.concatenated([part.paths for part in packed]))
        if all(isinstance(part, ImageFiles) for part in packed):
            return files
        crops = Texts(crop for part in packed for crop in part.crops()).numbered()[1]
        _, first_rows, ids = np.unique(files * len(files) + crops, return_index=True, return_inverse=True)
        return first_rows[ids]
    sources = [source.picture if isinstance(source, Vector) else source for part in parts for source in part]
    stamps = [None if source is None else source.stamp for source in sources]
    contents = same_files(["" if stamp is None else str(stamp.file) for stamp in stamps]).tolist()
    numbers: dict[Hashable, int] = {}
    images = (row if stamp is None else (contents[row], stamp.crop) for row, stamp in enumerate(stamps))
    return np.array([numbers.setdefault(image, row) for row, image in enumerate(images)], dtype=np.int64)


def same_files(files: Sequence[str]) -> Array:
    """Returns a number for each file `[N]`: the row of the first one with equal content; "" equals no other.

    Files of equal size are compared whole, and files that are missing by their paths; of more than a million files, the
    paths are compared, and this is printed.
    """
    files = as_texts(files)
    paths = files.numbered()[0]
    if int((~files.is_empty).sum()) > MOST_READ:
        note(
            f"more than {MOST_READ:,} image files: they are compared by their paths, not by their content, "
            "so copies of an image may be in training and in test"
        )
        contents = np.arange(len(paths))
    else:
        contents = _compared.first_equal(paths)
    if len(paths) == len(files):
        return contents
    path_ids, numbers = files.numbered()[1], np.arange(len(files))
    first_rows = np.unique(path_ids, return_index=True)[1]
    return np.where(files.is_empty, numbers, first_rows[contents[path_ids]])


class _Compared:
    """Digests of the files that were compared last: a task compares its training images, and then all of them.

    A file is read again if its size or its time of change differs.
    """

    def __init__(self) -> None:
        self.paths = Texts(())
        self.states = np.empty((0, 2), np.int64)  # [P,2]: as `_states`
        self.digests = np.empty((0, 2), "S16")  # [P,2]: of the last bytes, and of the whole file; empty: not read

    def first_equal(self, paths: Texts) -> Array:
        """The row of the first file with equal content, for each of different files `[P]`."""
        states = _states(paths)
        contents, rows = np.arange(len(paths)), np.flatnonzero(states[:, 0] > 0)
        if not len(rows):
            return contents
        digests = np.zeros((len(paths), 2), "S16")
        known = paths.positions(self.paths)
        same = np.flatnonzero(known >= 0)
        same = same[(states[same] == self.states[known[same]]).all(1)]
        digests[same] = self.digests[known[same]]
        keys = states[rows, 0]
        for column in (0, 1):
            _, ids, counts = np.unique(keys, return_inverse=True, return_counts=True)
            alike = counts[ids] > 1  # as far as it is known
            rows, ids = rows[alike], ids[alike]
            found = digests[:, column]
            if column:  # the last bytes of a small file are all
                found[rows] = np.where(states[rows, 0] <= _LAST, digests[rows, 0], found[rows])
            unread = rows[found[rows] == b""].tolist()
            with progress_bar(len(unread), "comparing image files") as progress:
                for done, row in enumerate(unread, start=1):
                    found[row] = digest_of(paths[row], None if column else _LAST)
                    progress(done)
            keys = ids * len(rows) + np.unique(found[rows], return_inverse=True)[1]
        _, first, ids = np.unique(keys, return_index=True, return_inverse=True)
        contents[rows] = rows[first[ids]]
        if len(same) < len(paths):
            self.paths, self.states, self.digests = paths, states, digests
        return contents


_compared = _Compared()


def joined(groups: Sequence[str], images: Array) -> Sequence[str]:
    """Returns the group of each item `[N]`; groups that share an image are one, with the first of their names.

    If that group would have more than half of the items, as where an image stands for all that are missing, groups stay
    as they are: otherwise nothing could be drawn.

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
    pairs = numbers[rows], numbers[images[rows]]
    graph = coo_array((np.ones(len(rows)), pairs), shape=(len(names), len(names)))
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
    """Compares the images of all splits, and the labels of equal images.

    A judged item that is in several splits, as where judgments are divided, is one item; judgments of it differ.
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


def _states(files: Texts) -> Array:
    """Size in bytes and time of change of each file `[N, 2]`; 0 of anything but a regular file.

    Each folder is listed once.
    """
    states, done = np.zeros((len(files), 2), np.int64), 0
    with progress_bar(len(files), "listing image files") as progress:
        for folder, rows, names in files.folders():
            wanted, found = set(names), dict[str, tuple[int, int]]()
            with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:  # there may be no such folder
                for entry in entries:
                    if entry.name in wanted and entry.is_file():
                        status = entry.stat()
                        found[entry.name] = status.st_size, status.st_mtime_ns
            of_names = (found.get(name, (0, 0)) for name in names)
            states[rows] = np.fromiter(of_names, np.dtype((np.int64, 2)), len(names))
            progress(done := done + len(rows))
    return states


def digest_of(file: str, last: int | None = None) -> bytes:
    """A digest of the `last` bytes of a file, or of all; of its path, if it cannot be read: it equals no other."""
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
