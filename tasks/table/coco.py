"""The annotation file of a data set in the format of COCO as a table: a row for each image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from contml import InputError
from contml.data.tables import Table, TableOptions, records_table
from contml.data.values import flag

from .._readers.coco import Field, check_coco, listed_images, names_and_limbs
from ..pose.bodies import Body

_FIELDS: dict[str, dict[str, Field]] = {
    "images": {"id": "id", "file_name": "text"},
    "annotations": {"id": "id", "image_id": "id"},
}
#: What COCO says of an image besides its name; other keys of images are columns.
_KNOWN = frozenset(
    ("id", "file_name", "width", "height", "license", "coco_url", "flickr_url", "flickr_640_url", "date_captured")
)
_POSES = "keypoints of several persons in an image, whom pose/coco crops: contml train pose/coco task.root=FOLDER"


def coco_table(path: Path, content: dict[str, Any], options: TableOptions) -> Table:
    """The images of an annotation file, with the labels of their annotations.

    `category` holds the names of the categories of an image, each once; a single one where every image has at most one
    annotation. `caption` holds its captions. `keypoints` holds its keypoints [[x, y, v], ...] if no image has keypoints
    of two persons. Other keys of the images are columns too.

    Args:
        path: the file.
        content: what it holds.
        options: how large it may be, and what means a missing value.

    Raises:
        InputError: the file has another form.
    """
    if "annotations" not in content:
        hint = (
            ""
            if not _is_karpathy(content)
            else "read Karpathy's files by captions/coco or captions/flickr: task.karpathy=FILE"
        )
        raise InputError(str(path), "has no list 'annotations'", "must be an annotation file of COCO", hint)
    check_coco(path, content, "data", "annotation file", _FIELDS)
    listed = listed_images(path, content)
    names = _category_names(path, content)
    notes: dict[Any, list[dict[str, Any]]] = {number: [] for number in listed}
    left_out: Counter[str] = Counter()
    for note in content["annotations"]:
        if note["image_id"] not in listed:
            left_out["annotations of images that are not listed"] += 1
            continue
        where = f"{path}: annotation {note['id']}"
        if note.get("iscrowd") is not None and flag(note["iscrowd"], f"{where}: iscrowd"):
            left_out["crowds"] += 1
            continue
        if names and "category_id" in note and note["category_id"] not in names:
            raise InputError(where, f"category_id is {note['category_id']!r:.40}", "must be a category of the file")
        notes[note["image_id"]].append(note)
    single = all(len(annotations) <= 1 for annotations in notes.values())
    bodies = {names_and_limbs(path, each) for each in content.get("categories") or [] if each.get("keypoints")}
    poses = {number: [note for note in each if note.get("keypoints")] for number, each in notes.items()}
    has_poses, is_one = any(poses.values()), len(bodies) == 1 and all(len(each) <= 1 for each in poses.values())
    records = []
    for number, image in listed.items():
        record = {"image": image["file_name"], **{key: value for key, value in image.items() if key not in _KNOWN}}
        categories = [names[note["category_id"]] for note in notes[number] if note.get("category_id") in names]
        captions = [str(note["caption"]) for note in notes[number] if note.get("caption") is not None]
        if names and not captions:
            record["category"] = next(iter(categories), None) if single else list(dict.fromkeys(categories))
        if captions:
            record["caption"] = captions
        if has_poses and is_one:
            record["keypoints"] = next((_triples(path, note) for note in poses[number]), None)
        records.append(record)
    table = records_table(path, "COCO", enumerate(records, start=1), options, numbered=False, left_out=left_out)
    if has_poses and not is_one:
        return replace(table, opaque={"keypoints": _POSES})
    return replace(table, about={"keypoints": Body(*bodies.pop())}) if has_poses else table


def _triples(path: Path, note: Mapping[str, Any]) -> list[list[Any]]:
    """The keypoints of an annotation, x, y and v of each."""
    values = note["keypoints"]
    if not isinstance(values, list) or len(values) % 3:
        raise InputError(f"{path}: annotation {note['id']}", f"keypoints are {values!s:.60}", "must be x, y, v of each")
    return [values[start : start + 3] for start in range(0, len(values), 3)]


def _category_names(path: Path, content: Mapping[str, Any]) -> dict[Any, str]:
    """The name of each category; none where the file has no categories, as with captions."""
    names: dict[Any, str] = {}
    categories = content.get("categories") or []
    for number, category in enumerate(categories if isinstance(categories, list) else [None]):
        if not isinstance(category, dict) or not isinstance(category.get("name"), str) or "id" not in category:
            raise InputError(f"{path}: entry {number} of 'categories'", "has another form", "must be {id, name}")
        if category["id"] in names:
            raise InputError(f"{path}: category {category['id']}", "this id appears twice", "ids must be unique")
        names[category["id"]] = category["name"]
    return names


def _is_karpathy(content: Mapping[str, Any]) -> bool:
    images = content.get("images")
    return isinstance(images, list) and bool(images) and isinstance(images[0], dict) and "sentences" in images[0]
