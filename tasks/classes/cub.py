"""CUB-200-2011: 11,788 images of 200 bird species, from the published files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from contml import InputError
from contml._support.validation import check_ranges
from contml.data import Task

from .._readers.folders import folder_with
from .reading import Box, ClassImage, Label, PublishedCounts, number_from_one, published_task, read_rows, split_by_class

#: The splits of metric learning: the first hundred species for training, the others for testing.
PUBLISHED = {"train": PublishedCounts(5864, 100, range(1, 101)), "test": PublishedCounts(5924, 100, range(101, 201))}
#: The K at which the papers report Recall@K.
RECALL_AT = (1, 2, 4, 8, 16, 32)


@check_ranges
def cub(root: str, crop_boxes: bool = False, missing: Literal["refuse", "drop"] = "refuse") -> Task:
    """Read CUB-200-2011: birds. Training on species 1 to 100 (5,864 images), testing on 101 to 200 (5,924 images).

    The folder is `CUB_200_2011`, as in the archive, or its parent folder. `CUB_200_2011` holds `images.txt`,
    `image_class_labels.txt`, `classes.txt`, `images/001.Black_footed_Albatross/NAME.jpg`. `train_test_split.txt` is not
    used, because this list splits within species.

    Args:
        root: the folder of the data set.
        crop_boxes: crop images to the boxes of the birds (`bounding_boxes.txt`). The usual protocol uses whole images.
        missing: what to do with missing images or classes: "refuse", or "drop" and count them.
    """
    folder = folder_with(root, "images.txt", ["CUB_200_2011"], "CUB-200-2011, CUB_200_2011")
    source, label_file, class_file = (folder / name for name in ("images.txt", "image_class_labels.txt", "classes.txt"))
    names = {image: text for image, (_, text) in _by_image(source, "image_name").items()}
    lines = _by_image(label_file, "class_id")
    labels = {image: number_from_one(label_file, line, "class_id", text) for image, (line, text) in lines.items()}
    _check_same_images(label_file, names, labels)
    boxes = _boxes(folder / "bounding_boxes.txt", names) if crop_boxes else {}
    rows = read_rows(class_file, ["class_id", "class_name"])
    classes = {number_from_one(class_file, line, "class_id", number): name for line, (number, name) in rows}
    items = []
    for image, name in names.items():
        label = labels[image]
        if label not in classes:
            raise InputError(str(class_file), f"has no class {label}, the class of image {image} ({name})")
        if name.split("/")[0] != classes[label]:
            problem = f"{name}, but image_class_labels.txt gives class {label}, {classes[label]}"
            raise InputError(f"{source}: image {image}", problem, hint="get all lists from one copy")
        items.append(ClassImage(folder / "images" / name, label, boxes.get(image)))
    class_names: dict[Label, str] = {label: name.partition(".")[2].replace("_", " ") for label, name in classes.items()}
    return published_task({source: split_by_class(items, 100)}, PUBLISHED, missing, class_names, RECALL_AT)


def _by_image(path: Path, column: str) -> dict[int, tuple[int, str]]:
    """Read the line and the text of each image id, from a list of image ids and one other column."""
    entries: dict[int, tuple[int, str]] = {}
    for line, (image, text) in read_rows(path, ["image_id", column]):
        number = number_from_one(path, line, "image_id", image)
        if number in entries:
            raise InputError(f"{path}:{line}", f"image_id {number} appears twice, first in line {entries[number][0]}")
        entries[number] = line, text
    return entries


def _check_same_images(path: Path, names: Mapping[int, str], other: Mapping[int, object]) -> None:
    if absent := [image for image in names if image not in other]:
        number = absent[0]
        problem = f"has no image {number} ({names[number]}); lacks {len(absent):,} of {len(names):,} in images.txt"
        raise InputError(str(path), problem, hint="get the list again")
    if unknown := [image for image in other if image not in names]:
        problem = f"has image {unknown[0]}; {len(unknown):,} of its images are not in images.txt"
        raise InputError(str(path), problem, hint="get images.txt again")


def _boxes(path: Path, names: Mapping[int, str]) -> dict[int, Box]:
    boxes: dict[int, Box] = {}
    for image, (line, text) in _by_image(path, "x y width height").items():
        try:
            x, y, width, height = map(float, text.split())
        except ValueError:
            raise InputError(f"{path}:{line}", f"'{image} {text}'", "must be image_id x y width height") from None
        boxes[image] = x, y, x + width, y + height
    _check_same_images(path, names, boxes)
    return boxes
