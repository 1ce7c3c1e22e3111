"""Your own poses: a folder of images and a file of joints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from contml import InputError
from contml._support.arrays import read_arrays
from contml._support.validation import check_ranges
from contml.data import ImageFile, Split, Task
from contml.data.text_files import is_missing, no_such_file, read_json
from contml.data.values import flags, pairs, points

from .._readers.folders import DiskFiles, data_folder, image_folders, refuse_absent
from .._readers.splits import SplitItems, read_lists, split_by_column, split_by_lists, with_queries
from .bodies import LSP, Body
from .people import Array, make_split, refuse_misplaced


@check_ranges
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
    optionally `visible` [N, J] (0 or 1), `split` [N] ("train", "val", "test", or "query" for a test image that is a
    query), `joint_names` [J], `skeleton` [E, 2]. `joints.json` holds the same as `{"joint_names": [...], "skeleton":
    [...], "people": [{"name", "joints", "visible", "split"}, ...]}`. If no query is named, a fifth of the test images
    are the queries, drawn by their names. Without test images, the validation images are evaluated.

    Args:
        root: the folder of the data set.
        joints: the file of joints in it: .npz or .json.
        images: the folder of images in it, or a list of folders, which are searched in order.
        split: a JSON file in it with lists of names: "train", "val", "test", and "queries" (a part of "test");
            default: the split in the file of joints.
        squared: use squared Euclidean pose distances; give the loss's `squared` the same value.
        normalize: poses in the frame of the person, so that neither position nor size counts.
        hidden: what to do with items that have at most half of their joints visible: "refuse", or "drop" them.
    """
    folder, on_disk = data_folder(root, "your pose data"), DiskFiles()
    path = folder / joints
    table = _read(path)
    parts = _split(path, table, folder / split if split else None)
    folders = image_folders(folder, images)
    paths = [on_disk.locate(folders, name) for name in table.names]
    missing_files = [paths[row] for part in parts for row in part if not on_disk.has(paths[row])]
    refuse_absent(missing_files, len(paths), f"images of {path.name}", can_drop=False)
    rows = [row for part in parts for row in part]
    marked = np.ones(table.joints.shape[:2], bool) if table.visible is None else table.visible
    refuse_misplaced(
        ((f"{path}: joints of {table.names[row]}", paths[row], table.joints[row], marked[row]) for row in rows),
        table.body,
    )

    def make(rows: list[int], queries: int = 0) -> Split:
        return make_split(
            [ImageFile(paths[row]) for row in rows],
            [str(paths[row]) for row in rows],
            table.joints[rows],
            None if table.visible is None else table.visible[rows],
            range(queries),
            table.body,
            squared=squared,
            normalize=normalize,
            hidden=hidden,
        )

    test_rows = [*parts.queries, *parts.gallery]
    test = make(test_rows, len(parts.queries)) if parts.queries else None
    return Task(make(parts.train), test, make(parts.val) if parts.val else None)


#: Bytes that the arrays of a file may unpack to: the joints of a million people take 300 MB.
_MOST_BYTES = 1 << 29


class _Table(NamedTuple):
    names: list[str]
    joints: Array  # [N,J,2]
    visible: Array | None  # [N,J]
    split: list[str | None]
    body: Body


def _read(path: Path) -> _Table:
    try:
        if path.suffix == ".npz":
            try:
                values: dict[str, Any] = read_arrays(path, _MOST_BYTES)
            except FileNotFoundError:
                raise no_such_file(path, "joints") from None
        elif path.suffix == ".json":
            values = _columns(path, read_json(path, "joints"))
        else:
            raise InputError("joints", str(path), "must be a .npz or .json file")
        table = _table(path, values)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        allowed = f"must be a {path.suffix} file with the same form for all items"
        raise InputError(str(path), " ".join(str(error).split()), allowed) from None
    _check(path, table)
    return table


def _table(path: Path, values: dict[str, Any]) -> _Table:
    if missing_keys := [key for key in ("names", "joints") if key not in values]:
        problem = f"no '{missing_keys[0]}', only {', '.join(values) or 'nothing'}"
        raise InputError(str(path), problem, "must have names and joints")
    names = [_name(path, row, name) for row, name in enumerate(values["names"])]
    joints = _by_item(path, "joints", names, values["joints"], points)
    if joints.ndim != 3 or joints.shape[2] != 2:
        raise InputError(str(path), f"joints are {list(joints.shape)}", "must be numbers [items, joints, 2]")
    count = joints.shape[1]
    body = LSP if count == len(LSP.names) else Body([str(joint) for joint in range(count)], ())
    joint_names = [str(name) for name in values.get("joint_names", body.names)]
    if len(joint_names) != count:
        raise InputError(
            str(path), f"{len(joint_names)} joint_names for {count} joints", hint="give one name per joint"
        )
    skeleton = pairs(values.get("skeleton", body.skeleton), count, 0, f"{path}: skeleton")
    visible = None
    if values.get("visible") is not None:
        visible = _by_item(path, "visible", names, values["visible"], _visible)
    split: list[str | None] = [None] * len(names)
    if values.get("split") is not None:
        split = [_part(part) for part in values["split"]]
    return _Table(names, joints, visible, split, Body(joint_names, skeleton))


