"""Label maps in files, and splits of images that have label maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml.data import ImageSource, Split, View
from contml.data.decode import from_file, orientation
from contml.data.renderers.labels import LabelMapExplainer, LabelMapRenderer, map_legend
from contml.data.tables import TableOptions, read_table
from contml.data.values import read_image_map as read_image_map, read_map as read_map, whole_number
from contml.labels import SegmentationLabels

from .._readers.splits import kept_split
from .mat import read_variable

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_ROTATED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
#: The aspect ratios of a map and its image may differ by this factor: sizes are rounded, borders are cropped.
_SLACK = 1.04
#: Label maps have up to 16 bits.
_MOST_CLASSES = 1 << 16
#: Numbers that are rarely a class, and often mark pixels without a class.
_USUAL_IGNORE = (255, 65535)
#: Number of maps whose pixels are counted. Share of pixels of a rare number. Share of its pixels between others.
_MOST_CHECKED, _RARE, _NEARLY_ALL = 100, 0.001, 0.9


class Groups(NamedTuple):
    """The class of each number in the files. Class -1 means that the number is ignored."""

    source: str  # the CSV file
    classes: int
    class_of: dict[int, int]
    names: tuple[str, ...]


def read_matlab_map(path: Path, key: str) -> Array:
    """Read one matrix `[H, W]` of a MATLAB file, of any numeric type. `as_whole` converts it to class numbers.

    Raises:
        InputError: the file is missing or not a MATLAB file, or the matrix is missing or not numeric.
    """
    values = np.asarray(read_variable(path, key))
    if values.ndim != 2 or values.dtype.kind not in "buif" or not values.size:
        raise InputError(str(path), f"'{key}' is {values.dtype} {list(values.shape)}", "must be a matrix of numbers")
    return values


def as_whole(path: Path, values: Array) -> Array:
    """Convert a map that MATLAB may have saved as floats to class numbers. NaN becomes 0.

    Raises:
        InputError: the map has numbers that are not whole.
    """
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    filled = np.where(np.isnan(values), 0, values.astype(np.float64))
    if (filled != np.rint(filled)).any() or (np.abs(filled) > np.iinfo(np.int32).max).any():
        raise InputError(str(path), "numbers that are not whole", "must be one class number per pixel")
    return filled.astype(np.int64)


def image_size(path: Path) -> tuple[int, int] | None:
    """Return width and height of an image in pixels, after its EXIF orientation is applied.

    Return None if the header of the file cannot be read.
    """
    try:
        return from_file(path, lambda p: p.size[::-1] if orientation(p) in _ROTATED else p.size)
    except OSError:  # images.broken decides what to do with broken images
        return None


def check_shape(path: Path, labels: Array, image: Path) -> None:
    """Refuse a map whose aspect ratio differs from the aspect ratio of its image.

    The sizes may differ, as both show the whole picture.

    Raises:
        InputError: the aspect ratios differ.
    """
    size = image_size(image)
    if size is not None:
        height, width = labels.shape
        ratio = width * size[1] / (height * size[0])
        if not 1 / _SLACK <= ratio <= _SLACK:
            allowed = f"must have the aspect ratio of its image {image.name}, {size[0]} x {size[1]}"
            raise InputError(str(path), f"{width} x {height} pixels", allowed, "a map covers its whole image")


def read_groups(path: Path, column: str, groups: Sequence[str] | None) -> Groups:
    """Read groups of class numbers from a CSV file: numbers in the first column, texts in another column.

    Args:
        path: the CSV file.
        column: the column of the texts.
        groups: the texts that are classes, in order. "+" joins texts of one class. None: every text is a class.

    Raises:
        InputError: the file or column is missing, a class number is bad or repeated, or a group is not in the column.
    """
    text_of: dict[int, str] = {}
    table = read_table(path, TableOptions(missing_words=[]), option="names")
    numbers = next(iter(table.columns.values())).texts()
    for row, (cell, text) in enumerate(zip(numbers, table.texts(column, "groups", "column"), strict=True)):
        number = whole_number(cell)
        if number is None or number in text_of:
            problem = f"'{cell}' {'is not a class number' if number is None else 'appears twice'}"
            raise InputError(table.where(row), problem, "the first column must have each class number once")
        text_of[number] = text
    texts = list(dict.fromkeys(text_of.values()))
    members = [text.split("+") for text in groups] if groups else [[text] for text in texts]
    class_of: dict[str, int] = {}
    for group, names in enumerate(members):
        for name in names:
            if name not in texts:
                raise InputError("groups", name, f"column '{column}' of {path} has {', '.join(texts)}")
            if name in class_of:
                raise InputError("groups", f"{name} is in two groups", "each text must be in one")
            class_of[name] = group
    class_by_number = {number: class_of.get(text, -1) for number, text in text_of.items()}
    return Groups(str(path), len(members), class_by_number, tuple(" and ".join(names) for names in members))


class MapChecks:
    """Warnings about label maps that are read one after another, for a line of `contml check`."""

    def __init__(self) -> None:
        self._colours: dict[int, tuple[tuple[int, ...], str]] = {}
        self._palettes, self._maps = "", 0
        self._counts = np.zeros((2, _MOST_CLASSES), np.int64)  # pixels of each number, and pixels between two others

    def add(self, path: str, labels: Array, palette: Sequence[int]) -> None:
        """Compare the palette of a map with earlier ones, and count the pixels of the first maps."""
        for number in np.unique(labels).tolist() if palette and not self._palettes else ():
            colour = tuple(palette[3 * number : 3 * number + 3])
            first, other = self._colours.setdefault(number, (colour, path))
            if colour != first:
                by = f"{first} by the palette of {other}, and {colour} by that in {path}"
                self._palettes = f"; class {number} is {by}: numbers are compared, not colours"
        self._maps += 1
        if self._maps <= _MOST_CHECKED:
            values = labels.astype(np.int64)
            around = np.pad(values, 1, "edge")
            rows, columns = around[:, 1:-1], around[1:-1]
            is_between = (values - rows[:-2]) * (rows[2:] - values) > 0
            is_between |= (values - columns[:, :-2]) * (columns[:, 2:] - values) > 0
            for counts, numbers in zip(self._counts, (values.ravel(), values[is_between]), strict=True):
                counts += np.bincount(numbers.clip(0, _MOST_CLASSES - 1), minlength=_MOST_CLASSES)

    def words(self) -> str:
        """Return the warnings, each after a semicolon. Return "" if there are no warnings."""
        pixels, between = self._counts
        rare = (pixels > 0) & (pixels < _RARE * pixels.sum()) & (between > _NEARLY_ALL * pixels)
        if not rare.any():
            return self._palettes
        few = f"{rare.sum():,} class numbers are in few pixels, nearly all between lower and higher numbers"
        return f"{self._palettes}; {few}: interpolation makes these, so resize maps to the nearest pixel"


def to_classes(
    paths: Sequence[str], maps: Array, classes: int | None, ignore: int | None, groups: Groups | None
) -> tuple[Array, int, int | None]:
    """Convert maps `[N, H, W]` of the numbers in files to maps of classes.

    `paths` are the names of the maps in errors.

    Returns:
        The maps of class ids, the number of classes, and the id of ignored pixels.

    Raises:
        InputError: a number is not a class, or there is no labelled pixel. The error names the file and a remedy.
    """

    def unknown(number: int, allowed: str) -> InputError:
        file = next(path for path, labels in zip(paths, maps, strict=True) if (labels == number).any())
        remedy = f"set ignore={number}" if ignore is None else f"write {ignore} in its place"
        return InputError(file, f"class number {number}", allowed, f"{remedy} if it means no class")

    used = {int(number) for labels in maps for number in np.unique(labels)} - {ignore}
    if not used:
        raise InputError("ignore", f"{ignore}, which all pixels of all label maps are", hint=f"see {paths[0]}")
    if groups is not None:
        if invalid_numbers := used - set(groups.class_of):
            raise unknown(min(invalid_numbers), f"must be in {groups.source}")
        ignored = groups.classes  # ignored pixels get the first number after the classes
        sorted_numbers = np.array(sorted(used))
        class_of = np.array([ignored if groups.class_of[n] < 0 else groups.class_of[n] for n in sorted(used)])
        class_maps = np.empty(maps.shape, np.min_scalar_type(ignored))
        for labels, class_map in zip(maps, class_maps, strict=True):  # indices of all maps take much memory
            indices = np.searchsorted(sorted_numbers, labels).clip(max=len(sorted_numbers) - 1)
            class_map[...] = np.where(sorted_numbers[indices] == labels, class_of[indices], ignored)
        return class_maps, ignored, ignored
    if classes is None:
        highest = max(used)
        if highest in _USUAL_IGNORE and highest - 1 not in used:
            others = f"all others are smaller than {highest - 1}"
            raise unknown(highest, f"{others}; set classes={highest + 1} if it is a class")
        if highest >= _MOST_CLASSES:
            raise unknown(highest, f"must be below {_MOST_CLASSES:,}")
        classes = highest + 1
    if classes > _MOST_CLASSES:
        raise InputError("classes", f"{classes:,}", f"must be at most {_MOST_CLASSES:,}")
    if invalid_numbers := {number for number in used if not 0 <= number < classes}:
        raise unknown(min(invalid_numbers), f"must be 0 to {classes - 1} with classes={classes}")
    return maps, classes, ignore


#: The names of the surfaces of a room by their class ids. 0 is unknown.
SURFACES = ("unknown", "frontal wall", "left wall", "right wall", "floor", "ceiling")


def make_split(
    images: Sequence[ImageSource], names: Sequence[str], maps: Array, queries: int, excluded: Mapping[str, int]
) -> Split:
    """Build a split of rooms with the maps of their surfaces.

    Items with at most half of their map known are excluded and counted.

    If more than half of every map is known, any two maps have known pixels in common. Otherwise some label distances
    may not exist.

    Args:
        images: the image of each item.
        names: the name of each item.
        maps: `[N, H, W]`: numbers of `SURFACES`. Pixels with 0 do not count. Each map covers its whole image.
        queries: number of first items that are queries; the others are the gallery. 0: every item is a query.
        excluded: number of items that were excluded before, by reason.

    Raises:
        InputError: no item, or no query, has enough known pixels.
    """
    shares = np.array([np.mean(surfaces > 0) for surfaces in maps])
    kept_rows: list[int] = np.flatnonzero(shares > 0.5).tolist()
    kept_queries = sum(row < queries for row in kept_rows)
    if not kept_rows or (queries and not kept_queries):
        problem = f"{shares[0]:.0%} of its label map is labelled"
        hint = "choose other queries" if kept_rows else ""
        raise InputError(names[0], problem, f"one {'query' if kept_rows else 'item'} must have more than 50%", hint)
    counts = {**excluded, "without enough labelled pixels": len(names) - len(kept_rows)}
    labels = SegmentationLabels(maps[kept_rows], len(SURFACES), 0, side=None)
    labels.part_names = SURFACES
    renderer = LabelMapRenderer(labels, *maps.shape[1:])
    view = View(renderer, map_legend(SURFACES, 0), LabelMapExplainer(renderer))
    return kept_split(images, names, labels, kept_rows, range(kept_queries), counts, view)
