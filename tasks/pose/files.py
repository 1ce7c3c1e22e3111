"""A folder of images and one file of joints: the plain form, for pose data of your own."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from contml import InputError
from contml.data import ImageFile, Split, Task

from .bodies import LSP, Body
from .split import make_split


def files(
    root: str,
    joints: str = "joints.npz",
    images: str = "images",
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
        images: the folder of images, in the folder.
        split: a JSON file in the folder with lists of names: "train", "test", and "queries" (a part of "test");
            default: the split in the file of joints.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither position nor size counts.
        hidden: what to do with items that have at most half of their joints visible: "refuse", or "drop" them.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"task.root={root}: no such folder; give the folder of your pose data")
    path = folder / joints
    table = _read(path)
    _check(path, table)
    parts = _named_split(folder / split, table.names) if split else _kept_split(path, table)
    paths = [folder / images / name for name in table.names]
    if missing := [paths[row] for part in parts.values() for row in part if not paths[row].is_file()]:
        raise InputError(
            f"{missing[0]}: no such image ({len(missing)} of {len(table.names)} named in {path.name} are missing); "
            "check task.images and the names"
        )

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

    return Task(train=make(parts["train"], 0), test=make(parts["query"] + parts["test"], len(parts["query"])))


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
            values = _columns(path, json.loads(path.read_text(encoding="utf-8")))
        else:
            raise InputError(f"{path}: not a .npz or .json file; joints are read from these")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; task.joints names the file of joints in {path.parent}") from None
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


def _kept_split(path: Path, table: _Table) -> dict[str, list[int]]:
    if table.split is None:
        raise InputError(f"{path}: has no 'split' of train and test; add one, or name a file of lists with task.split")
    if unknown := set(table.split) - {"train", "test", "query"}:
        raise InputError(f"{path}: split has {sorted(unknown)}; it must be train, test or query")
    parts: dict[str, list[int]] = {name: [] for name in ("train", "test", "query")}
    for row, name in enumerate(table.split):
        parts[name].append(row)
    return _with_queries(path, parts)


def _named_split(path: Path, names: list[str]) -> dict[str, list[int]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        lists: dict[str, Any] = {
            "train": content["train"],
            "test": content["test"],
            "query": content.get("queries", content.get("test_queries", [])),
        }
        if not all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in lists.values()):
            raise TypeError
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; task.split names a JSON file of lists train, test, queries") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not a JSON object with lists of names 'train' and 'test'") from None
    row_of = {name: row for row, name in enumerate(names)}
    if unknown := [name for part in lists.values() for name in part if name not in row_of]:
        raise InputError(f"{path}: {unknown[0]} has no joints ({len(unknown)} such names)")
    for part, members in lists.items():
        if len(set(members)) < len(members):
            twice = next(name for name in members if members.count(name) > 1)
            raise InputError(f"{path}: {twice} appears twice in {part}")
    if both := set(lists["train"]) & (set(lists["test"]) | set(lists["query"])):
        raise InputError(f"{path}: {min(both)} is in train and in test ({len(both)} such names)")
    query = set(lists["query"])
    lists["test"] = [name for name in lists["test"] if name not in query]
    return _with_queries(path, {part: [row_of[name] for name in members] for part, members in lists.items()})


def _with_queries(path: Path, parts: dict[str, list[int]]) -> dict[str, list[int]]:
    if not parts["query"]:
        fifth = len(parts["test"]) // 5
        parts = {"train": parts["train"], "query": parts["test"][:fifth], "test": parts["test"][fifth:]}
    if len(parts["train"]) < 3 or len(parts["test"]) < 2 or not parts["query"]:
        sizes = ", ".join(f"{len(rows)} {name}" for name, rows in parts.items())
        raise InputError(
            f"{path}: the split has {sizes}; training needs at least 3, an evaluation 1 query and 2 others"
        )
    return parts
