"""Anyone's label maps: a folder of images with a map of class numbers for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar

from .class_numbers import read_groups, to_classes
from .maps import check_shape, read_image_map, shrink
from .pairs import Pair, listed_split, pairs_by_name, pairs_by_table, split_by_column
from .split import LabelMapSplit


class LabelMaps:
    """A folder of images and of label maps, one class number a pixel: room surfaces, semantic segmentations.

    Maps are grey (1 to 16 bits) or palette PNG files. They belong to images by their names (`images/a.jpg` and
    `labels/a.png`), or by a CSV file with columns `image`, `label` (paths in the folder) and perhaps `split` ("train",
    "test", "query" for a test image that queries, or empty to leave it out). A map may have another size than its
    image, not another aspect. Without queries named, the first fifth of the test images query the rest. Images of whose
    map at most half is labelled are dropped and counted.

    Args:
        root: the folder of the data set.
        pairs: the CSV file of images and maps in it; default: they are found by name.
        images: the folder of images in it, where there is no CSV file.
        labels: the folder of label maps in it, where there is no CSV file.
        split: lists of names (of images, with or without folder and suffix): a JSON file with "train", "test" and
            perhaps "queries", a part of "test"; or a folder of text files train.txt, test.txt, query.txt. Default: the
            column "split" of the CSV file.
        classes: how many classes there are; default: as many as the highest number says.
        ignore: the class number of pixels that do not count, such as 255.
        names: a CSV file in the folder that tells of each class number, in its first column, what class it is.
        column: the column of that file to group class numbers by: equal texts become one class.
        groups: which texts of the column are classes, in order; texts joined by "+" are one class, all others are
            ignored. Default: every text is a class.
        side: maps are compared at this many pixels square; null: as they are, all of one size.
    """

    def __init__(
        self,
        root: str,
        pairs: str | None = None,
        images: str = "images",
        labels: str = "labels",
        split: str | None = None,
        classes: int | None = None,
        ignore: int | None = None,
        names: str | None = None,
        column: str | None = None,
        groups: tuple[str, ...] | None = None,
        side: int | None = 112,
    ) -> None:
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise InputError(f"task.root={root}: no such folder; give the folder of your images and label maps")
        if (names is None) != (column is None) or (groups is not None and column is None):
            raise InputError("task.names, task.column and task.groups go together: a CSV file, its column, its texts")
        if names is not None and classes is not None:
            raise InputError("task.classes goes without task.names: the groups say how many classes there are")
        if side is not None and side < 1:
            raise InputError(f"task.side={side}: it must be at least 1 pixel, or null")
        if pairs:
            found = pairs_by_table(folder / pairs)
            parts = listed_split(folder / split, found) if split else split_by_column(folder / pairs, found)
        else:
            if split is None:
                raise InputError(f"{folder}: nothing says what is for training; name lists with task.split")
            parts = listed_split(folder / split, pairs_by_name(folder / images, folder / labels))
        train, test = parts["train"], parts["query"] + parts["test"]
        maps = []
        with progress_bar(len(train + test), "label maps") as progress:
            for pair in train + test:
                maps.append(_read(pair, side))
                progress(len(maps))
        if odd := [k for k, one in enumerate(maps) if one.shape != maps[0].shape]:
            raise InputError(
                f"{(train + test)[odd[0]].label}: is {list(maps[odd[0]].shape)}, {train[0].label} is "
                f"{list(maps[0].shape)}; maps of several sizes are compared at one: set task.side"
            )
        paths = [str(pair.label) for pair in train + test]
        table = None if names is None else read_groups(folder / names, str(column), groups)
        numbers = to_classes(paths, np.stack(maps), classes, ignore, table)

        def make(members: list[Pair], first: int, queries: int) -> LabelMapSplit:
            return LabelMapSplit(
                [pair.image for pair in members],
                [str(pair.image) for pair in members],
                numbers.maps[first : first + len(members)],
                queries,
                classes=numbers.classes,
                ignore=numbers.ignore,
            )

        self.train = make(train, 0, 0)
        self.test = make(test, len(train), len(parts["query"]))


def _read(pair: Pair, side: int | None) -> np.ndarray[tuple[int, ...], np.dtype[np.integer]]:
    if not pair.image.is_file():
        raise InputError(f"{pair.image}: no such image{pair.origin}")
    if not pair.label.is_file():
        raise InputError(f"{pair.label}: no such label map{pair.origin}")
    labels = read_image_map(pair.label)
    check_shape(pair.label, labels, pair.image)
    return shrink(labels, side)
