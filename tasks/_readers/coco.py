"""COCO annotation files, read by pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contml import InputError

from .folders import no_such_file


def read_coco(path: Path, option: str, kind: str, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The content of an annotation file: lists of images and of annotations, each annotation with an id of its own.

    Args:
        path: the file.
        option: the task's option that names the file.
        kind: the kind of annotation file: "captions" for captions_*.json.
        fields: the lists that the file must have, and the fields that their entries must have.

    Raises:
        InputError: no such file, a file of another kind, or an annotation id appears twice.
    """
    from pycocotools.coco import COCO  # here: no other reader needs it

    wanted = f"must be a {kind}_*.json of COCO"
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints how long it takes
            index = COCO(str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise no_such_file(path, option) from None
    except KeyError as error:
        raise InputError(str(path), f"an image or an annotation has no {error}", wanted) from None
    except (OSError, ValueError, AssertionError, TypeError, AttributeError) as error:
        raise InputError(str(path), f"incomplete, or not an annotation file of COCO ({error})", wanted) from None
    content: dict[str, Any] = index.dataset
    for key, needed in fields.items():
        if not isinstance(content.get(key), list) or not content[key]:
            raise InputError(str(path), f"has no list '{key}'", wanted)
        for entry in content[key]:
            if absent := [field for field in needed if field not in entry]:
                found = f"an entry of '{key}' (id {entry.get('id')}) has no '{absent[0]}'"
                raise InputError(str(path), found, f"{option} {wanted}")
    ids: set[Any] = set()
    for annotation in content["annotations"]:
        if annotation["id"] in ids:
            raise InputError(f"{path}: annotation {annotation['id']}", "this id appears twice", "ids must be unique")
        ids.add(annotation["id"])
    return content


def listed_images(path: Path, content: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The images of an annotation file by their ids.

    Raises:
        InputError: an id is used for two files.
    """
    listed: dict[int, dict[str, Any]] = {}
    for image in content["images"]:
        # Some copies list an image again for each of its annotations.
        name = listed.setdefault(image["id"], image)["file_name"]
        if name != image["file_name"]:
            raise InputError(f"{path}: image id {image['id']}", f"used for both {name} and {image['file_name']}")
    return listed


def refuse_unlisted(path: Path, annotations: Iterable[dict[str, Any]], listed: Mapping[int, Any]) -> None:
    """Refuse annotations of images that the file does not list."""
    if unknown := [note for note in annotations if note["image_id"] not in listed]:
        raise InputError(
            f"{path}: annotation {unknown[0]['id']}",
            f"belongs to image id {unknown[0]['image_id']}, which 'images' lacks ({len(unknown):,} such annotations)",
            hint="complete the file, or set missing=drop to omit them",
        )
