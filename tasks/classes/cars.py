"""Cars-196 (Stanford Cars): 16,185 images of 196 car models, from either form of the published files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from contml import InputError
from contml._support.validation import check_ranges
from contml.data import Task

from .._readers.folders import Missing, folder_with
from .._readers.mat import read_mat, read_records
from .reading import ClassImage, Label, LabelKind, PublishedCounts, published_task, split_by_class

#: The splits of metric learning: both official halves together, the first 98 models for training.
PUBLISHED = {"train": PublishedCounts(8054, 98, range(1, 99)), "test": PublishedCounts(8131, 98, range(99, 197))}
#: The K at which the papers report Recall@K.
RECALL_AT = (1, 2, 4, 8, 16, 32)
_ALL_RECORDS, _TEST_RECORDS = "cars_annos.mat", "cars_test_annos_withlabels.mat"
_BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


@check_ranges
def cars(
    root: str, crop_boxes: bool = False, labels: LabelKind = "class", missing: Literal["refuse", "drop"] = "refuse"
) -> Task:
    """Read Cars-196: training on car models 1 to 98 (8,054 images), testing on 99 to 196 (8,131 images).

    The data set was published in two forms. One archive has all images: `cars_annos.mat` and `car_ims/000001.jpg`. Two
    archives have one half each: `cars_train/00001.jpg` and `cars_test/00001.jpg`, with the same names in both. The
    halves also need `devkit/cars_meta.mat`, `devkit/cars_train_annos.mat`, and beside the devkit
    `cars_test_annos_withlabels.mat`. The official halves split within models. Metric learning uses both halves
    together. If both forms exist, the first form is read.

    Args:
        root: the folder of the data set.
        crop_boxes: crop images to the boxes of the cars. The usual protocol uses whole images.
        labels: the labels: "class", the car models; or "year", their model years, from the ends of the models' names.
        missing: what to do with missing images or classes: "refuse", or "drop" and count them. Without
            `cars_test_annos_withlabels.mat`, "drop" uses only the images of `cars_train`.
    """
    path = Path(root).expanduser()
    subfolders = ["cars196", "stanford_cars", "cars", "car_devkit"]
    in_one = any((path / name / _ALL_RECORDS).is_file() for name in ("", *subfolders))
    mark = _ALL_RECORDS if in_one else "devkit"
    folder = folder_with(root, mark, subfolders, "Cars-196, with cars_annos.mat or devkit")
    if in_one:
        source = folder / _ALL_RECORDS
        content = read_mat(source)
        class_names = _class_names(source, content)
        items = _items(source, content, class_names, folder, "relative_im_path")
    else:  # some copies have the devkit in another folder, car_devkit
        images = folder.parent if folder.name == "car_devkit" else folder
        items, class_names, source = _read_devkit(images, folder / "devkit", missing)
    if not crop_boxes:
        items = [item._replace(box=None) for item in items]
    return published_task({source: split_by_class(items, 98)}, PUBLISHED, missing, class_names, RECALL_AT, labels)


def _read_devkit(folder: Path, devkit: Path, missing: Missing) -> tuple[list[ClassImage], dict[Label, str], Path]:
    """Return the items, the class names, and the file that errors name."""
    source = devkit / "cars_meta.mat"
    class_names = _class_names(source, read_mat(source))
    source = devkit / "cars_train_annos.mat"
    items = _items(source, read_mat(source), class_names, _image_folder(folder, "cars_train"), "fname")
    test_records = next((p for p in (folder / _TEST_RECORDS, devkit / _TEST_RECORDS) if p.is_file()), None)
    if test_records is not None:
        items += _items(test_records, read_mat(test_records), class_names, _image_folder(folder, "cars_test"), "fname")
        source = devkit
    elif missing == "refuse":
        problem = "no such file, which has the classes of cars_test (devkit/cars_test_annos.mat does not)"
        hint = "get it, or set missing=drop to use only cars_train"
        raise InputError(str(folder / _TEST_RECORDS), problem, hint=hint)
    return items, class_names, source


def _image_folder(folder: Path, name: str) -> Path:
    """Return a folder of images. Some copies have a folder of the same name inside it."""
    nested = folder / name / name
    return nested if nested.is_dir() else folder / name


def _items(
    path: Path, content: dict[str, Any], class_names: dict[Label, str], folder: Path, file_field: str
) -> list[ClassImage]:
    records = read_records(path, content, "annotations", (file_field, "class", *_BOX))
    items: list[ClassImage] = []
    record_of: dict[Path, int] = {}
    for row, record in enumerate(records, start=1):
        name = np.ravel(record[file_field])
        if name.size != 1 or not isinstance(name[0], str) or not name[0].strip():
            raise InputError(f"{path}: record {row}: {file_field}", str(name.tolist()), "must be a file name")
        # The file stores each number in the smallest possible type. Sums in uint8 would overflow.
        number, x1, y1, x2, y2 = (_whole(path, row, field, record[field]) for field in ("class", *_BOX))
        if number not in class_names:
            where = f"{path}: record {row} ({name[0]}): class"
            raise InputError(where, str(number), f"must be 1 to {len(class_names)}")
        image = folder / name[0].strip()
        if image in record_of:
            raise InputError(f"{path}: record {row}", f"{name[0]} appears twice, first in record {record_of[image]}")
        record_of[image] = row
        # Pixels are counted from 1, and the last one is inside the box.
        items.append(ClassImage(image, number, (x1 - 1, y1 - 1, x2, y2)))
    return items


def _whole(path: Path, row: int, field: str, value: Any) -> int:
    numbers = np.asarray(value).ravel()
    if numbers.size != 1 or numbers.dtype.kind not in "uif" or not float(numbers[0]).is_integer():
        raise InputError(f"{path}: record {row}: {field}", f"{numbers.tolist()!s:.60}", "must be a whole number")
    return int(numbers[0])


def _class_names(path: Path, content: dict[str, Any]) -> dict[Label, str]:
    if "class_names" not in content:
        raise InputError(str(path), f"has no cell array 'class_names' (it has {', '.join(content) or 'nothing'})")
    cells = [np.ravel(cell) for cell in content["class_names"].ravel()]
    if empty := next((number for number, cell in enumerate(cells, start=1) if cell.size != 1), None):
        raise InputError(f"{path}: class_names({empty})", f"{cells[empty - 1].tolist()!s:.60}", "must be a name")
    return {number: str(cell[0]) for number, cell in enumerate(cells, start=1)}
