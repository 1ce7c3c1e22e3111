"""Keypoint files of COCO, through pycocotools, to people: annotations, the images they name, the joints they have."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .bodies import Body
from .people import Person

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Not labelled; labelled but hidden; labelled and seen.
_VISIBILITIES = (0, 1, 2)
#: A joint may lie outside its image by this share of it: annotators click beyond borders.
_SLACK = 0.05


class Keypoints(NamedTuple):
    """What a file holds."""

    body: Body
    people: list[Person]
    images: int  # images with people that have a keypoint
    left_out: Counter[str]  # annotations that are no people with keypoints


def read_keypoints(path: Path, option: str, images: Path, missing: str) -> Keypoints:
    """The people of a person_keypoints_*.json, and the names and limbs of the joints as its category tells them.

    Raises:
        InputError: no such file, another file, ids that stand twice or for nothing, joints far outside their image.
    """
    told = _load(path, option)
    body = _body(path, option, told["categories"])
    listed = _listed(path, told["images"])
    people: list[Person] = []
    left_out: Counter[str] = Counter()
    first: set[int] = set()
    for note in told["annotations"]:
        where = f"{path}: annotation {note['id']}"
        if note["id"] in first:
            raise InputError(f"{where}: this id stands twice; every person has an id of its own")
        first.add(note["id"])
        if note.get("iscrowd"):
            left_out["crowds"] += 1
        elif note["image_id"] not in listed:
            if missing == "refuse":
                raise InputError(
                    f"{where}: is of image id {note['image_id']}, which 'images' does not list; complete the file, or "
                    "set task.missing=drop to leave such people out"
                )
            left_out["of images that are not listed"] += 1
        else:
            person = _person(where, note, body, images, listed[note["image_id"]])
            if person is None:
                left_out["without keypoints"] += 1
            else:
                people.append(person)
    return Keypoints(body, people, len({person.group for person in people}), left_out)


def _load(path: Path, option: str) -> dict[str, Any]:
    from pycocotools.coco import COCO  # here: no other reader needs it

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it tells how long it takes
            told: dict[str, Any] = COCO(str(path)).dataset
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; task.{option} names the file of keypoints in task.root") from None
    except KeyError as error:
        raise InputError(
            f"{path}: an image or an annotation has no {error}; is it a person_keypoints_*.json?"
        ) from None
    except (OSError, ValueError, AssertionError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not an annotation file of COCO, or cut short ({error})") from None
    for key in ("images", "annotations", "categories"):
        if not isinstance(told.get(key), list) or not told[key]:
            raise InputError(f"{path}: has no list '{key}'; is it a person_keypoints_*.json of COCO?")
    for key, fields in (("images", ("id", "file_name", "width", "height")), ("annotations", ("id", "image_id"))):
        for entry in told[key]:
            if lacking := [field for field in fields if field not in entry]:
                raise InputError(f"{path}: an entry of '{key}' (id {entry.get('id')}) has no '{lacking[0]}'")
    return told


def _body(path: Path, option: str, categories: list[dict[str, Any]]) -> Body:
    bodies = {
        (
            tuple(str(name) for name in category["keypoints"]),
            tuple((int(a) - 1, int(b) - 1) for a, b in category.get("skeleton", [])),  # they count from 1
        )
        for category in categories
        if category.get("keypoints")
    }
    if not bodies:
        raise InputError(
            f"{path}: no category has keypoints; is it a file of instances or captions? task.{option} takes "
            "person_keypoints_*.json"
        )
    if len(bodies) > 1:
        raise InputError(f"{path}: its categories have keypoints of {len(bodies)} kinds; poses need the same joints")
    names, skeleton = bodies.pop()
    if outside := [pair for pair in skeleton if min(pair) < 0 or max(pair) >= len(names)]:
        a, b = outside[0]
        raise InputError(f"{path}: the skeleton connects {a + 1} and {b + 1}, but keypoints are 1 to {len(names)}")
    return Body(names, skeleton)


def _listed(path: Path, images: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    listed: dict[int, dict[str, Any]] = {}
    for image in images:
        # Some copies list an image once for each of its annotations.
        name = listed.setdefault(image["id"], image)["file_name"]
        if name != image["file_name"]:
            raise InputError(f"{path}: image id {image['id']} stands for {name} and for {image['file_name']}")
    return listed


def _person(where: str, note: dict[str, Any], body: Body, images: Path, image: dict[str, Any]) -> Person | None:
    if "keypoints" not in note:
        return None
    if not isinstance(note["keypoints"], list) or len(note["keypoints"]) != 3 * len(body.names):
        raise InputError(
            f"{where}: keypoints are {str(note['keypoints'])[:40]}; {len(body.names)} times x, y, v are allowed"
        )
    try:
        values = np.asarray(note["keypoints"], np.float64).reshape(-1, 3)
    except (TypeError, ValueError):
        values = np.full((1, 3), np.nan)
    if not np.isfinite(values).all() or not np.isin(values[:, 2], _VISIBILITIES).all():
        raise InputError(f"{where}: keypoints are numbers x, y, v, and v is 0, 1 or 2")
    marked = values[:, 2] > 0
    if not marked.any():
        return None
    joints = values[:, :2]
    size = np.array([image["width"], image["height"]], np.float64)
    outside = marked & ((joints < -_SLACK * size) | (joints > (1 + _SLACK) * size)).any(1)
    if outside.any():
        joint = int(outside.argmax())
        raise InputError(
            f"{where}: {body.names[joint]} is at {joints[joint, 0]:g}, {joints[joint, 1]:g}, outside its image "
            f"{image['file_name']} of {size[0]:g} x {size[1]:g} pixels; were the images resized without the file?"
        )
    return Person(
        f"{images / image['file_name']}, annotation {note['id']}",
        images / image["file_name"],
        joints,
        marked,
        values[:, 2] > 1,
        str(image["file_name"]),
        _place(where, note),
        (int(size[0]), int(size[1])),
    )


def _place(where: str, note: dict[str, Any]) -> tuple[float, float, float] | None:
    """Centre and longer side of the bounding box, whose edges lie between pixels."""
    if note.get("bbox") is None:
        return None
    try:
        x, y, width, height = (float(value) for value in note["bbox"])
    except (TypeError, ValueError):
        raise InputError(f"{where}: bbox is {str(note['bbox'])[:40]}; x, y, width, height are allowed") from None
    return (x + width / 2 - 0.5, y + height / 2 - 0.5, max(width, height)) if max(width, height) > 0 else None
