"""Reads the annotation file of MPII Human Pose to people: MATLAB structs in structs, whose fields may be missing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .._readers.mat import read_variable
from .bodies import MPII

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_JOINTS = len(MPII.names)


class Marked(NamedTuple):
    """An annotated person; all is counted from 0 except `number`, which is the index in annorect."""

    image: str
    number: int
    joints: Array  # [16,2] x, y in pixels, centres at integers; NaN where not marked
    marked: Array  # [16]
    seen: Array  # [16]
    place: tuple[float, float, float] | None  # x, y of the rough centre, height
    video: str  # empty if the file names none


class Release(NamedTuple):
    """What the file holds."""

    people: list[Marked]
    images: int  # training images with annotated people
    unmarked: int  # people of training images without joints
    repeated: list[Marked]  # people with a joint that appears twice, or with an image that an earlier entry has
    test_images: int  # the official test images, whose joints are not public


def read_release(path: Path) -> Release:
    """The people of the training images with their joints, whatever the order and form of the joints.

    Raises:
        InputError: there is no such file, it is of another kind, or an entry does not have the published form.
    """
    release = _records(read_variable(path, "RELEASE", "annotations"))
    missing = [name for name in ("annolist", "img_train") if not release or not _has(release[0], name)]
    if missing:
        raise InputError(f"{path}: has no RELEASE.{missing[0]}; is it mpii_human_pose_v1_u12_1.mat?")
    entries = _records(release[0]["annolist"])
    train = np.asarray(release[0]["img_train"]).ravel()
    if len(train) != len(entries) or train.dtype.kind not in "buif":
        raise InputError(
            f"{path}: img_train has {len(train)} numbers, annolist {len(entries)} entries; there must be one for each"
        )
    people: list[Marked] = []
    images: set[str] = set()
    unmarked, repeated = 0, list[Marked]()
    for index, (entry, training) in enumerate(zip(entries, train, strict=True), start=1):
        if not training:
            continue
        where = f"{path}: annolist({index})"
        name = _image_name(where, entry)
        found: list[Marked] = []
        for number, rectangle in enumerate(_records(_field(entry, "annorect")), start=1):
            points = [
                point
                for holder in _records(_field(rectangle, "annopoints"))
                for point in _records(_field(holder, "point"))
            ]
            if not points:
                unmarked += 1
                continue
            person, twice = _person(f"{where}.annorect({number})", name, number, entry, rectangle, points)
            (repeated if twice or name in images else found).append(person)
        if found:
            images.add(name)
            people += found
    if not people:
        raise InputError(f"{path}: no training image has a person with joints ({len(entries)} entries in annolist)")
    return Release(people, len(images), unmarked, repeated, int((train == 0).sum()))


def _person(
    where: str, image: str, number: int, entry: np.void, rectangle: np.void, points: list[np.void]
) -> tuple[Marked, bool]:
    """A person, and whether a joint appears twice: nobody knows which of the two is right."""
    joints = np.full((_JOINTS, 2), np.nan)
    marked, seen = np.zeros(_JOINTS, bool), np.ones(_JOINTS, bool)
    for point in points:
        x, y, joint = (_number(where, point, name) for name in ("x", "y", "id"))
        if x is None or y is None or joint is None or joint not in range(_JOINTS):
            raise InputError(f"{where}: a point has x {x}, y {y}, id {joint}; ids are 0 to {_JOINTS - 1}")
        if marked[int(joint)]:
            return Marked(image, number, joints, marked, seen, None, _video(where, entry)), True
        # MATLAB counts pixels from 1. If `is_visible` is empty or missing, the joint is not hidden.
        joints[int(joint)] = x - 1, y - 1
        marked[int(joint)] = True
        seen[int(joint)] = _number(where, point, "is_visible") != 0
    return Marked(image, number, joints, marked, seen, _place(where, rectangle), _video(where, entry)), False


def _place(where: str, rectangle: np.void) -> tuple[float, float, float] | None:
    position = _records(_field(rectangle, "objpos"))
    scale = _number(where, rectangle, "scale")
    if not position or not scale or scale < 0:
        return None
    x, y = (_number(where, position[0], name) for name in ("x", "y"))
    return None if x is None or y is None else (x - 1, y - 1, 200 * scale)


def _video(where: str, entry: np.void) -> str:
    video = _number(where, entry, "vididx")
    return "" if not video else f"{video:g}"


def _image_name(where: str, entry: np.void) -> str:
    images = _records(_field(entry, "image"))
    name = np.asarray(_field(images[0], "name")).ravel() if images else np.empty(0)
    if name.size != 1 or not isinstance(name[0], str) or not name[0].strip():
        raise InputError(f"{where}: has no image.name; is it mpii_human_pose_v1_u12_1.mat?")
    return str(name[0]).strip()


def _records(value: Any) -> list[np.void]:
    """The elements of a struct array, one or many; none if MATLAB wrote an empty matrix instead."""
    array = np.asarray(value)
    return [*array.ravel()] if array.dtype.names is not None else []


def _has(record: np.void, name: str) -> bool:
    return name in (record.dtype.names or ())


def _field(record: np.void, name: str) -> Any:
    """A field of a struct, or None: not every entry has the same fields."""
    return record[name] if _has(record, name) else None


def _number(where: str, record: np.void, name: str) -> float | None:
    """A number, written as an integer of any size, a float or characters; None if it is missing."""
    value = _field(record, name)
    array = np.asarray([] if value is None else value)
    if array.size == 0 or (array.dtype.kind == "U" and not str(array.flat[0]).strip()):
        return None
    try:
        number = float(array.flat[0])
    except (TypeError, ValueError):
        number = math.nan
    if array.size > 1 or not math.isfinite(number):
        raise InputError(f"{where}: {name} is {array.tolist()!r:.60}; it must be one finite number")
    return number
