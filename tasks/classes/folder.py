"""Images of one's own in a folder of folders: each folder is a class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from contml import InputError

from .reading import Item, csv_rows, make_split
from .split import ClassSplit

#: What the names of images end in, in small letters.
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jfif")
_LEFT_OUT = "__MACOSX"


class ClassFolder:
    """A folder of folders of images: `ROOT/train/CLASS/a.jpg`, or `ROOT/CLASS/a.jpg` and a rule for the split.

    All images in a class's folder and in folders inside of it are of that class. Hidden files and folders are passed
    over, such as the `._` files that a Mac leaves. For queries and gallery apart, the folders are called `train`,
    `query` and `gallery`; else every test image queries all other test images.

    Args:
        root: the folder.
        split: "folders": it has folders train and test (or query and gallery) with the classes in them; "half": the
            first half of the classes, in the order of their names, is to train on, the rest to test on; or the name of
            a CSV file in the folder with columns "class" and "split" ("train", "test", or nothing to leave it out).
        depth: how many folders, one in the other, name a class: 2 for `ROOT/train/Greek/alpha/a.png`, "Greek/alpha".
    """

    def __init__(self, root: str, split: str = "folders", depth: int = 1) -> None:
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise InputError(f"task.root={root}: no such folder; give the folder of your folders of images")
        if depth < 1:
            raise InputError(f"task.depth={depth}: a class is named by at least 1 folder")
        if split == "folders":
            self.train, self.test = _by_folders(folder, depth)
            return
        found = _classes(folder, depth)
        sides = _by_half(found) if split == "half" else _by_list(folder / split, found, folder)
        self.train, self.test = (
            _make(folder, part, [item for name in names for item in found[name]]) for part, names in sides.items()
        )


def _by_folders(folder: Path, depth: int) -> tuple[ClassSplit, ClassSplit]:
    roles = ("query", "gallery") if (folder / "query").is_dir() else ("test",)
    for name in ("train", *roles):
        if not (folder / name).is_dir():
            there = ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir())[:5]) or "no folder"
            raise InputError(
                f"{folder}: has no folder {name} (it has {there}); make folders train and test, or set task.split to "
                "half or to a CSV file of classes"
            )
    train = [item for items in _classes(folder / "train", depth).values() for item in items]
    test = {role: [i for items in _classes(folder / role, depth).values() for i in items] for role in roles}
    given = None if len(roles) == 1 else [role for role, items in test.items() for _ in items]
    both = [item for items in test.values() for item in items]
    return _make(folder / "train", "train", train), _make(folder / roles[0], "test", both, given)


def _by_half(found: Mapping[str, list[Item]]) -> dict[str, list[str]]:
    names = sorted(found)
    return {"train": names[: len(names) // 2], "test": names[len(names) // 2 :]}


def _by_list(path: Path, found: Mapping[str, list[Item]], folder: Path) -> dict[str, list[str]]:
    sides: dict[str, list[str]] = {"train": [], "test": []}
    columns, rows = csv_rows(path, "task.split is folders, half or the name of a CSV file")
    if missing := [column for column in ("class", "split") if column not in columns]:
        raise InputError(f"{path}: has no column '{missing[0]}'; it needs class and split")
    seen: set[str] = set()
    for line, row in rows:
        name, part = row["class"], row["split"]
        if name not in found:
            raise InputError(f"{path}:{line}: there is no folder {folder / name} of a class")
        if name in seen:
            raise InputError(f"{path}:{line}: the class {name} stands twice")
        if part and part not in sides:
            raise InputError(f"{path}:{line}: split is '{part}'; allowed are train, test and nothing")
        seen.add(name)
        if part:
            sides[part].append(name)
    if forgotten := [name for name in found if name not in seen]:
        raise InputError(
            f"{path}: does not list the class {forgotten[0]} ({len(forgotten)} are not listed); list each, without a "
            "split to leave it out"
        )
    return sides


def _classes(folder: Path, depth: int) -> dict[str, list[Item]]:
    """The images of each class, by the path of its folder."""
    found: dict[str, list[Item]] = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not _passed_over(Path(place), name))
        images = sorted(n for n in files if not n.startswith(".") and n.lower().endswith(ENDINGS))
        parts = Path(place).relative_to(folder).parts
        if len(parts) < depth:
            if images:
                raise InputError(
                    f"{Path(place) / images[0]}: lies in no class's folder; with task.depth={depth} images lie "
                    f"{depth} folders below {folder}"
                )
            continue
        name = "/".join(parts[:depth])
        found.setdefault(name, []).extend(Item(Path(place) / image, name) for image in images)
    for name, items in found.items():
        if not items:
            raise InputError(
                f"{folder / name}: has no image (names end in {', '.join(ENDINGS)}); add some, or take the folder away"
            )
    if not found:
        raise InputError(f"{folder}: has no folders of images, {depth} deep; each class has a folder of its own")
    return found


def _passed_over(place: Path, name: str) -> bool:
    """Whether a folder takes no part: hidden, a Mac's, or a link back to a folder around it."""
    if name.startswith(".") or name == _LEFT_OUT:
        return True
    return (place / name).is_symlink() and place.resolve().is_relative_to((place / name).resolve())


def _make(folder: Path, part: str, items: list[Item], roles: list[str] | None = None) -> ClassSplit:
    classes = {item.label for item in items}
    if len(classes) < 2:
        raise InputError(f"{folder}: has {len(classes)} classes to {part} on; a split needs at least 2")
    return make_split(items, {name: str(name) for name in classes}, roles=roles)
