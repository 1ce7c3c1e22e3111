"""Stanford Online Products: 120,053 images of 22,634 products, from the published files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from contml._support.validation import check_ranges
from contml.data import Task
from contml.data.text_files import add_once

from .._readers.folders import folder_with
from .._readers.splits import refuse_shared
from .reading import ClassImage, Label, PublishedCounts, number_from_one, published_task, read_rows

#: The published lists are the splits of metric learning.
PUBLISHED = {
    "train": PublishedCounts(59551, 11318, range(1, 11319)),
    "test": PublishedCounts(60502, 11316, range(11319, 22635)),
}
RECALL_AT = (1, 10, 100, 1000)
_COLUMNS = ("image_id", "class_id", "super_class_id", "path")


@check_ranges
def sop(root: str, missing: Literal["refuse", "drop"] = "refuse") -> Task:
    """Read Stanford Online Products: training on 59,551 images of 11,318 products, testing on 60,502 of 11,316.

    The folder is `Stanford_Online_Products`, as in the archive, or its parent folder. `Stanford_Online_Products` holds
    `Ebay_train.txt`, `Ebay_test.txt`, `bicycle_final/111085122871_0.JPG` and so on. Training and test have different
    products. A product has 2 to 12 images.

    Args:
        root: the folder of the data set.
        missing: what to do with missing images or products: "refuse", or "drop" and count them.
    """
    name = "Stanford_Online_Products"
    folder = folder_with(root, "Ebay_train.txt", [name], f"Stanford Online Products, {name}")
    lists = {part: folder / f"Ebay_{part}.txt" for part in PUBLISHED}
    listed = {part: _read(folder, path) for part, path in lists.items()}
    train, test = ([item.label for item in items] for items in listed.values())
    refuse_shared(lists["test"], {"train": train, "test": test}, "product")
    class_names: dict[Label, str] = {item.label: _class_name(item) for items in listed.values() for item in items}
    by_list = {lists[part]: {part: items} for part, items in listed.items()}
    return published_task(by_list, PUBLISHED, missing, class_names, RECALL_AT)


def _read(folder: Path, path: Path) -> list[ClassImage]:
    items: list[ClassImage] = []
    lines: dict[str, int] = {}
    for line, (_, product, _, name) in read_rows(path, _COLUMNS, head=[_COLUMNS]):
        add_once(lines, name, path, line)
        items.append(ClassImage(folder / name, number_from_one(path, line, "class_id", product)))
    return items


def _class_name(item: ClassImage) -> str:
    """Return a name such as "coffee maker 3", from the folder of the image."""
    return f"{item.path.parent.name.removesuffix('_final').replace('_', ' ')} {item.label}"
