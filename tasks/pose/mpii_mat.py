"""Reads the annotation file of MPII Human Pose: nested MATLAB structs, whose fields may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .._readers.mat import read_variable
from .bodies import MPII
from .people import Person

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_PUBLISHED = "mpii_human_pose_v1_u12_1.mat"
_JOINTS = len(MPII.names)
_REPEATED = "with a joint or an image that appears twice"


class Release(NamedTuple):
    """The content of the file."""

    people: list[Person]  # excluded: a joint appears twice, or an earlier entry has the same image
    images: int  # training images with people
    unmarked: int  # people of training images without joints
    test_images: int  # the official test images, whose joints are not public


def read_release(path: Path, locate: Callable[[str], Path] = Path) -> Release:
    """The people of the training images with their joints, whatever the order and form of the joints.

    Args:
        path: the file.
        locate: where the image of a name is.

    Raises:
        InputError: no such file, a file of another kind, or an entry without the published form.
    """
    release = _records(read_variable(path, "RELEASE", "annotations"))
    missing = [name for name in ("annolist", "img_train") if not release or not _has(release[0], name)]
    if missing:
        raise InputError(str(path), f"no RELEASE.{missing[0]}", f"must be {_PUBLISHED}")
    entries = _records(release[0]["annolist"])
    train = np.asarray(release[0]["img_train"]).ravel()
    if len(train) != len(entries) or train.dtype.kind not in "buif":
        got = f"img_train has {len(train)} numbers, annolist {len(entries)} entries"
        raise InputError(str(path), got, "must be one number per entry")
    people: list[Person] = []
    images: set[str] = set()
    unmarked = 0
    for index, (entry, training) in enumerate(zip(entries, train, strict=True), start=1):
        if not training:
            continue
        where = f"{path}: annolist({index})"
        name = _image_name(where, entry)
        video = _number(where, entry, "vididx")
        group = f"video {video:g}" if video else f"image {name}"
        image, repeated, usable = locate(name), name in images, False
        for number, rectangle in enumerate(_records(_field(entry, "annorect")), start=1):
            holders = _records(_field(rectangle, "annopoints"))
            points = [point for holder in holders for point in _records(_field(holder, "point"))]
            if not points:
                unmarked += 1
                continue
            label, place = f"{where}.annorect({number})", f"{image}, person {number}"
            person = Person(place, image, *_joints(label, points), group, _place(label, rectangle))
            twice = repeated or len(points) > person.marked.sum()
            people.append(person._replace(excluded=_REPEATED if twice else ""))
            usable = usable or not twice
        if usable:
            images.add(name)
    if not people:
        raise InputError(str(path), f"no person with joints in {len(entries)} entries of annolist")
    return Release(people, len(images), unmarked, int((train == 0).sum()))


def _joints(where: str, points: list[np.void]) -> tuple[Array, Array, Array]:
    """Joints `[16, 2]` from 0, NaN where not marked; which are marked; which are not hidden."""
    joints = np.full((_JOINTS, 2), np.nan)
    marked, seen = np.zeros(_JOINTS, bool), np.ones(_JOINTS, bool)
    for point in points:
        x, y, joint = (_number(where, point, name) for name in ("x", "y", "id"))
        if x is None or y is None or joint is None or joint not in range(_JOINTS):
            raise InputError(where, f"a point has x {x}, y {y}, id {joint}", f"ids are 0 to {_JOINTS - 1}")
        # MATLAB counts pixels from 1. If `is_visible` is empty or missing, the joint is not hidden.
        joints[int(joint)] = x - 1, y - 1
        marked[int(joint)] = True
        seen[int(joint)] = _number(where, point, "is_visible") != 0
    return joints, marked, seen


def _place(where: str, rectangle: np.void) -> tuple[float, float, float] | None:
    """The rough centre from 0, and the height."""
    position = _records(_field(rectangle, "objpos"))
    scale = _number(where, rectangle, "scale")
    if not position or not scale or scale < 0:
        return None
    x, y = (_number(where, position[0], name) for name in ("x", "y"))
    return None if x is None or y is None else (x - 1, y - 1, 200 * scale)


def _image_name(where: str, entry: np.void) -> str:
    images = _records(_field(entry, "image"))
    name = np.asarray(_field(images[0], "name")).ravel() if images else np.empty(0)
    if name.size != 1 or not isinstance(name[0], str) or not name[0].strip():
        raise InputError(where, "no image.name", f"must be {_PUBLISHED}")
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
        raise InputError(where, f"{name} is {array.tolist()!r:.60}", "must be one finite number")
    return number
