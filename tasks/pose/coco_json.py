"""Reads COCO's files of keypoints, through pycocotools, to people with their images and joints."""

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
    excluded: Counter[str]  # annotations that are not a person with keypoints, by reason

    @property
    def annotations(self) -> int:
        """All annotations of the file."""
        return len(self.people) + self.excluded.total()


def read_keypoints(path: Path, option: str, images: Path, missing: str) -> Keypoints:
    """The people of a person_keypoints_*.json, and the names and limbs of the joints from its category.

    Args:
        path: the file.
        option: the task option that names it, for errors.
        images: the folder of its images.
        missing: what to do with people whose image the file does not list: "refuse" or "drop".

    Raises:
        InputError: there is no such file, it is of another kind, an id appears twice or refers to nothing, or a joint
            is far outside its image.
    """
    content = _load(path, option)
    body = _body(path, option, content["categories"])
    listed = _listed(path, content["images"])
    people: list[Person] = []
    excluded: Counter[str] = Counter()
    ids: set[int] = set()
    for annotation in content["annotations"]:
        where = f"{path}: annotation {annotation['id']}"
        if annotation["id"] in ids:
            raise InputError(f"{where}: this id appears twice; give every person an id of its own")
        ids.add(annotation["id"])
        if annotation.get("iscrowd"):
            excluded["crowds"] += 1
        elif annotation["image_id"] not in listed:
            if missing == "refuse":
                raise InputError(
                    f"{where}: it belongs to image id {annotation['image_id']}, which 'images' does not list; complete "
                    "the file, or set task.missing=drop to leave such people out"
                )
            excluded["of images that are not listed"] += 1
        else:
            person = _person(where, annotation, body, images, listed[annotation["image_id"]])
            if person is None:
                excluded["without keypoints"] += 1
            else:
                people.append(person)
    return Keypoints(body, people, len({person.group for person in people}), excluded)


def _load(path: Path, option: str) -> dict[str, Any]:
    from pycocotools.coco import COCO  # here: no other reader needs it

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints how long it takes
            content: dict[str, Any] = COCO(str(path)).dataset
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; task.{option} names the file of keypoints in task.root") from None
    except KeyError as error:
        raise InputError(
            f"{path}: an image or an annotation has no {error}; is it a person_keypoints_*.json?"
        ) from None
    except (OSError, ValueError, AssertionError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not an annotation file of COCO, or not a complete one ({error})") from None
    for key in ("images", "annotations", "categories"):
        if not isinstance(content.get(key), list) or not content[key]:
            raise InputError(f"{path}: has no list '{key}'; is it a person_keypoints_*.json of COCO?")
    for key, fields in (("images", ("id", "file_name", "width", "height")), ("annotations", ("id", "image_id"))):
        for entry in content[key]:
            if lacking := [field for field in fields if field not in entry]:
                raise InputError(f"{path}: an entry of '{key}' (id {entry.get('id')}) has no '{lacking[0]}'")
    return content


def _body(path: Path, option: str, categories: list[dict[str, Any]]) -> Body:
    bodies = {
        (
            tuple(str(name) for name in category["keypoints"]),
            tuple((int(a) - 1, int(b) - 1) for a, b in category.get("skeleton", [])),  # COCO counts from 1
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
        raise InputError(
            f"{path}: its categories have {len(bodies)} different lists of keypoints; poses need the same joints"
        )
    names, skeleton = bodies.pop()
    if outside := [pair for pair in skeleton if min(pair) < 0 or max(pair) >= len(names)]:
        a, b = outside[0]
        raise InputError(f"{path}: the skeleton connects {a + 1} and {b + 1}; keypoints are numbered 1 to {len(names)}")
    return Body(names, skeleton)


def _listed(path: Path, images: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    listed: dict[int, dict[str, Any]] = {}
    for image in images:
        # Some copies list an image again for each of its annotations.
        name = listed.setdefault(image["id"], image)["file_name"]
        if name != image["file_name"]:
            raise InputError(f"{path}: image id {image['id']} is used for {name} and for {image['file_name']}")
    return listed


def _person(where: str, annotation: dict[str, Any], body: Body, images: Path, image: dict[str, Any]) -> Person | None:
    if "keypoints" not in annotation:
        return None
    if not isinstance(annotation["keypoints"], list) or len(annotation["keypoints"]) != 3 * len(body.names):
        raise InputError(
            f"{where}: keypoints are {str(annotation['keypoints'])[:40]}; give {len(body.names)} times x, y, v"
        )
    try:
        values = np.asarray(annotation["keypoints"], np.float64).reshape(-1, 3)
    except (TypeError, ValueError):
        values = np.full((1, 3), np.nan)
    if not np.isfinite(values).all() or not np.isin(values[:, 2], _VISIBILITIES).all():
        raise InputError(f"{where}: keypoints must be numbers x, y, v, where v is 0, 1 or 2")
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
        f"{images / image['file_name']}, annotation {annotation['id']}",
        images / image["file_name"],
        joints,
        marked,
        values[:, 2] > 1,
        str(image["file_name"]),
        _place(where, annotation),
        (int(size[0]), int(size[1])),
    )


def _place(where: str, annotation: dict[str, Any]) -> tuple[float, float, float] | None:
    """Centre and longer side of the bounding box, whose edges lie between pixels."""
    if annotation.get("bbox") is None:
        return None
    try:
        x, y, width, height = (float(value) for value in annotation["bbox"])
    except (TypeError, ValueError):
        raise InputError(f"{where}: bbox is {str(annotation['bbox'])[:40]}; it must be x, y, width, height") from None
    return (x + width / 2 - 0.5, y + height / 2 - 0.5, max(width, height)) if max(width, height) > 0 else None
