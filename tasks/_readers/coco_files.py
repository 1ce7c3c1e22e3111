"""COCO annotation files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from contml import InputError
from contml.data.text_files import read_json
from contml.data.values import pairs, whole_number

from .folders import MOST_PIXELS

#: The kinds of a field of an entry.
Field: TypeAlias = Literal["id", "text", "size", "any"]
_WORDS = {"id": "a whole number or a text", "text": "a text", "size": "a number of pixels"}


def read_coco(path: Path, option: str, kind: str, fields: Mapping[str, Mapping[str, Field]]) -> dict[str, Any]:
    """Read an annotation file: lists of images and of annotations. Each annotation has its own id.

    Args:
        path: the file.
        option: the task's option that names the file.
        kind: the kind of annotation file: "captions" for captions_*.json.
        fields: the required lists by name. Each maps the fields of its entries to their kinds.

    Raises:
        InputError: the file is missing or has another form, or an annotation id appears twice.
    """
    content = read_json(path, option)
    check_coco(path, content, option, f"{kind}_*.json", fields)
    return dict(content)


def check_coco(path: Path, content: Any, option: str, kind: str, fields: Mapping[str, Mapping[str, Field]]) -> None:
    """Check the content of an annotation file. Ids such as 1.0 become whole numbers.

    The arguments are as in `read_coco`.

    Raises:
        InputError: the file has another form, or an annotation id appears twice.
    """
    allowed = f"must be a {kind} of COCO"
    for key, required_fields in fields.items():
        entries = content.get(key) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not entries:
            raise InputError(str(path), f"has no list '{key}'", allowed)
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise InputError(str(path), f"entry {number} of '{key}' is not an object", f"{option} {allowed}")
            if missing_fields := [field for field in required_fields if field not in entry]:
                problem = f"an entry of '{key}' (id {entry.get('id')!s:.40}) has no '{missing_fields[0]}'"
                raise InputError(str(path), problem, f"{option} {allowed}")
            for field, field_type in required_fields.items():
                if field_type == "id" and isinstance(entry[field], float) and whole_number(entry[field]) is not None:
                    entry[field] = whole_number(entry[field])
                if not _fits(entry[field], field_type):
                    location = f"{path}: entry {number} of '{key}'"
                    raise InputError(location, f"'{field}' is {entry[field]!r:.60}", f"must be {_WORDS[field_type]}")
    ids: set[Any] = set()
    for annotation in content["annotations"]:
        if annotation["id"] in ids:
            raise InputError(f"{path}: annotation {annotation['id']}", "this id appears twice", "ids must be unique")
        ids.add(annotation["id"])


def _fits(value: Any, form: Field) -> bool:
    if form == "size":
        return isinstance(value, int | float) and 1 <= value <= MOST_PIXELS
    return form == "any" or isinstance(value, str) or (form == "id" and type(value) is int)


def listed_images(path: Path, content: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the images of an annotation file by their ids.

    Raises:
        InputError: two files have the same id, or an id is a number in one list and a text in the other.
    """
    listed: dict[int, dict[str, Any]] = {}
    for image in content["images"]:
        # Some copies list an image again for each of its annotations.
        name = listed.setdefault(image["id"], image)["file_name"]
        if name != image["file_name"]:
            raise InputError(f"{path}: image id {image['id']}", f"used for both {name} and {image['file_name']}")
    texts = {str(number): number for number in listed}
    for note in content["annotations"]:
        number = note["image_id"]
        if number not in listed and str(number) in texts:
            problem = f"image_id is {number!r}, where 'images' has {texts[str(number)]!r}"
            raise InputError(f"{path}: annotation {note['id']}", problem, "must be both numbers, or both texts")
    return listed


def refuse_unlisted(path: Path, annotations: Iterable[dict[str, Any]], listed: Mapping[int, Any]) -> None:
    """Refuse annotations of images that the file does not list."""
    if unknown := [note for note in annotations if note["image_id"] not in listed]:
        number, count = unknown[0]["image_id"], f"{len(unknown):,} such annotations"
        problem = f"belongs to image id {number}, which 'images' lacks ({count})"
        hint = "complete the file, or set missing=drop to omit them"
        raise InputError(f"{path}: annotation {unknown[0]['id']}", problem, hint=hint)


def names_and_limbs(path: Path, category: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Return the names of the keypoints of a category, and the pairs of keypoints that limbs connect.

    Raises:
        InputError: the category lists names or pairs in another form.
    """
    names = category["keypoints"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(str(path), f"the keypoints of a category are {names!r:.60}", "must be a list of names")
    return tuple(names), pairs(category.get("skeleton") or (), len(names), 1, f"{path}: skeleton of a category")
