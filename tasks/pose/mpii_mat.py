"""The annotation file of MPII Human Pose: MATLAB structs in structs, whose fields come and go, to people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .bodies import MPII
from .matlab import load_matlab

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_JOINTS = len(MPII.names)


class Marked(NamedTuple):
    """An annotated person; all counted from 0 but `number`, which is that of annorect."""

    image: str
    number: int
    joints: Array  # [16,2] x, y in pixels, centres at integers; NaN where not marked
    marked: Array  # [16]
    seen: Array  # [16]
    place: tuple[float, float, float] | None  # x, y of the rough centre, height
    video: str  # empty where none is told


class Release(NamedTuple):
    """What the file holds."""

    people: list[Marked]
    images: int  # training images with annotated people
    unmarked: int  # people of training images without joints
    repeated: int  # people whose joints are told twice, or whose image stands in an entry before
    test_images: int  # the official test images, whose joints are not public


def read_release(path: Path) -> Release:
    """The people of the training images with their joints, each by its id, whatever their order and form.

    Raises:
        InputError: no such file, another file, or an entry that is not of the published form: it is named.
    """
    release = _records(load_matlab(path, "RELEASE"))
    missing = [name for name in ("annolist", "img_train") if not release or not _has(release[0], name)]
    if missing:
        raise InputError(f"{path}: has no RELEASE.{missing[0]}; is it mpii_human_pose_v1_u12_1.mat?")
    entries = _records(release[0]["annolist"])
    train = np.asarray(release[0]["img_train"]).ravel()
    if len(train) != len(entries) or train.dtype.kind not in "buif":
        raise InputError(f"{path}: img_train has {len(train)} numbers, annolist {len(entries)} entries; one for each")
    people: list[Marked] = []
    images: set[str] = set()
    unmarked = repeated = 0
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
            person = _person(f"{where}.annorect({number})", name, number, entry, rectangle, points)
            if person is None or name in images:
                repeated += 1
            else:
                found.append(person)
        if found:
            images.add(name)
            people += found
    if not people:
        raise InputError(f"{path}: no training image has a person with joints ({len(entries)} entries in annolist)")
    return Release(people, len(images), unmarked, repeated, int((train == 0).sum()))


def _person(
    where: str, image: str, number: int, entry: np.void, rectangle: np.void, points: list[np.void]
) -> Marked | None:
    """A person; None where a joint is told twice, so that nobody knows which it is."""
    joints = np.full((_JOINTS, 2), np.nan)
    marked, seen = np.zeros(_JOINTS, bool), np.ones(_JOINTS, bool)
    for point in points:
        x, y, joint = (_number(where, point, name) for name in ("x", "y", "id"))
        if x is None or y is None or joint is None or joint not in range(_JOINTS):
            raise InputError(f"{where}: a point with x {x}, y {y}, id {joint}; ids are 0 to {_JOINTS - 1}")
        if marked[int(joint)]:
            return None
        # MATLAB counts pixels from 1. An empty `is_visible`, or none at all, is a joint that is seen.
        joints[int(joint)] = x - 1, y - 1
        marked[int(joint)] = True
        seen[int(joint)] = _number(where, point, "is_visible") != 0
    return Marked(image, number, joints, marked, seen, _place(where, rectangle), _video(where, entry))


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
    """The elements of a struct array, one or many; none where MATLAB wrote an empty matrix instead."""
    array = np.asarray(value)
    return [*array.ravel()] if array.dtype.names is not None else []


def _has(record: np.void, name: str) -> bool:
    return name in (record.dtype.names or ())


def _field(record: np.void, name: str) -> Any:
    """A field of a struct, or None: which fields there are is another matter in every entry."""
    return record[name] if _has(record, name) else None


def _number(where: str, record: np.void, name: str) -> float | None:
    """A number, however it is written: packed as a small integer, as characters, or not at all."""
    value = _field(record, name)
    array = np.asarray([] if value is None else value)
    if array.size == 0 or (array.dtype.kind == "U" and not str(array.flat[0]).strip()):
        return None
    try:
        number = float(array.flat[0])
    except (TypeError, ValueError):
        number = math.nan
    if array.size > 1 or not math.isfinite(number):
        raise InputError(f"{where}: {name} is {array.tolist()!r:.60}; one finite number is allowed")
    return number
