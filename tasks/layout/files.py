"""Your own label maps: a folder of images, with a map of class numbers for each."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar
from contml._support.validation import check_at_least
from contml.data import ImageFile, Split, Task
from contml.data.renderers.label_maps import shrink

from .._readers.folders import Files, data_folder, image_folders
from .._readers.splits import with_queries
from .class_numbers import read_groups, to_classes
from .maps import check_shape, read_image_map
from .pairs import Pair, pairs_by_name, pairs_by_table, split_pairs_by_column, split_pairs_by_lists
from .split import make_split

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def files(
    root: str,
    pairs: str | None = None,
    images: str | list[str] = "images",
    labels: str = "labels",
    split: str | None = None,
    classes: int | None = None,
    ignore: int | None = None,
    names: str | None = None,
    column: str | None = None,
    groups: tuple[str, ...] | None = None,
    side: int | None = 112,
) -> Task:
    """A folder of images and label maps, one class number per pixel: room surfaces, semantic segmentations.

    Label maps are PNG files, grey (1 to 16 bits) or with a palette. An image and its map have the same name
    (`images/a.jpg` and `labels/a.png`), or a CSV file names them in its columns `image` and `label` (paths in the
    folder). Its column `split`, if there is one, holds "train", "test", "query" (a test image that is a query) or
    nothing (the image is not used). A map may have another size than its image, but not another aspect ratio. If no
    queries are named, the first fifth of the test images are the queries and the rest the gallery. Images with at most
    half of their map labelled are left out and counted.

    Args:
        root: the folder of the data set.
        pairs: the CSV file in that folder that names images and maps; default: they are found by name.
        images: the folder of images in it, or several, where there is no CSV file.
        labels: the folder of label maps in it, where there is no CSV file.
        split: lists of image names, with or without folder and suffix: a JSON file with "train", "test" and perhaps
            "queries", which are part of "test"; or a folder with the text files train.txt, test.txt and perhaps
            query.txt. Default: the column "split" of the CSV file.
        classes: the number of classes; default: the highest class number plus one.
        ignore: the class number of pixels that do not count, such as 255.
        names: a CSV file in the folder that describes the class numbers in its first column.
        column: the column of that file by which class numbers are grouped: equal texts become one class.
        groups: which texts of the column are classes, in order; texts joined by "+" are one class, all others are
            ignored. Default: every text is a class.
        side: maps are compared at this many pixels square; null: at their own size, which must be the same for all.
    """
    folder = data_folder(root, "your images and label maps")
    if (names is None) != (column is None) or (groups is not None and column is None):
        raise InputError("names, column and groups go together: a CSV file, its column, its texts")
    if names is not None and classes is not None:
        raise InputError("classes goes without names: the groups say how many classes there are")
    if side is not None:
        check_at_least(1, side=side)
    if pairs:
        table = pairs_by_table(folder / pairs)
        source = folder / (split or pairs)
        parts = split_pairs_by_lists(source, table) if split else split_pairs_by_column(source, table)
    elif split:
        source = folder / split
        parts = split_pairs_by_lists(source, pairs_by_name(image_folders(folder, images), folder / labels))
    else:
        raise InputError(f"{folder}: nothing says which images are for training; name lists with split")
    parts = with_queries(source, parts)
    train, test = parts.train, [*parts.queries, *parts.gallery]
    maps = _read_maps([*train, *test], side)
    paths = [str(pair.label) for pair in (*train, *test)]
    grouping = None if names is None else read_groups(folder / names, str(column), groups)
    numbers = to_classes(paths, maps, classes, ignore, grouping)

    def split_of(members: list[Pair], maps: Array, queries: int) -> Split:
        return make_split(
            [ImageFile(pair.image) for pair in members],
            [str(pair.image) for pair in members],
            maps,
            classes=numbers.classes,
            ignore=numbers.ignore,
            queries=queries,
        )

    return Task(
        train=split_of(train, numbers.maps[: len(train)], 0),
        test=split_of(test, numbers.maps[len(train) :], len(parts.queries)),
    )


def _read_maps(pairs: list[Pair], side: int | None) -> Array:
    """The label maps `[N, H, W]` of pairs."""
    maps: list[Array] = []
    on_disk = Files()
    with progress_bar(len(pairs), "label maps") as progress:
        for pair in pairs:
            labels = _read_map(pair, side, on_disk)
            if maps and labels.shape != maps[0].shape:
                raise InputError(
                    f"{pair.label}: is {list(labels.shape)}, {pairs[0].label} is {list(maps[0].shape)}; maps of "
                    "different sizes must be compared at one size: set side"
                )
            maps.append(labels)
            progress(len(maps))
    return np.stack(maps)


def _read_map(pair: Pair, side: int | None, on_disk: Files) -> Array:
    if not on_disk.has(pair.image):
        raise InputError(f"{pair.image}: no such image{pair.origin}")
    if not on_disk.has(pair.label):
        raise InputError(f"{pair.label}: no such label map{pair.origin}")
    labels = read_image_map(pair.label)
    check_shape(pair.label, labels, pair.image)
    return shrink(labels, side)
