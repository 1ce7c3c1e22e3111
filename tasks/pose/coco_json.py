"""Reads COCO's files of keypoints, through pycocotools, to people with their images and joints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .._readers.coco import listed_images, read_coco, refuse_unlisted
from .._readers.folders import Files, Missing
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


def read_keypoints(path: Path, option: str, images: Sequence[Path], missing: Missing) -> Keypoints:
    """The people of a person_keypoints_*.json, and the names and limbs of the joints from its category.

    Args:
        path: the file.
        option: the task option that names it, for errors.
        images: the folders of its images.
        missing: what to do with people whose image the file does not list: "refuse" or "drop".

    Raises:
        InputError: there is no such file, it is of another kind, an id appears twice or refers to nothing, or a joint
            is far outside its image.
    """
    fields = {"images": ("id", "file_name", "width", "height"), "annotations": ("id", "image_id"), "categories": ()}
    content = read_coco(path, option, "person_keypoints", fields)
    body = _body(path, option, content["categories"])
    listed, on_disk = listed_images(path, content), Files()
    annotations = [annotation for annotation in content["annotations"] if not annotation.get("iscrowd")]
    if missing == "refuse":
        refuse_unlisted(path, annotations, listed)
    people: list[Person] = []
    excluded = Counter({"crowds": len(content["annotations"]) - len(annotations)})
    for annotation in annotations:
        image = listed.get(annotation["image_id"])
        if image is None:
            excluded["of images that are not listed"] += 1
        elif person := _person(f"{path}: annotation {annotation['id']}", annotation, body, images, on_disk, image):
            people.append(person)
        else:
            excluded["without keypoints"] += 1
    return Keypoints(body, people, len({person.group for person in people}), +excluded)


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
            f"{path}: no category has keypoints; is it a file of instances or captions? {option} must be "
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


def _person(
    where: str, annotation: dict[str, Any], body: Body, images: Sequence[Path], on_disk: Files, image: dict[str, Any]
) -> Person | None:
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
    place = on_disk.locate(images, image["file_name"])
    return Person(
        f"{place}, annotation {annotation['id']}",
        place,
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
