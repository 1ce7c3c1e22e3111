"""Your own images in folders: each folder is a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from contml import InputError
from contml._support.progress import note
from contml._support.validation import PositiveInt, check_ranges
from contml.data import Split, Task
from contml.data.decode import FORMAT_NAMES
from contml.data.sources import images_among, skipped_text, walk
from contml.data.tables import TableOptions, read_table

from .._readers.folders import data_folder
from .._readers.splits import TEST_PARTS, part_of, parts_of
from .reading import ClassImage, half_of_classes, make_split, names_alike


@check_ranges
def folder(root: str, split: str = "folders", depth: PositiveInt = 1) -> Task:
    """Folders of images: `ROOT/train/CLASS/a.jpg`, or `ROOT/CLASS/a.jpg` and a rule for the split.

    All images in the folder of a class, and in folders inside it, are of that class. Hidden files and folders, and the
    `._` files of macOS, are skipped. For a query set and a gallery, name the folders `train`, `query` and `gallery`;
    otherwise every test image is a query against all other test images. Without test images, the validation images are
    evaluated.

    Args:
        root: the folder of the data set.
        split: "folders": the folder has train, val and test (or query and gallery) with the classes in them; test or
            val may be absent; "half": about half of the classes are drawn by their names for training, the rest is
            for testing; or the name of a CSV file in the folder with columns "class" and "split" ("train", "val",
            "test", or empty: not used).
        depth: the number of nested folders that name a class: 2 for `ROOT/train/Greek/alpha/a.png`, "Greek/alpha".
    """
    path = data_folder(root, "your folders of images")
    if split == "folders":
        return _split_by_folders(path, depth)
    items_by_class = _classes(path, depth)
    part_by_class = (
        half_of_classes(sorted(items_by_class))
        if split == "half"
        else _listed_parts(path / split, items_by_class, path)
    )
    items = {
        part: [item for name in sorted(items_by_class) if part_by_class[name] == part for item in items_by_class[name]]
        for part in dict.fromkeys(("train", *part_by_class.values()))
        if part
    }
    classes = Counter(part for part in part_by_class.values() if part)
    counts = ", ".join(f"{count:,} {part}" for part, count in sorted(classes.items()))
    prefix = "drawn by their names: " if split == "half" else ""
    splits = {part: _make_split(path, part, items[part]) for part in items}
    summary = [("classes", f"{prefix}{counts}"), *names_alike(items_by_class)]
    return Task(splits["train"], splits.get("test"), splits.get("val"), summary=summary)


def _split_by_folders(path: Path, depth: int) -> Task:
    folders: dict[str, Path] = {}
    folder_names = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    for name in folder_names:
        if part := part_of(name):
            if part in folders:
                hint = "keep one of them"
                raise InputError(str(path), f"the folders {folders[part].name} and {name} are both {part}", hint=hint)
            folders[part] = path / name
    test_parts = [part for part in (("query", "gallery") if "query" in folders else TEST_PARTS) if part in folders]
    needed = ["train", *(["query", "gallery"] if "query" in folders else ["test"] if "val" not in folders else [])]
    for part in needed:
        if part not in folders and not (part == "test" and test_parts):
            names = ", ".join(folder_names[:5]) or "no folder"
            hint = "make folders train and test (or val), or set split to half or to a CSV file of classes"
            raise InputError(str(path), f"has no folder {part} (it has {names})", hint=hint)

    class_names: dict[str, None] = {}

    def make(part: str, folders_of: Sequence[str]) -> Split:
        classes = {name: _classes(folders[name], depth) for name in folders_of}
        class_names.update(dict.fromkeys(label for items in classes.values() for label in items))
        pairs = [(name, item) for name in folders_of for items in classes[name].values() for item in items]
        return _make_split(folders[folders_of[0]], part, [item for _, item in pairs], [name for name, _ in pairs])

    test = make("test", test_parts) if test_parts else None
    val = make("val", ["val"]) if "val" in folders else None
    return Task(make("train", ["train"]), test, val, summary=names_alike(class_names))


def _listed_parts(path: Path, found: Mapping[str, list[ClassImage]], folder: Path) -> dict[str, str]:
    """The part of each class, by a CSV file."""
    table = read_table(path, TableOptions(missing_words=[]), option="split")
    names = table.texts("class", "the folders of the classes")
    for row, name in enumerate(names):
        if name not in found:
            raise InputError(table.where(row), f"the class {name} has no folder {folder / name}")
    table.refuse_repeated(names)
    parts = parts_of(table.texts("split", "the split"), table.where, path, "split")
    listed = set(names)
    if unlisted := [name for name in found if name not in listed]:
        hint = "list every class, with an empty split for those that are not used"
        raise InputError(str(path), f"does not list the class {unlisted[0]} ({len(unlisted)} such classes)", hint=hint)
    return {name: "test" if part in TEST_PARTS else part for name, part in zip(names, parts, strict=True)}


def _classes(folder: Path, depth: int) -> dict[str, list[ClassImage]]:
    """The images of each class, by the path of its folder."""
    items_by_class: dict[str, list[ClassImage]] = {}
    names_by_class: dict[str, list[str]] = {}
    for place, names in walk(folder):
        images, parts = images_among(names), place.relative_to(folder).parts
        if len(parts) >= depth:
            name = "/".join(parts[:depth])
            names_by_class.setdefault(name, []).extend(names)
            items_by_class.setdefault(name, []).extend(ClassImage(place / image, name) for image in images)
        elif images:
            allowed = f"with depth={depth} images must be {depth} folders below {folder}"
            raise InputError(str(place / images[0]), "not in the folder of a class", allowed)
    for name, items in items_by_class.items():
        if not items:
            skipped = skipped_text(names_by_class[name])
            got = f"has no image{f' ({skipped})' if skipped else ''}"
            allowed = f"must hold some ({FORMAT_NAMES})"
            raise InputError(str(folder / name), got, allowed, "add images, or remove the folder")
    if skipped := skipped_text([name for names in names_by_class.values() for name in names]):
        note(f"{folder}: skipped {skipped}")
    if not items_by_class:
        raise InputError(str(folder), f"has no folders of images, {depth} deep", "each class needs its own folder")
    return items_by_class


def _make_split(path: Path, part: str, items: list[ClassImage], roles: Sequence[str] = ()) -> Split:
    classes = {item.label for item in items}
    if len(classes) < 2:
        raise InputError(str(path), f"has {len(classes)} {part} classes", "must be at least 2")
    return make_split(items, {name: str(name) for name in classes}, roles=roles)
