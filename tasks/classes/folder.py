"""Your own images in folders: each folder is a class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from contml import InputError
from contml._support.validation import check_at_least
from contml.data import Split, Task

from .._readers.folders import IMAGE_SUFFIXES, data_folder
from .._readers.text import add_once, read_csv
from .reading import Item, make_split

#: What the names of images end in, in lower case.
ENDINGS = (*IMAGE_SUFFIXES, ".ppm", ".pgm", ".jfif")
_MAC_FOLDER = "__MACOSX"


def folder(root: str, split: str = "folders", depth: int = 1) -> Task:
    """Folders of images: `ROOT/train/CLASS/a.jpg`, or `ROOT/CLASS/a.jpg` and a rule for the split.

    All images in the folder of a class, and in folders inside it, are of that class. Hidden files and folders are
    skipped, such as the `._` files of a Mac. For a query set and a gallery, name the folders `train`, `query` and
    `gallery`; otherwise every test image is a query against all other test images.

    Args:
        root: the folder.
        split: "folders": the folder has train and test (or query and gallery) with the classes in them; "half": the
            first half of the classes, in the order of their names, is for training, the rest for testing; or the name
            of a CSV file in the folder with columns "class" and "split" ("train", "test", or empty to leave it out).
        depth: how many nested folders name a class: 2 for `ROOT/train/Greek/alpha/a.png`, class "Greek/alpha".
    """
    path = data_folder(root, "your folders of images")
    check_at_least(1, depth=depth)
    if split == "folders":
        return _split_by_folders(path, depth)
    found = _classes(path, depth)
    classes = _split_by_half(found) if split == "half" else _split_by_list(path / split, found, path)
    items = {part: [item for name in names for item in found[name]] for part, names in classes.items()}
    return Task(train=_make_split(path, "train", items["train"]), test=_make_split(path, "test", items["test"]))


def _split_by_folders(path: Path, depth: int) -> Task:
    test_folders = ("query", "gallery") if (path / "query").is_dir() else ("test",)
    for name in ("train", *test_folders):
        if not (path / name).is_dir():
            present = ", ".join(sorted(p.name for p in path.iterdir() if p.is_dir())[:5]) or "no folder"
            raise InputError(
                f"{path}: has no folder {name} (it has {present}); make folders train and test, or set split to "
                "half or to a CSV file of classes"
            )
    train = [item for items in _classes(path / "train", depth).values() for item in items]
    test = {name: [i for items in _classes(path / name, depth).values() for i in items] for name in test_folders}
    roles = [name for name, items in test.items() for _ in items] if len(test_folders) == 2 else None
    return Task(
        train=_make_split(path / "train", "train", train),
        test=_make_split(path / test_folders[0], "test", [item for items in test.values() for item in items], roles),
    )


def _split_by_half(found: Mapping[str, list[Item]]) -> dict[str, list[str]]:
    names = sorted(found)
    return {"train": names[: len(names) // 2], "test": names[len(names) // 2 :]}


def _split_by_list(path: Path, found: Mapping[str, list[Item]], folder: Path) -> dict[str, list[str]]:
    classes: dict[str, list[str]] = {"train": [], "test": []}
    listed: dict[str, int] = {}
    for line, row in read_csv(path, "split", {"class": "", "split": ""}, uneven=True)[1]:
        name, part = row["class"], row["split"]
        if name not in found:
            raise InputError(f"{path}:{line}: the class {name} has no folder {folder / name}")
        add_once(listed, name, path, line)
        if part and part not in classes:
            raise InputError(f"{path}:{line}: split is '{part}'; allowed are train, test and an empty field")
        if part:
            classes[part].append(name)
    if unlisted := [name for name in found if name not in listed]:
        raise InputError(
            f"{path}: does not list the class {unlisted[0]} ({len(unlisted)} are not listed); list every class, with "
            "an empty split to leave it out"
        )
    return classes


def _classes(folder: Path, depth: int) -> dict[str, list[Item]]:
    """The images of each class, by the path of its folder."""
    found: dict[str, list[Item]] = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(place), name))
        images = sorted(n for n in files if not n.startswith(".") and n.lower().endswith(ENDINGS))
        parts = Path(place).relative_to(folder).parts
        if len(parts) < depth:
            if images:
                raise InputError(
                    f"{Path(place) / images[0]}: is not in the folder of a class; with depth={depth} images lie "
                    f"{depth} folders below {folder}"
                )
            continue
        name = "/".join(parts[:depth])
        found.setdefault(name, []).extend(Item(Path(place) / image, name) for image in images)
    for name, items in found.items():
        if not items:
            raise InputError(
                f"{folder / name}: has no image (names end in {', '.join(ENDINGS)}); add images, or remove the folder"
            )
    if not found:
        raise InputError(f"{folder}: has no folders of images, {depth} deep; each class has a folder of its own")
    return found


def _is_skipped(place: Path, name: str) -> bool:
    """Whether a folder is hidden, a Mac's, or a link back to a folder that contains it."""
    if name.startswith(".") or name == _MAC_FOLDER:
        return True
    return (place / name).is_symlink() and place.resolve().is_relative_to((place / name).resolve())


def _make_split(path: Path, part: str, items: list[Item], roles: list[str] | None = None) -> Split:
    classes = {item.label for item in items}
    if len(classes) < 2:
        raise InputError(f"{path}: has {len(classes)} {part} classes; a split needs at least 2")
    return make_split(items, {name: str(name) for name in classes}, roles=roles)
