"""A folder of images and one file of joints: the plain form, for pose data of your own."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from contml import InputError
from contml.data import ImageFile, Split, Task

from .._readers.folders import Files, data_folder, image_folders, no_such_file, refuse_absent
from .._readers.splits import Parts, read_lists, split_by_column, split_by_lists, with_queries
from .._readers.text import read_json
from .bodies import LSP, Body
from .split import make_split


def files(
    root: str,
    joints: str = "joints.npz",
    images: str | list[str] = "images",
    split: str | None = None,
    squared: bool = True,
    normalize: bool = False,
    hidden: Literal["refuse", "drop"] = "refuse",
) -> Task:
    """A folder of images and a file of joints.

    `joints.npz` holds arrays `names` [N] (image files), `joints` [N, J, 2] (x, y in pixels of the image, 0-based),
    optionally `visible` [N, J] (0 or 1), `split` [N] ("train", "test", or "query" for a test image that is a query),
    `joint_names` [J], `skeleton` [E, 2]. `joints.json` holds the same as `{"joint_names": [...], "skeleton": [...],
    "people": [{"name", "joints", "visible", "split"}, ...]}`. If no query is named, the first fifth of the test images
    are the queries.

    Args:
        root: the folder of the data set.
        joints: the file of joints, in the folder; .npz or .json.
        images: the folder of images, in the folder, or several: a file is looked for in each in turn.
        split: a JSON file in the folder with lists of names: "train", "test", and "queries" (a part of "test");
            default: the split in the file of joints.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither position nor size counts.
        hidden: what to do with items that have at most half of their joints visible: "refuse", or "drop" them.
    """
    folder, on_disk = data_folder(root, "your pose data"), Files()
    path = folder / joints
    table = _read(path)
    _check(path, table)
    train, queries, gallery = _split_by_lists(folder / split, table.names) if split else _split_by_column(path, table)
    folders = image_folders(folder, images)
    paths = [on_disk.locate(folders, name) for name in table.names]
    absent = [paths[row] for row in (*train, *queries, *gallery) if not on_disk.has(paths[row])]
    refuse_absent(absent, len(paths), f"images of {path.name}", can_drop=False)

    def make(rows: list[int], queries: int) -> Split:
        return make_split(
            [ImageFile(paths[row]) for row in rows],
            [str(paths[row]) for row in rows],
            table.joints[rows],
            None if table.visible is None else table.visible[rows],
            queries,
            table.body,
            squared=squared,
            normalize=normalize,
            hidden=hidden,
        )

    return Task(train=make(train, 0), test=make([*queries, *gallery], len(queries)))


@dataclass
class _Table:
    names: list[str]
    joints: np.ndarray[Any, Any]  # [N,J,2]
    visible: np.ndarray[Any, Any] | None  # [N,J]
    split: list[str] | None
    body: Body


def _read(path: Path) -> _Table:
    try:
        if path.suffix == ".npz":
            # Opened here: numpy leaves a file open that is cut short.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                values: dict[str, Any] = dict(file)
        elif path.suffix == ".json":
            values = _columns(path, read_json(path, "joints"))
        else:
            raise InputError(f"{path}: not a .npz or .json file; joints are read from these")
    except FileNotFoundError:
        raise no_such_file(path, "joints") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable {path.suffix} file ({error})") from None
    for key in ("names", "joints"):
        if key not in values:
            raise InputError(
                f"{path}: has no '{key}'; it needs names and joints (it has {', '.join(values) or 'nothing'})"
            )
    try:
        return _table(path, values)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not every item has the same form ({str(error).splitlines()[0]})") from None


def _table(path: Path, values: dict[str, Any]) -> _Table:
    joints = np.asarray(values["joints"])
    if joints.ndim != 3 or joints.shape[2] != 2 or joints.dtype.kind not in "fiu":
        raise InputError(f"{path}: joints are {joints.dtype} {list(joints.shape)}; give numbers [items, joints, 2]")
    count = joints.shape[1]
    by_default = count == len(LSP.names)
    names = [str(name) for name in values.get("joint_names", LSP.names if by_default else range(count))]
    skeleton = [(int(a), int(b)) for a, b in values.get("skeleton", LSP.skeleton if by_default else [])]
    if len(names) != count:
        raise InputError(f"{path}: {len(names)} joint_names, but {count} joints; give one name per joint")
    if outside := [pair for pair in skeleton if min(pair) < 0 or max(pair) >= count]:
        raise InputError(f"{path}: the skeleton connects joints {outside[0]}; joints are numbered 0 to {count - 1}")
    return _Table(
        [str(name) for name in values["names"]],
        joints.astype(np.float64),
        None if values.get("visible") is None else np.asarray(values["visible"]).astype(bool),
        None if values.get("split") is None else [str(part) for part in values["split"]],
        Body(names, skeleton),
    )


def _columns(path: Path, content: Any) -> dict[str, Any]:
    people = content.get("people") if isinstance(content, dict) else None
    if not isinstance(people, list) or not people or not all(isinstance(person, dict) for person in people):
        raise InputError(f"{path}: has no list 'people' of {{name, joints, visible, split}}")
    values: dict[str, Any] = {key: content[key] for key in ("joint_names", "skeleton") if key in content}
    for key, column in (("name", "names"), ("joints", "joints"), ("visible", "visible"), ("split", "split")):
        have = [key in person for person in people]
        if any(have) and not all(have):
            raise InputError(
                f"{path}: person {have.index(False)} has no '{key}', but others have; give it to all or to none"
            )
        if have[0]:
            values[column] = [person[key] for person in people]
    if not all(isinstance(joints, list) for joints in values.get("joints", [])):
        raise InputError(f"{path}: joints of a person are a list of [x, y]")
    lengths = {len(joints) for joints in values.get("joints", [])}
    if len(lengths) > 1:
        raise InputError(
            f"{path}: people have {sorted(lengths)} joints; give each the same joints, and set 'visible' to 0 where a "
            "joint is unknown"
        )
    return values


def _check(path: Path, table: _Table) -> None:
    n, j = len(table.names), table.joints.shape[1]
    for name, values, shape in (
        ("names", table.names, n),
        ("visible", table.visible, (n, j)),
        ("split", table.split, n),
    ):
        found: Any = None if values is None else values.shape if isinstance(values, np.ndarray) else len(values)
        if found is not None and (found != shape or len(table.joints) != n):
            raise InputError(
                f"{path}: {name} is {found}, but joints are {list(table.joints.shape)}; give one row per item"
            )
    if len(set(table.names)) != n:
        twice = next(name for name in table.names if table.names.count(name) > 1)
        raise InputError(
            f"{path}: the name {twice} appears twice, but an image has one pose here; give every person an image of "
            "their own"
        )
    seen = np.ones((n, j), dtype=bool) if table.visible is None else table.visible.astype(bool)
    bad = ~np.isfinite(table.joints).all(2) & seen
    if bad.any():
        row, joint = (int(k) for k in np.argwhere(bad)[0])
        raise InputError(
            f"{path}: joint {joint} ({table.body.names[joint]}) of {table.names[row]} is not a number; "
            "mark it 0 in 'visible'"
        )


def _split_by_column(path: Path, table: _Table) -> Parts[int]:
    cells: Sequence[str | None] = table.split or [None] * len(table.names)
    return _rows(path, table.names, split_by_column(path, "split", zip(table.names, cells, strict=True)))


def _split_by_lists(path: Path, names: list[str]) -> Parts[int]:
    lists = read_lists(path, "split")
    known = set(names)
    if unknown := [name for part in lists.values() for name in part if name not in known]:
        raise InputError(f"{path}: {unknown[0]} has no joints ({len(unknown)} such names)")
    return _rows(path, names, split_by_lists(path, **lists))


def _rows(path: Path, names: list[str], parts: Parts[str]) -> Parts[int]:
    row_of = {name: row for row, name in enumerate(names)}
    return Parts(*([row_of[name] for name in part] for part in with_queries(path, parts)))
