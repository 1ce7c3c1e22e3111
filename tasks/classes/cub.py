"""CUB-200-2011: 11,788 birds of 200 species, from the published files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contml import InputError

from .reading import Item, Label, Published, check_counts, data_folder, make_split, rows, there, whole
from .split import Box

#: The splits of metric learning: the first hundred species to train on, the others to test on.
PUBLISHED = {"train": Published(5864, 100, range(1, 101)), "test": Published(5924, 100, range(101, 201))}
_LAST = 100


class CUB:
    """CUB-200-2011: birds; species 1 to 100 to train on (5,864 images), 101 to 200 to test on (5,924).

    The folder is `CUB_200_2011`, as the archive unpacks, or the one that holds it: `images.txt`,
    `image_class_labels.txt`, `classes.txt`, `images/001.Black_footed_Albatross/NAME.jpg`. `train_test_split.txt`, which
    splits within species, is not used.

    Args:
        root: the folder of the data set.
        crop_boxes: cut images to the birds' boxes (`bounding_boxes.txt`); the usual protocol does not.
        complete: refuse to start when images or classes are missing; false takes what is there.
    """

    def __init__(self, root: str, crop_boxes: bool = False, complete: bool = True) -> None:
        what = "CUB-200-2011, CUB_200_2011"
        folder = data_folder(root, "images.txt", ["CUB_200_2011"], what)
        source = folder / "images.txt"
        names = {image: text for image, (_, text) in _by_image(source, "image_name").items()}
        labels, boxes = _labels(folder / "image_class_labels.txt"), None
        _check_joined(folder / "image_class_labels.txt", names, labels)
        if crop_boxes:
            boxes = _boxes(folder / "bounding_boxes.txt")
            _check_joined(folder / "bounding_boxes.txt", names, boxes)
        classes = _classes(folder / "classes.txt")
        items = []
        for image, name in names.items():
            label = labels[image]
            if label not in classes:
                raise InputError(f"{folder / 'classes.txt'}: has no class {label}, but image {image} is of it ({name})")
            if name.split("/")[0] != classes[label]:
                raise InputError(
                    f"{source}: image {image} is {name}, but of class {label}, {classes[label]}, as "
                    "image_class_labels.txt says; the lists are not of one copy"
                )
            items.append(Item(folder / "images" / name, label, None if boxes is None else boxes[image]))
        sides = {
            "train": [item for item in items if int(item.label) <= _LAST],
            "test": [item for item in items if int(item.label) > _LAST],
        }
        check_counts(source, sides, PUBLISHED, complete)
        kept = there(source, sides, complete)
        named: dict[Label, str] = {label: name.partition(".")[2].replace("_", " ") for label, name in classes.items()}
        self.train, self.test = (
            make_split(kept[part], named, missing=len(items) - len(kept[part])) for part, items in sides.items()
        )


def _by_image(path: Path, column: str) -> dict[int, tuple[int, str]]:
    """A list of image ids and something else, with its line: by image id, not by place."""
    found: dict[int, tuple[int, str]] = {}
    for line, (image, text) in rows(path, ["image_id", column]):
        number = whole(path, line, "image_id", image)
        if number in found:
            raise InputError(f"{path}:{line}: image_id {number} stands in line {found[number][0]} as well")
        found[number] = line, text
    return found


def _labels(path: Path) -> dict[int, int]:
    found = _by_image(path, "class_id").items()
    return {image: whole(path, line, "class_id", text) for image, (line, text) in found}


def _check_joined(path: Path, names: Mapping[int, str], other: Mapping[int, object]) -> None:
    if lacking := [image for image in names if image not in other]:
        raise InputError(
            f"{path}: has no image {lacking[0]} ({names[lacking[0]]}), one of {len(lacking):,} that it lacks of the "
            f"{len(names):,} in images.txt; get the list again"
        )
    if beyond := [image for image in other if image not in names]:
        raise InputError(
            f"{path}: has image {beyond[0]}, one of {len(beyond):,} that images.txt lacks; get images.txt again"
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
