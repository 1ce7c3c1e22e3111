"""A file of poses as a table: a .npz of arrays, or a JSON file of people."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contml import InputError
from contml._support.arrays import read_arrays
from contml.data.tables import Table, TableOptions, records_table
from contml.data.text_files import no_such_file
from contml.data.values import pairs

from ..pose.bodies import Body
from .pose_label import unnamed

#: Bytes that the arrays of a file may unpack to: the joints of a million people take 300 MB.
_MOST_BYTES = 1 << 29
_JOINTS = "joints"


def arrays_table(path: Path, options: TableOptions) -> Table:
    """The table of a .npz file: `names` [N] of images, `joints` [N, J, 2], perhaps `visible` [N, J] and others [N].

    Raises:
        InputError: no such file, damaged, too large, or an array is missing or has another shape.
    """
    try:
        arrays = read_arrays(path, min(options.max_bytes, _MOST_BYTES))
    except FileNotFoundError:
        raise no_such_file(path) from None
    names, joints, visible = (arrays.get(key) for key in ("names", _JOINTS, "visible"))
    if names is None or joints is None:
        found = ", ".join(arrays) or "nothing"
        raise InputError(str(path), f"has {found}", "must have the arrays names and joints")
    shapes = [f"names {list(names.shape)}, joints {list(joints.shape)}"]
    shapes += [] if visible is None else [f"visible {list(visible.shape)}"]
    if (
        joints.ndim != 3
        or joints.shape[::2] != (*names.shape, 2)
        or (visible is not None and visible.shape != joints.shape[:2])
    ):
        raise InputError(str(path), ", ".join(shapes), "must be names [N], joints [N, J, 2] and visible [N, J]")
    if joints.dtype.kind not in "iuf" or (visible is not None and visible.dtype.kind not in "biuf"):
        raise InputError(str(path), f"joints are {joints.dtype}", "must be numbers")
    others = {key: array for key, array in arrays.items() if array.shape == names.shape and key != "names"}
    people = [
        {"name": name, _JOINTS: pose, **dict(zip(others, values, strict=True))}
        for name, pose, *values in zip(_texts(names), joints.tolist(), *map(_texts, others.values()), strict=True)
    ]
    if visible is not None:
        people = [{**person, "visible": flags} for person, flags in zip(people, visible.tolist(), strict=True)]
    return people_table(
        path, "arrays", {**{k: arrays[k].tolist() for k in _BODY if k in arrays}, "people": people}, options
    )


_BODY = ("joint_names", "skeleton")


def _texts(array: np.ndarray[Any, Any]) -> list[Any]:
    """The values of an array; numpy writes some texts as bytes."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in array.tolist()]


def people_table(path: Path, form: str, content: Mapping[str, Any], options: TableOptions) -> Table:
    """The table of {"people": [{name, joints, visible, ...}, ...]}, perhaps with "joint_names" and "skeleton".

    The third number of a joint is its flag in `visible`. Images are beside the file, or in the folder images beside it.

    Raises:
        InputError: the file has another form.
    """
    people = content["people"]
    if not isinstance(people, list) or not people or not all(isinstance(person, dict) for person in people):
        raise InputError(str(path), "no list 'people'", hint="list {name, joints, visible, split} of each person")
    first, folder = str(people[0].get("name")), path.parent
    inside = not os.path.isfile(folder / first) and os.path.isfile(folder / "images" / first)  # noqa: PTH113
    records = []
    for number, person in enumerate(people, start=1):
        values = {key: value for key, value in person.items() if key not in ("name", _JOINTS, "visible")}
        name = person.get("name")
        pose = _with_flags(f"{path}: joints of {name}", person.get(_JOINTS), person.get("visible"))
        image = f"images/{name}" if inside and isinstance(name, str) else name
        records.append((number, {"image": image, _JOINTS: pose, **values}))
    table = records_table(path, form, records, options, numbered=False)
    return replace(table, about={_JOINTS: _body(path, content, records)})


def _body(path: Path, content: Mapping[str, Any], records: Sequence[tuple[int, Mapping[str, Any]]]) -> Body:
    """The names and the limbs that the file has."""
    joints = records[0][1][_JOINTS]
    body = unnamed(len(joints) if isinstance(joints, list) else 0)
    names = content.get("joint_names", body.names)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: joint_names", f"{names!s:.60}", "must be a list of names")
    return Body(names, pairs(content.get("skeleton", body.skeleton), len(names), 0, f"{path}: skeleton"))


def _with_flags(where: str, joints: Any, visible: Any) -> Any:
    if visible is None or not isinstance(joints, list):
        return joints
    if not isinstance(visible, list) or len(visible) != len(joints):
        raise InputError(where, f"{visible!s:.60} is visible", f"must be a list of {len(joints)} flags")
    return [[*(joint or (None, None)), flag] for joint, flag in zip(joints, visible, strict=True)]
