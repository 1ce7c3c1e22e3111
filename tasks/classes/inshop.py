"""In-Shop Clothes Retrieval (DeepFashion): 52,712 images of 7,982 garments, from the published files."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Literal

from contml import InputError
from contml._support.validation import check_ranges
from contml.data import Task
from contml.data.text_files import add_once, read_lines

from .._readers.folders import Missing, folder_with
from .._readers.splits import refuse_shared
from .reading import ClassImage, Label, PublishedCounts, published_task, read_rows

#: The published list is the split of metric learning. Queries and gallery show the same garments.
PUBLISHED = {
    "train": PublishedCounts(25882, 3997),
    "query": PublishedCounts(14218, 3985),
    "gallery": PublishedCounts(12612, 3985),
}
RECALL_AT = (1, 10, 20, 30, 40, 50)
_LIST = "list_eval_partition.txt"
_COLUMNS = ("image_name", "item_id", "evaluation_status")


@check_ranges
def inshop(
    root: str, images: Literal["img", "img_highres"] = "img", missing: Literal["refuse", "drop"] = "refuse"
) -> Task:
    """Read In-Shop Clothes Retrieval: training on 25,882 images; 14,218 queries rank a gallery of 12,612 images.

    The folder holds `Eval/list_eval_partition.txt` and the unpacked images, such as
    `Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg`. The list and `img` may also be directly in the folder. Some
    training garments have one image.

    Args:
        root: the folder of the data set.
        images: the folder of images: "img" (256 pixels) or "img_highres".
        missing: what to do with missing images or garments: "refuse", or "drop" and count them.
    """
    mark = _LIST if (Path(root).expanduser() / _LIST).is_file() else f"Eval/{_LIST}"
    subfolders = ["In-shop Clothes Retrieval Benchmark", "inshop", "Inshop_Clothes"]
    folder = folder_with(root, mark, subfolders, "In-Shop Clothes Retrieval, with Eval and Img")
    source = folder / mark
    parent = folder if (folder / images).is_dir() else folder / "Img"
    listed = _read(source, parent / images, missing)
    train, *test = ([item.label for item in items] for items in listed.values())
    refuse_shared(source, {"train": train, "test": chain(*test)}, "garment")
    class_names: dict[Label, str] = {item.label: _class_name(item) for items in listed.values() for item in items}
    return published_task({source: listed}, PUBLISHED, missing, class_names, RECALL_AT)


def _read(path: Path, images: Path, missing: Missing) -> dict[str, list[ClassImage]]:
    listed: dict[str, list[ClassImage]] = {part: [] for part in PUBLISHED}
    lines: dict[str, int] = {}
    for line, (name, garment, status) in read_rows(path, _COLUMNS, head=[["N"], _COLUMNS]):
        add_once(lines, name, path, line)
        if not re.fullmatch(r"id_\d{8}", garment):
            raise InputError(f"{path}:{line}: item_id", f"'{garment}'", "must be id_ and eight digits")
        if status not in listed:
            raise InputError(f"{path}:{line}: evaluation_status", f"'{status}'", f"must be one of {', '.join(listed)}")
        if not name.startswith("img/"):
            raise InputError(f"{path}:{line}: image_name", f"'{name}'", "must begin with img/")
        listed[status].append(ClassImage(images / name.removeprefix("img/"), int(garment.removeprefix("id_"))))
    count = int(read_lines(path)[0][1])
    if missing == "refuse" and count != len(lines):
        problem = f"lists {len(lines):,} images, but {count:,} according to its first line"
        raise InputError(str(path), problem, hint="get the list again")
    return listed


def _class_name(item: ClassImage) -> str:
    """Return a name such as "women dresses 2", from the folders of the image."""
    *_, gender, category, _, _ = ("", "", *item.path.parts)
    return f"{gender.lower()} {category.lower().replace('_', ' ')} {item.label}"