def _name(path: Path, row: int, value: Any) -> str:
    """The name of an item; numpy writes some as bytes."""
    name = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    if not isinstance(name, str) or not name:
        raise InputError(f"{path}: item {row}", f"its name is {value!r:.40}", "must be the name of an image file")
    return str(name)


def _by_item(path: Path, key: str, names: Sequence[str], values: Any, convert: Callable[[Any, str], Array]) -> Array:
    """The values of all items, converted; an error names the item."""
    try:
        return convert(values, f"{path}: {key}")
    except InputError as error:
        for name, row in zip(names, values, strict=False):
            convert(row, f"{path}: {key} of {name}")  # raises for the item that is wrong
        raise error from None


def _visible(values: Any, where: str) -> Array:
    return flags(values, where, "of confidences, write 1 where they are high enough; of COCO's v, where it is above 0")


def _part(value: Any) -> str:
    """A cell of the split; a missing one is empty: the item is not used."""
    return "" if is_missing(value) else str(value)


def _columns(path: Path, content: Any) -> dict[str, Any]:
    """The people of a JSON file as columns, named as in a .npz file."""
    people = content.get("people") if isinstance(content, dict) else None
    if not isinstance(people, list) or not people or not all(isinstance(person, dict) for person in people):
        raise InputError(str(path), "no list 'people'", hint="list {name, joints, visible, split} of each person")
    values: dict[str, Any] = {key: content[key] for key in ("joint_names", "skeleton") if key in content}
    for key, column in (("name", "names"), ("joints", "joints"), ("visible", "visible"), ("split", "split")):
        has_key = [key in person for person in people]
        if any(has_key) and not all(has_key):
            problem = f"person {has_key.index(False)} has no '{key}'"
            raise InputError(str(path), problem, hint=f"give '{key}' to all people or to none")
        if has_key[0]:
            values[column] = [person[key] for person in people]
    if not all(isinstance(joints, list) for joints in values.get("joints", [])):
        raise InputError(str(path), "a person's joints are no list", "must be [[x, y], ...]")
    if "joints" in values:  # null is an unknown joint
        values["joints"] = [[[None, None] if joint is None else joint for joint in row] for row in values["joints"]]
    lengths = {len(joints) for joints in values.get("joints", [])}
    if len(lengths) > 1:
        hint = "list all joints of each person, and set 'visible' to 0 where a joint is unknown"
        raise InputError(str(path), f"people have {sorted(lengths)} joints", hint=hint)
    return values


def _check(path: Path, table: _Table) -> None:
    num_items, num_joints = len(table.names), table.joints.shape[1]
    for name, shape, expected_shape in (
        ("names", (num_items,), (len(table.joints),)),
        ("visible", None if table.visible is None else table.visible.shape, (num_items, num_joints)),
        ("split", (len(table.split),), (num_items,)),
    ):
        if shape not in (None, expected_shape):
            problem = f"{name} are {list(shape)}, joints {list(table.joints.shape)}"
            raise InputError(str(path), problem, hint="give one row per item")
    if len(set(table.names)) != num_items:
        repeated_name = next(name for name in table.names if table.names.count(name) > 1)
        raise InputError(str(path), f"{repeated_name} appears twice", hint="give every person an image of their own")
    missing = ~np.isfinite(table.joints).all(2) & (True if table.visible is None else table.visible)
    if missing.any():
        row, joint = (int(index) for index in np.argwhere(missing)[0])
        problem = f"joint {joint} ({table.body.names[joint]}) of {table.names[row]} is not a number"
        raise InputError(str(path), problem, hint="set 'visible' to 0 there")


def _split(path: Path, table: _Table, lists_file: Path | None) -> SplitItems[int]:
    """Rows of the training items, the queries, and the other test items."""
    if lists_file is None:
        parts = split_by_column(path, "split", zip(table.names, table.split, strict=True))
    else:
        path, lists, known_names = lists_file, read_lists(lists_file, "split"), set(table.names)
        if unknown := [name for part in lists.values() for name in part if name not in known_names]:
            raise InputError(str(path), f"{unknown[0]} has no joints ({len(unknown)} such names)")
        parts = split_by_lists(path, **lists)
    row_of = {name: row for row, name in enumerate(table.names)}
    return SplitItems(*([row_of[name] for name in part] for part in with_queries(path, parts)))
