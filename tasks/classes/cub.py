"""CUB-200-2011: 11,788 images of 200 bird species, from the published files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from contml import InputError
from contml.data import Task

from .._readers.folders import folder_with
from .reading import Box, Item, Label, Published, check_counts, items_on_disk, make_split, rows, whole

#: The splits that metric learning uses: the first hundred species for training, the others for testing.
PUBLISHED = {"train": Published(5864, 100, range(1, 101)), "test": Published(5924, 100, range(101, 201))}
_LAST_TRAINING_CLASS = 100


def cub(root: str, crop_boxes: bool = False, missing: Literal["refuse", "drop"] = "refuse") -> Task:
    """CUB-200-2011: birds; training on species 1 to 100 (5,864 images), testing on 101 to 200 (5,924).

    The folder is `CUB_200_2011`, as the archive unpacks, or the one that holds it: `images.txt`,
    `image_class_labels.txt`, `classes.txt`, `images/001.Black_footed_Albatross/NAME.jpg`. `train_test_split.txt` is
    not used: it splits within species.

    Args:
        root: the folder of the data set.
        crop_boxes: crop images to the boxes of the birds (`bounding_boxes.txt`); the usual protocol does not.
        missing: "refuse" raises an error when images or classes are missing; "drop" takes what is there.
    """
    folder = folder_with(root, "images.txt", ["CUB_200_2011"], "CUB-200-2011, CUB_200_2011")
    source = folder / "images.txt"
    names = {image: text for image, (_, text) in _by_image(source, "image_name").items()}
    labels, boxes = _labels(folder / "image_class_labels.txt"), None
    _check_same_images(folder / "image_class_labels.txt", names, labels)
    if crop_boxes:
        boxes = _boxes(folder / "bounding_boxes.txt")
        _check_same_images(folder / "bounding_boxes.txt", names, boxes)
    classes = _classes(folder / "classes.txt")
    items = []
    for image, name in names.items():
        label = labels[image]
        if label not in classes:
            raise InputError(f"{folder / 'classes.txt'}: has no class {label}, the class of image {image} ({name})")
        if name.split("/")[0] != classes[label]:
            raise InputError(
                f"{source}: image {image} is {name}, but its class in image_class_labels.txt is {label}, "
                f"{classes[label]}; the lists are not from the same copy"
            )
        items.append(Item(folder / "images" / name, label, None if boxes is None else boxes[image]))
    listed = {
        "train": [item for item in items if int(item.label) <= _LAST_TRAINING_CLASS],
        "test": [item for item in items if int(item.label) > _LAST_TRAINING_CLASS],
    }
    check_counts(source, listed, PUBLISHED, missing)
    found = items_on_disk(source, listed, missing)
    class_names: dict[Label, str] = {label: name.partition(".")[2].replace("_", " ") for label, name in classes.items()}
    return Task(
        train=make_split(found["train"], class_names, missing=len(listed["train"]) - len(found["train"])),
        test=make_split(found["test"], class_names, missing=len(listed["test"]) - len(found["test"])),
    )


def _by_image(path: Path, column: str) -> dict[int, tuple[int, str]]:
    """A list of image ids and one other column: line and text by image id, whatever the order."""
    found: dict[int, tuple[int, str]] = {}
    for line, (image, text) in rows(path, ["image_id", column]):
        number = whole(path, line, "image_id", image)
        if number in found:
            raise InputError(f"{path}:{line}: image_id {number} appears twice, first in line {found[number][0]}")
        found[number] = line, text
    return found


def _labels(path: Path) -> dict[int, int]:
    found = _by_image(path, "class_id").items()
    return {image: whole(path, line, "class_id", text) for image, (line, text) in found}


def _check_same_images(path: Path, names: Mapping[int, str], other: Mapping[int, object]) -> None:
    if absent := [image for image in names if image not in other]:
        raise InputError(
            f"{path}: has no image {absent[0]} ({names[absent[0]]}); {len(absent):,} of the {len(names):,} images in "
            "images.txt are missing from it; get the list again"
        )
    if unknown := [image for image in other if image not in names]:
        raise InputError(
            f"{path}: has image {unknown[0]}; {len(unknown):,} of its images are not in images.txt; get images.txt "
            "again"
        )


def _classes(path: Path) -> dict[int, str]:
    return {
        whole(path, line, "class_id", number): name for line, (number, name) in rows(path, ["class_id", "class_name"])
    }


def _boxes(path: Path) -> dict[int, Box]:
    boxes: dict[int, Box] = {}
    for image, (line, text) in _by_image(path, "x y width height").items():
        try:
            x, y, width, height = map(float, text.split())
        except ValueError:
            raise InputError(f"{path}:{line}: is '{image} {text}'; a row is image_id x y width height") from None
        boxes[image] = x, y, x + width, y + height
    return boxes
