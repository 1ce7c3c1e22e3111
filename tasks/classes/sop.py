"""Stanford Online Products: 120,053 photographs of 22,634 things for sale, from the published files."""

from __future__ import annotations

from pathlib import Path

from contml import InputError

from .reading import Item, Label, Published, check_counts, data_folder, make_split, rows, there, whole

#: The lists are the splits of metric learning.
PUBLISHED = {"train": Published(59551, 11318, range(1, 11319)), "test": Published(60502, 11316, range(11319, 22635))}
_COLUMNS = ("image_id", "class_id", "super_class_id", "path")


class SOP:
    """Stanford Online Products: 59,551 images of 11,318 products to train on, 60,502 of 11,316 others to test on.

    The folder is `Stanford_Online_Products`, as the archive unpacks, or the one that holds it: `Ebay_train.txt`,
    `Ebay_test.txt`, `bicycle_final/111085122871_0.JPG` and so on. A product has 2 to 12 images.

    Args:
        root: the folder of the data set.
        complete: refuse to start when images or products are missing; false takes what is there.
    """

    def __init__(self, root: str, complete: bool = True) -> None:
        what = "Stanford Online Products, Stanford_Online_Products"
        folder = data_folder(root, "Ebay_train.txt", ["Stanford_Online_Products"], what)
        sides = {part: _read(folder, folder / f"Ebay_{part}.txt") for part in PUBLISHED}
        twice = {item.label for item in sides["train"]} & {item.label for item in sides["test"]}
        if twice:
            raise InputError(
                f"{folder / 'Ebay_test.txt'}: {len(twice):,} products stand in Ebay_train.txt as well, class_id "
                f"{min(map(int, twice))} first; the two lists have none in common as they were published"
            )
        for part, items in sides.items():
            check_counts(folder / f"Ebay_{part}.txt", {part: items}, PUBLISHED, complete)
        kept = {
            part: there(folder / f"Ebay_{part}.txt", {part: items}, complete)[part] for part, items in sides.items()
        }
        self.train, self.test = (
            make_split(kept[part], {item.label: _name(item) for item in items}, missing=len(items) - len(kept[part]))
            for part, items in sides.items()
        )
        self.test.recall_at = (1, 10, 100, 1000)


def _read(folder: Path, path: Path) -> list[Item]:
    items: list[Item] = []
    lines: dict[str, int] = {}
    for line, (_, product, _, name) in rows(path, _COLUMNS, head=[_COLUMNS]):
        if name in lines:
            raise InputError(f"{path}:{line}: {name} stands in line {lines[name]} as well")
        lines[name] = line
        items.append(Item(folder / name, whole(path, line, "class_id", product)))
    return items


def _name(item: Item) -> str:
    label: Label = item.label
    return f"{item.path.parent.name.removesuffix('_final').replace('_', ' ')} {label}"
