"""In-Shop Clothes Retrieval (DeepFashion): 52,712 photographs of 7,982 garments, from the published files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from contml import InputError

from .reading import Item, Label, Published, check_counts, data_folder, make_split, rows, there

#: The list is the split of metric learning; queries and gallery are of the same garments.
PUBLISHED = {"train": Published(25882, 3997), "query": Published(14218, 3985), "gallery": Published(12612, 3985)}
_LIST = "list_eval_partition.txt"
_COLUMNS = ("image_name", "item_id", "evaluation_status")


class InShop:
    """In-Shop Clothes Retrieval: 25,882 images to train on; 14,218 queries are searched among 12,612 of a gallery.

    The folder holds `Eval/list_eval_partition.txt` and, unpacked, `Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg`
    and so on; the list and `img` side by side, with no folders around them, do as well. Some garments to train on
    have one image.

    Args:
        root: the folder of the data set.
        images: the tree of images: "img" (256 pixels) or "img_highres".
        complete: refuse to start when images or garments are missing; false takes what is there.
    """

    def __init__(self, root: str, images: Literal["img", "img_highres"] = "img", complete: bool = True) -> None:
        what = "In-Shop Clothes Retrieval, with Eval and Img"
        given = Path(root).expanduser()
        mark = _LIST if (given / _LIST).is_file() else f"Eval/{_LIST}"
        folder = data_folder(root, mark, ["In-shop Clothes Retrieval Benchmark", "inshop", "Inshop_Clothes"], what)
        source = folder / mark
        trees = folder if (folder / images).is_dir() else folder / "Img"
        sides = _read(source, trees / images, complete)
        if shared := {i.label for i in sides["train"]} & {i.label for i in sides["query"] + sides["gallery"]}:
            raise InputError(
                f"{source}: {len(shared):,} garments are to train on and to test on, id_{min(shared):08d} first; as "
                "it was published there are none"
            )
        check_counts(source, sides, PUBLISHED, complete)
        kept = there(source, sides, complete)
        missing = {part: len(items) - len(kept[part]) for part, items in sides.items()}
        names: dict[Label, str] = {item.label: _name(item) for items in sides.values() for item in items}
        self.train = make_split(kept["train"], names, missing=missing["train"])
        self.test = make_split(
            kept["query"] + kept["gallery"],
            names,
            roles=["query"] * len(kept["query"]) + ["gallery"] * len(kept["gallery"]),
            missing=missing["query"] + missing["gallery"],
        )
        self.test.recall_at = (1, 10, 20, 30, 40, 50)


def _read(path: Path, tree: Path, complete: bool) -> dict[str, list[Item]]:
    sides: dict[str, list[Item]] = {part: [] for part in PUBLISHED}
    lines: dict[str, int] = {}
    for line, (name, garment, status) in rows(path, _COLUMNS, head=[["N"], _COLUMNS]):
        if name in lines:
            raise InputError(f"{path}:{line}: {name} stands in line {lines[name]} as well")
        lines[name] = line
        if not re.fullmatch(r"id_\d{8}", garment):
            raise InputError(f"{path}:{line}: item_id is '{garment}'; it must be id_ and eight digits")
        if status not in sides:
            raise InputError(f"{path}:{line}: evaluation_status is '{status}'; allowed are {', '.join(sides)}")
        if not name.startswith("img/"):
            raise InputError(f"{path}:{line}: image_name is '{name}'; it must begin with img/")
        sides[status].append(Item(tree / name.removeprefix("img/"), int(garment.removeprefix("id_"))))
    with path.open(encoding="utf-8-sig") as file:
        announced = int(file.readline())
    if complete and announced != len(lines):
        raise InputError(
            f"{path}: announces {announced:,} images in its first line and lists {len(lines):,}; get it again"
        )
    return sides


def _name(item: Item) -> str:
    """Such as "women dresses 2", from the folders of the image."""
    *_, gender, category, _, _ = ("", "", *item.path.parts)
    return f"{gender.lower()} {category.lower().replace('_', ' ')} {item.label}"
