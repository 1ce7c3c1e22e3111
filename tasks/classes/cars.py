"""Cars-196 (Stanford Cars): 16,185 photographs of 196 models, from either form of the published files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from contml import InputError

from .reading import Item, Label, Published, check_counts, data_folder, make_split, there

#: The splits of metric learning: over the official halves together, the first 98 models to train on.
PUBLISHED = {"train": Published(8054, 98, range(1, 99)), "test": Published(8131, 98, range(99, 197))}
_LAST = 98
_OLD, _LABELLED = "cars_annos.mat", "cars_test_annos_withlabels.mat"
_BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


class Cars:
    """Cars-196: models 1 to 98 to train on (8,054 images), 99 to 196 to test on (8,131).

    Two forms of it are about. One archive of all images: `cars_annos.mat` and `car_ims/000001.jpg`. Or two:
    `cars_train/00001.jpg` and `cars_test/00001.jpg` (the same names in both), `devkit/cars_meta.mat`,
    `devkit/cars_train_annos.mat`, and beside the devkit `cars_test_annos_withlabels.mat`. The official halves split
    within models; metric learning takes both together.

    Args:
        root: the folder of the data set.
        layout: "car_ims" is the form of one archive, "devkit" that of two; "auto" takes what is there.
        crop_boxes: cut images to the cars' boxes; the usual protocol does not.
        complete: refuse to start when images or classes are missing; false takes what is there, without
            `cars_test_annos_withlabels.mat` the images of `cars_train` alone.
    """

    def __init__(
        self,
        root: str,
        layout: Literal["auto", "car_ims", "devkit"] = "auto",
        crop_boxes: bool = False,
        complete: bool = True,
    ) -> None:
        what = "Cars-196, with cars_annos.mat or devkit"
        given = Path(root).expanduser()
        marks = {"car_ims": _OLD, "devkit": "devkit"}
        inside = ["cars196", "stanford_cars", "cars", "car_devkit"]
        if layout == "auto":
            layout = "car_ims" if any((given / name / _OLD).is_file() for name in ("", *inside)) else "devkit"
        folder = data_folder(root, marks[layout], inside, what)
        if folder.name == "car_devkit":  # as the archive car_devkit.tgz is unpacked by some
            items, names, source = _new(folder.parent, folder / "devkit", complete)
        else:
            items, names, source = _old(folder) if layout == "car_ims" else _new(folder, folder / "devkit", complete)
        if not crop_boxes:
            items = [item._replace(box=None) for item in items]
        sides = {
            "train": [item for item in items if int(item.label) <= _LAST],
            "test": [item for item in items if int(item.label) > _LAST],
        }
        check_counts(source, sides, PUBLISHED, complete)
        kept = there(source, sides, complete)
        self.train, self.test = (
            make_split(kept[part], names, missing=len(items) - len(kept[part])) for part, items in sides.items()
        )


def _old(folder: Path) -> tuple[list[Item], dict[Label, str], Path]:
    path = folder / _OLD
    found = _load(path)
    names = _class_names(path, found)
    return _items(path, found, names, folder, "relative_im_path"), names, path


def _new(folder: Path, devkit: Path, complete: bool) -> tuple[list[Item], dict[Label, str], Path]:
    names = _class_names(devkit / "cars_meta.mat", _load(devkit / "cars_meta.mat"))
    source = devkit / "cars_train_annos.mat"
    items = _items(source, _load(source), names, _images(folder, "cars_train"), "fname")
    labelled = next((p for p in (folder / _LABELLED, devkit / _LABELLED) if p.is_file()), None)
    if labelled is not None:
        items += _items(labelled, _load(labelled), names, _images(folder, "cars_test"), "fname")
        source = devkit
    elif complete:
        raise InputError(
            f"{folder / _LABELLED}: no such file; it has the models of cars_test, which devkit/cars_test_annos.mat has "
            "not; get it, or set task.complete=false to take cars_train alone"
        )
    return items, names, source


def _images(folder: Path, name: str) -> Path:
    """The folder of images; some copies have it twice, one inside the other."""
    twice = folder / name / name
    return twice if twice.is_dir() else folder / name


def _items(path: Path, found: dict[str, Any], names: dict[Label, str], folder: Path, file: str) -> list[Item]:
    table = found.get("annotations")
    if table is None or table.dtype.names is None:
        raise InputError(f"{path}: has no struct array 'annotations' (it has {', '.join(found) or 'nothing'})")
    if missing := [field for field in (file, "class", *_BOX) if field not in table.dtype.names]:
        raise InputError(f"{path}: its records have no field '{missing[0]}' (they have {', '.join(table.dtype.names)})")
    items: list[Item] = []
    seen: dict[Path, int] = {}
    for row, record in enumerate(table.ravel(), start=1):
        name = record[file].ravel()
        if name.size != 1 or not isinstance(name[0], str) or not name[0].strip():
            raise InputError(f"{path}: record {row}: '{file}' is no name ({name.tolist()})")
        # Every number is of the smallest type that holds it: sums of uint8 would wrap round.
        number, x1, y1, x2, y2 = (_whole(path, row, field, record[field]) for field in ("class", *_BOX))
        if number not in names:
            raise InputError(f"{path}: record {row} ({name[0]}): class is {number}; there are 1 to {len(names)}")
        image = folder / name[0].strip()
        if image in seen:
            raise InputError(f"{path}: record {row}: {name[0]} stands in record {seen[image]} as well")
        seen[image] = row
        # Pixels are counted from 1, and the last one is inside the box.
        items.append(Item(image, number, (x1 - 1, y1 - 1, x2, y2)))
    return items


def _whole(path: Path, row: int, field: str, value: Any) -> int:
    numbers = np.asarray(value).ravel()
    if numbers.size != 1 or numbers.dtype.kind not in "uif" or float(numbers[0]) != int(numbers[0]):
        raise InputError(f"{path}: record {row}: '{field}' is no whole number ({numbers.tolist()})")
    return int(numbers[0])


def _class_names(path: Path, found: dict[str, Any]) -> dict[Label, str]:
    if "class_names" not in found:
        raise InputError(f"{path}: has no cell array 'class_names' (it has {', '.join(found) or 'nothing'})")
    return {number: str(np.ravel(cell)[0]) for number, cell in enumerate(found["class_names"].ravel(), start=1)}


def _load(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat

        found: dict[str, Any] = loadmat(str(path), appendmat=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; the folder of Cars-196 needs it") from None
    except Exception as error:  # on bytes that are not what they seem, scipy raises nearly anything
        raise InputError(f"{path}: not a readable MATLAB file ({' '.join(str(error).split())[:120]})") from None
    return {name: value for name, value in found.items() if not name.startswith("__")}
