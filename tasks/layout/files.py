"""Your own label maps: a folder of images, and a map of class numbers for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from contml import InputError
from contml._support.progress import progress_bar
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import ImageFile, Split, Task
from contml.data.decode import LOSSLESS_SUFFIXES
from contml.data.renderers.label_maps import shrink
from contml.data.sources import images_below
from contml.data.tables import read_table
from contml.data.text_files import read_lines
from contml.data.values import whole_number

from .._readers.folders import DiskFiles, data_folder, image_folders, why_absent
from .._readers.label_maps import Array, check_shape, read_groups, read_image_map, to_classes
from .._readers.splits import SplitItems, name_lists, part_of, read_lists, split_by_column, split_by_lists, with_queries
from .split import make_split


@check_ranges
def files(
    root: str,
    pairs: str | None = None,
    images: str | list[str] = "images",
    labels: str = "labels",
    split: str | None = None,
    classes: PositiveInt | None = None,
    ignore: int | None = None,
    names: str | None = None,
    column: str | None = None,
    groups: tuple[str, ...] | None = None,
    side: PositiveInt | None = 112,
    group: str | None = None,
    frame: str | None = None,
    exclude_group: bool = False,
    chunk: PositiveInt | None = None,
    gap: NonNegativeInt = 0,
) -> Task:
    """A folder of images and label maps, one class number per pixel: room surfaces, semantic segmentations.

    Label maps are PNG files, grey (1 to 16 bits) or with a palette. An image and its map have the same name
    (`images/a.jpg` and `labels/a.png`), or a CSV file names them in its columns `image` and `label` (paths in the
    folder). Its optional column `split` holds "train", "val", "test", "query" (a test image that is a query) or
    nothing (the image is not used). A map may have another size than its image, but not another aspect ratio. If no
    queries are named, a fifth of the test images, drawn by their names, are the queries and the rest the gallery.
    Without test images, the validation images are evaluated. Images with at most half of their map labelled are
    excluded and counted.

    Args:
        root: the folder of the data set.
        pairs: the CSV file in `root` that names images and maps; default: they are found by name.
        images: the folder of images in `root`, or a list of folders, if there is no CSV file.
        labels: the folder of label maps in `root`, if there is no CSV file.
        split: lists of image names, with or without folder and suffix: a JSON file with "train", "test" and perhaps
            "val" and "queries", which are part of "test"; or a folder with the text files train.txt, test.txt and
            perhaps val.txt and query.txt. Default: the column "split" of the CSV file.
        classes: the number of classes; default: the highest class number plus one.
        ignore: the class number of ignored pixels, such as 255.
        names: a CSV file in the folder that describes the class numbers in its first column.
        column: the column of that file by which class numbers are grouped: equal values become one class.
        groups: which values of the column are classes, in order; values joined by "+" are one class, all others are
            ignored. Default: every value is a class.
        side: maps are resized to this many pixels square; null: maps are not resized and must all have one size.
        group: the column of `pairs` with the group of an image, such as its video: a validation split that is drawn
            from the training images does not divide a group.
        frame: the column of `pairs` with frame numbers, where no column names the group: images of one split whose
            numbers follow each other are one group.
        exclude_group: exclude the other images of a query's own group from its gallery: neighbouring frames of a video
            would be found too easily.
        chunk: divide each group of a split into chunks of so many images, in the order of their names: of a few long
            videos, each chunk is a group.
        gap: exclude so many images after each chunk, so that the frames nearest to it in time are in no other chunk.
    """
    folder = data_folder(root, "your images and label maps")
    if (names is None) != (column is None) or (groups is not None and column is None):
        raise InputError("names, column and groups", "one without the others", hint="give names and column, or neither")
    if names is not None and classes is not None:
        raise InputError("classes", str(classes), "must be null with names", "the groups are the classes")
    if group is not None and frame is not None:
        raise InputError("group and frame", "both are given", hint="give the column of one of them")
    if (group is not None or frame is not None) and pairs is None:
        raise InputError(
            "group" if frame is None else "frame", "no pairs", hint="set pairs to the CSV file with the column"
        )
    if exclude_group and group is None and frame is None:
        raise InputError("exclude_group", "no group", hint="set group or frame to a column of the CSV file")
    source = folder / (split or pairs or "")
    if chunk is not None and group is None:
        raise InputError("chunk", str(chunk), "must be null without group", "set group to the column of the videos")
    if gap and chunk is None:
        raise InputError("gap", str(gap), "must be 0 without chunk", "set chunk to the number of images of a group")
    if pairs:
        available_pairs = _pairs_by_table(folder / pairs, group or frame)
    elif split:
        available_pairs = _pairs_by_name(image_folders(folder, images), folder / labels)
    else:
        raise InputError("split", "null", hint=f"name the lists of training and test images in {folder}")
    if split:
        parts = _split_by_names(source, available_pairs)
    else:
        parts = split_by_column(source, "split", ((pair, pair.split) for pair in available_pairs))
    in_gap = dict.fromkeys(parts._fields, 0)
    if chunk is not None:
        parts, in_gap = _in_chunks(parts, chunk, gap)
    parts = with_queries(source, parts)
    group_of = _groups_of(parts, runs=frame is not None)
    all_pairs = [pair for part in parts for pair in part]
    grouping = None if names is None else read_groups(folder / names, str(column), groups)
    map_names = [str(pair.label) for pair in all_pairs]
    maps, num_classes, ignore_index = to_classes(map_names, _read_maps(all_pairs, side), classes, ignore, grouping)

    def make(start: int, stop: int, gaps: int, queries: int = 0) -> Split:
        rows = slice(start, stop)
        made = make_split(
            [ImageFile(pair.image) for pair in all_pairs[rows]],
            [str(pair.image) for pair in all_pairs[rows]],
            maps[rows],
            classes=num_classes,
            ignore=ignore_index,
            queries=queries,
            excluded={"between chunks": gaps},
            class_names=() if grouping is None else grouping.names,
        )
        if not group_of:
            return made
        group_names = [group_of[name] for name in made.names]
        group_ids = torch.from_numpy(np.unique(group_names, return_inverse=True)[1])
        title = group or str(frame)
        return replace(
            made,
            groups=group_ids,
            exclude_group=exclude_group,
            group_name=title,
            metadata={title: group_names},
        )

    first_val = len(parts.train)
    first_test = first_val + len(parts.val)
    gaps_of_test = in_gap["queries"] + in_gap["gallery"]
    test = make(first_test, len(all_pairs), gaps_of_test, len(parts.queries)) if parts.queries else None
    train = make(0, first_val, in_gap["train"])
    val_groups = [group_of[name] for name in train.names] if group_of else None
    return Task(train, test, make(first_val, first_test, in_gap["val"]) if parts.val else None, val_groups=val_groups)


def _in_chunks(parts: SplitItems[_Pair], chunk: int, gap: int) -> tuple[SplitItems[_Pair], dict[str, int]]:
    """The pairs in chunks of consecutive images of their groups, and how many of each part are between chunks.

    Args:
        parts: the pairs.
        chunk: the images of a chunk; the last one of a group may have fewer.
        gap: how many images after each chunk are omitted.
    """
    position: dict[_Pair, int] = {}  # in its group, of its split
    for part in (parts.train, parts.val, [*parts.queries, *parts.gallery]):
        seen: dict[str, int] = {}
        for pair in sorted(part, key=lambda pair: _by_numbers(pair.name)):
            position[pair] = seen.get(pair.group, 0)
            seen[pair.group] = position[pair] + 1
    found: dict[str, list[_Pair]] = {name: [] for name in parts._fields}
    for name, part in parts._asdict().items():
        for pair in part:
            number, place = divmod(position[pair], chunk + gap)
            if place < chunk:
                found[name].append(pair._replace(group=f"{pair.group}, images from {number * (chunk + gap)}"))
    omitted = {name: len(part) - len(found[name]) for name, part in parts._asdict().items()}
    return SplitItems(**found), omitted


def _by_numbers(name: str) -> list[tuple[str, int]]:
    """A key that sorts names by the numbers in them: frame_2 is before frame_10."""
    words = re.split(r"([0-9]+)", f"{name}0")
    return [(word, int(number)) for word, number in zip(words[::2], words[1::2], strict=False)]


def _groups_of(parts: SplitItems[_Pair], *, runs: bool) -> dict[str, str]:
    """The group of each image by its path; empty if pairs have none.

    Args:
        parts: the pairs.
        runs: their groups are frame numbers: those of one split that follow each other without a gap are one group.

    Raises:
        InputError: a frame number is none.
    """
    groups: dict[str, str] = {}
    for part in (parts.train, parts.val, [*parts.queries, *parts.gallery]):
        if not runs:
            groups |= {str(pair.image): pair.group for pair in part if pair.group}
            continue
        numbers = {str(pair.image): _frame(pair) for pair in part}
        last, first = -1, -1
        for name, number in sorted(numbers.items(), key=lambda item: item[1]):
            first = first if number - last <= 1 and last >= 0 else number
            groups[name], last = f"frames from {first}", number
    return groups


def _frame(pair: _Pair) -> int:
    number = whole_number(pair.group)
    if number is None:
        raise InputError("frame", f"'{pair.group}'", "must be a whole number, 0 or more", origin=pair.origin)
    return number


def _read_maps(pairs: list[_Pair], side: int | None) -> Array:
    """The label maps `[N, H, W]` of pairs."""
    maps: list[Array] = []
    on_disk = DiskFiles()
    with progress_bar(len(pairs), "label maps") as progress:
        for pair in pairs:
            for file, kind in ((pair.image, "image"), (pair.label, "label map")):
                if not on_disk.has(file):
                    reason = why_absent(file)
                    got = f"no such {kind}{f' ({reason})' if reason else ''}"
                    raise InputError(str(file), got, origin=pair.origin)
            labels = read_image_map(pair.label)
            check_shape(pair.label, labels, pair.image)
            maps.append(shrink(labels, side))
            if maps[-1].shape != maps[0].shape:
                problem, allowed = f"is {list(labels.shape)}", f"{pairs[0].label} is {list(maps[0].shape)}"
                raise InputError(str(pair.label), problem, allowed, "set side, to compare maps of different sizes")
            progress(len(maps))
    return np.stack(maps)


# Pairs


class _Pair(NamedTuple):
    """An image and its label map."""

    name: str  # of the image, in its folder
    image: Path
    label: Path
    split: str | None = None  # None: its file has no such column
    origin: str = ""  # the line of the CSV file that names them, for errors
    group: str = ""  # or the frame number; "": it has none

    def __str__(self) -> str:
        return self.name


def _pairs_by_name(images: Sequence[Path], labels: Path) -> list[_Pair]:
    """The images in folders, each with the map of the same name in `labels`; subfolders have the same names in all.

    Raises:
        InputError: no such folder, no images, or two files of one name.
    """
    for folder in (*images, labels):
        if not folder.is_dir():
            raise InputError(str(folder), "no such folder", hint="images and labels are folders in root")
    maps = _by_stem({labels: [file for file in sorted(labels.rglob("*")) if _is_map(file)]})
    return [
        # A missing map is an error only when it is used: its image may be in none of the lists.
        _Pair(str(path.relative_to(folder)), path, maps[stem][1] if stem in maps else labels / f"{stem}.png")
        for stem, (folder, path) in _by_stem({folder: images_below(folder) for folder in images}).items()
    ]


def _pairs_by_table(path: Path, group: str | None) -> list[_Pair]:
    """The pairs of a CSV file: columns `image` and `label`, paths beside the file, and perhaps `split` and a `group`.

    Raises:
        InputError: no such file, no such columns, an empty cell, or an image twice.
    """
    pairs: list[_Pair] = []
    table, on_disk = read_table(path, option="pairs"), DiskFiles()
    images, labels = table.texts("image", "images"), table.texts("label", "label maps")
    splits = table.texts("split", "the split") if "split" in table else [None] * len(table)
    groups = [""] * len(table) if group is None else table.texts(group, "groups")
    for row, (image, label, split) in enumerate(zip(images, labels, splits, strict=True)):
        if group is not None and not groups[row]:
            raise InputError(f"{table.where(row)}: {group}", "empty", hint="give the group of each image")
        if not image or not label:
            raise InputError(table.where(row), f"no {'label' if image else 'image'}", hint="give both of each pair")
        image_file, label_file = (on_disk.locate([path.parent], name) for name in (image, label))
        pairs.append(_Pair(image, image_file, label_file, split, table.where(row), groups[row]))
    table.refuse_repeated([str(pair.image) for pair in pairs])
    return pairs


def _split_by_names(path: Path, pairs: list[_Pair]) -> SplitItems[_Pair]:
    """The split by lists of image names: a JSON file, or a folder of text files.

    Raises:
        InputError: no such file, other content, a name of no image or of more than one image, or an image twice in
            a list or in train and test.
    """
    pairs_of: dict[str, list[_Pair]] = {}
    for pair in pairs:
        image = Path(pair.name)
        for short_name in {str(image.with_suffix("")), image.name, image.stem} - {pair.name}:
            pairs_of.setdefault(short_name, []).append(pair)
    pairs_of |= {pair.name: [pair] for pair in pairs}  # a full name is unique, even if it is a short name of others

    def found(name: str, part: str) -> _Pair:
        matches = pairs_of.get(name, [])
        if len(matches) != 1:
            problem = f"'{name}' of {part} is {' or '.join(pair.name for pair in matches[:2]) or 'no image'}"
            raise InputError(str(path), problem, "must be the name of one image")
        return matches[0]

    lists = _text_lists(path) if path.is_dir() else read_lists(path, "split")
    return split_by_lists(path, **{part: [found(name, part) for name in names] for part, names in lists.items()})


def _is_map(file: Path) -> bool:
    return file.suffix.lower() in LOSSLESS_SUFFIXES and not file.name.startswith(".")


def _by_stem(paths: Mapping[Path, Sequence[Path]]) -> dict[str, tuple[Path, Path]]:
    """(folder, path) of the files of folders, by relative path without suffix."""
    files: dict[str, tuple[Path, Path]] = {}
    for folder, paths_of_folder in paths.items():
        earlier_stems = set(files)  # of two folders that have a file of this name, the first is used
        for path in paths_of_folder:
            stem = str(path.relative_to(folder).with_suffix(""))
            if stem in earlier_stems:
                continue
            if stem in files:
                problem = f"the same name as {files[stem][1].name}"
                raise InputError(str(path), problem, hint="keep one, or name pairs in a CSV file")
            files[stem] = folder, path
    return files


def _text_lists(folder: Path) -> dict[str, list[str]]:
    """The lists train.txt, val.txt, test.txt and query.txt of a folder."""
    list_files = sorted(file for file in folder.glob("*.txt") if part_of(file.stem))
    return name_lists(folder, {file.stem: [line.strip() for _, line in read_lines(file)] for file in list_files})
