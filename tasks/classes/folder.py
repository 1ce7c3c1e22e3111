"""Your own images in folders: each folder is a class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from contml import InputError
from contml._support.validation import check_at_least
from contml.data import Split, Task

from .._readers.folders import IMAGE_SUFFIXES, data_folder
from .._readers.text import add_once, read_csv
from .reading import Item, make_split

#: Endings of image names, in lower case.
ENDINGS = (*IMAGE_SUFFIXES, ".ppm", ".pgm", ".jfif")


def folder(root: str, split: str = "folders", depth: int = 1) -> Task:
    """Folders of images: `ROOT/train/CLASS/a.jpg`, or `ROOT/CLASS/a.jpg` and a rule for the split.

    All images in the folder of a class, and in folders inside it, are of that class. Hidden files and folders, and the
    `._` files of macOS, are skipped. For a query set and a gallery, name the folders `train`, `query` and `gallery`;
    otherwise every test image is a query against all other test images.

    Args:
        root: the folder of the data set.
        split: "folders": the folder has train and test (or query and gallery) with the classes in them; "half": the
            first half of the classes, in the order of their names, is for training, the rest for testing; or the name
            of a CSV file in the folder with columns "class" and "split" ("train", "test", or empty: not used).
        depth: the number of nested folders that name a class: 2 for `ROOT/train/Greek/alpha/a.png`, "Greek/alpha".
    """
    path = data_folder(root, "your folders of images")
    check_at_least(1, depth=depth)
    if split == "folders":
        return _split_by_folders(path, depth)
    found = _classes(path, depth)
    names = sorted(found)
    half = len(names) // 2
    parts = [names[:half], names[half:]] if split == "half" else _split_by_list(path / split, found, path)
    train, test = ([item for name in part for item in found[name]] for part in parts)
    return Task(_make_split(path, "train", train), _make_split(path, "test", test))


def _split_by_folders(path: Path, depth: int) -> Task:
    test_folders = ("query", "gallery") if (path / "query").is_dir() else ("test",)
    for name in ("train", *test_folders):
        if not (path / name).is_dir():
            present = ", ".join(sorted(p.name for p in path.iterdir() if p.is_dir())[:5]) or "no folder"
            hint = "make folders train and test, or set split to half or to a CSV file of classes"
            raise InputError(str(path), f"has no folder {name} (it has {present})", hint=hint)
    train = [item for items in _classes(path / "train", depth).values() for item in items]
    test = [(name, i) for name in test_folders for items in _classes(path / name, depth).values() for i in items]
    test_items, roles = [item for _, item in test], [name for name, _ in test]
    test_split = _make_split(path / test_folders[0], "test", test_items, roles)
    return Task(_make_split(path / "train", "train", train), test_split)


def _split_by_list(path: Path, found: Mapping[str, list[Item]], folder: Path) -> list[list[str]]:
    classes: dict[str, list[str]] = {"train": [], "test": [], "": []}
    listed: dict[str, int] = {}
    for line, row in read_csv(path, "split", {"class": "", "split": ""}, uneven=True)[1]:
        name, part = row["class"], row["split"]
        if name not in found:
            raise InputError(f"{path}:{line}", f"the class {name} has no folder {folder / name}")
        add_once(listed, name, path, line)
        if part not in classes:
            raise InputError(f"{path}:{line}: split", f"'{part}'", "must be train, test or empty")
        classes[part].append(name)
    if unlisted := [name for name in found if name not in listed]:
        hint = "list every class, with an empty split for those that are not used"
        raise InputError(str(path), f"does not list the class {unlisted[0]} ({len(unlisted)} such classes)", hint=hint)
    return [classes["train"], classes["test"]]


def _classes(folder: Path, depth: int) -> dict[str, list[Item]]:
    """The images of each class, by the path of its folder."""
    found: dict[str, list[Item]] = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(place), name))
        images = sorted(n for n in files if not n.startswith(".") and n.lower().endswith(ENDINGS))
        parts = Path(place).relative_to(folder).parts
        if len(parts) >= depth:
            name = "/".join(parts[:depth])
            found.setdefault(name, []).extend(Item(Path(place) / image, name) for image in images)
        elif images:
            allowed = f"with depth={depth} images must be {depth} folders below {folder}"
            raise InputError(str(Path(place) / images[0]), "not in the folder of a class", allowed)
    for name, items in found.items():
        if not items:
            allowed = f"names must end in {', '.join(ENDINGS)}"
            raise InputError(str(folder / name), "has no image", allowed, "add images, or remove the folder")
    if not found:
        raise InputError(str(folder), f"has no folders of images, {depth} deep", "each class needs its own folder")
    return found


def _is_skipped(place: Path, name: str) -> bool:
    """Whether a folder is hidden, `__MACOSX`, or a link to a folder that contains it."""
    if name.startswith(".") or name == "__MACOSX":
        return True
    return (place / name).is_symlink() and place.resolve().is_relative_to((place / name).resolve())


def _make_split(path: Path, part: str, items: list[Item], roles: Sequence[str] = ()) -> Split:
    classes = {item.label for item in items}
    if len(classes) < 2:
        raise InputError(str(path), f"has {len(classes)} {part} classes", "must be at least 2")
    return make_split(items, {name: str(name) for name in classes}, roles=roles)
