"""Your own data as a table: a file, poses, annotations of COCO, or a folder with columns in image names."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

import numpy as np
import pyarrow

from contml import InputError
from contml._support.arrays import read_arrays
from contml._support.files import JOINTS, TABLES, check_table_suffix, table_suffix
from contml.data.tables import Column, Table, TableOptions, json_table, read_table, records_table, texts_table
from contml.data.text_files import images_below, no_such_file, parsed_json, read_lines
from contml.data.values import flag, pairs

from .._readers.coco_files import Field, check_coco, listed_images, names_and_limbs
from .._readers.splits import name_lists, part_of, read_lists, split_by_lists
from ..pose.bodies import Body
from .cells import TableReading
from .image_labels import unnamed

_Entry: TypeAlias = dict[str, Any]
_FIELDS: dict[str, dict[str, Field]] = {
    "images": {"id": "id", "file_name": "text"},
    "annotations": {"id": "id", "image_id": "id"},
}
#: The keys of COCO for an image besides its name. Other keys of images are columns.
_KNOWN = ("id", "file_name", "width", "height", "license", "coco_url", "flickr_url", "flickr_640_url", "date_captured")
_POSES = "keypoints of several persons in an image, whom pose/coco crops: contml train pose/coco task.root=FOLDER"


def coco_table(path: Path, content: dict[str, Any], options: TableReading) -> Table:
    """Return the images of an annotation file, with the labels of their annotations.

    `category` holds the names of the categories of an image, each once. It is a single name if every image has at most
    one annotation. `caption` holds the captions of an image. `keypoints` holds its keypoints [[x, y, v], ...] if no
    image has keypoints of two persons. Other keys of the images are columns too.

    Args:
        path: the file.
        content: the content of the file.
        options: the largest size of the file, and the words for a missing value.

    Raises:
        InputError: the file has another form.
    """
    if "annotations" not in content:
        hint, images = "", content.get("images")
        if isinstance(images, list) and images and isinstance(images[0], dict) and "sentences" in images[0]:
            hint = "read Karpathy's files by captions/coco or captions/flickr: task.karpathy=FILE"
        raise InputError(str(path), "has no list 'annotations'", "must be an annotation file of COCO", hint)
    check_coco(path, content, "data", "annotation file", _FIELDS)
    listed = listed_images(path, content)
    names = _category_names(path, content)
    notes: dict[Any, list[dict[str, Any]]] = {number: [] for number in listed}
    left_out: Counter[str] = Counter()
    for note in content["annotations"]:
        if note["image_id"] not in listed:
            left_out["annotations of images that are not listed"] += 1
            continue
        where = f"{path}: annotation {note['id']}"
        if note.get("iscrowd") is not None and flag(note["iscrowd"], f"{where}: iscrowd"):
            left_out["crowds"] += 1
            continue
        if names and "category_id" in note and note["category_id"] not in names:
            raise InputError(where, f"category_id is {note['category_id']!r:.40}", "must be a category of the file")
        notes[note["image_id"]].append(note)
    if options.box is not None:
        objects = enumerate(_objects(path, listed, notes, names), start=1)
        return records_table(path, "COCO", objects, options, numbered=False, left_out=left_out)
    single = all(len(annotations) <= 1 for annotations in notes.values())
    bodies = {names_and_limbs(path, each) for each in content.get("categories") or [] if each.get("keypoints")}
    poses = {number: [note for note in each if note.get("keypoints")] for number, each in notes.items()}
    has_poses, is_one = any(poses.values()), len(bodies) == 1 and all(len(each) <= 1 for each in poses.values())
    records = []
    for number, image in listed.items():
        record = {"image": image["file_name"], **{key: value for key, value in image.items() if key not in _KNOWN}}
        categories = [names[note["category_id"]] for note in notes[number] if note.get("category_id") in names]
        captions = [str(note["caption"]) for note in notes[number] if note.get("caption") is not None]
        if names and not captions:
            record["category"] = next(iter(categories), None) if single else list(dict.fromkeys(categories))
        if captions:
            record["caption"] = captions
        if has_poses and is_one:
            record["keypoints"] = next((_triples(path, note) for note in poses[number]), None)
        records.append(record)
    table = records_table(path, "COCO", enumerate(records, start=1), options, numbered=False, left_out=left_out)
    if has_poses and not is_one:
        return replace(table, opaque={"keypoints": _POSES})
    return replace(table, about={"keypoints": Body(*bodies.pop())}) if has_poses else table


def _objects(
    path: Path, images: Mapping[Any, _Entry], notes: Mapping[Any, list[_Entry]], names: Mapping[Any, str]
) -> Iterator[_Entry]:
    """Yield a record for each annotation with a box: the image, the box, and the category or the caption."""
    for number, image in images.items():
        for note in notes[number]:
            if note.get("bbox") is None:
                raise InputError(f"{path}: annotation {note['id']}", "has no bbox", "omit the box to read whole images")
            record = {"image": image["file_name"], "bbox": note["bbox"]}
            if "category_id" in note and names:
                record["category"] = names[note["category_id"]]
            yield record | ({"caption": str(note["caption"])} if note.get("caption") is not None else {})


def _triples(path: Path, note: Mapping[str, Any]) -> list[list[Any]]:
    """Return the keypoints of an annotation, x, y and v of each."""
    values = note["keypoints"]
    if not isinstance(values, list) or len(values) % 3:
        raise InputError(f"{path}: annotation {note['id']}", f"keypoints are {values!s:.60}", "must be x, y, v of each")
    return [values[start : start + 3] for start in range(0, len(values), 3)]


def _category_names(path: Path, content: Mapping[str, Any]) -> dict[Any, str]:
    """Return the name of each category. Return no names if the file has no categories, as with captions."""
    names: dict[Any, str] = {}
    categories = content.get("categories") or []
    for number, category in enumerate(categories if isinstance(categories, list) else [None]):
        if not isinstance(category, dict) or not isinstance(category.get("name"), str) or "id" not in category:
            raise InputError(f"{path}: entry {number} of 'categories'", "has another form", "must be {id, name}")
        if category["id"] in names:
            raise InputError(f"{path}: category {category['id']}", "this id appears twice", "ids must be unique")
        names[category["id"]] = category["name"]
    return names


#: The largest size of the unpacked arrays of a file in bytes. The joints of a million people take 300 MB.
_MOST_BYTES = 1 << 29
_JOINTS = "joints"


def arrays_table(path: Path, options: TableOptions) -> Table:
    """Read the table of a .npz file.

    The arrays are `names` [N] of images, `joints` [N, J, 2], perhaps `visible` [N, J], and others [N].

    Raises:
        InputError: the file is missing, damaged or too large, or an array is missing or has another shape.
    """
    try:
        arrays = read_arrays(path, min(options.max_bytes, _MOST_BYTES))
    except FileNotFoundError:
        raise no_such_file(path) from None
    names, joints, visible = (arrays.get(key) for key in ("names", _JOINTS, "visible"))
    if names is None or joints is None:
        raise InputError(str(path), f"has {', '.join(arrays) or 'nothing'}", "must have the arrays names and joints")
    shapes = f"names {list(names.shape)}, joints {list(joints.shape)}"
    fits = joints.ndim == 3 and joints.shape[::2] == (*names.shape, 2)
    if visible is not None:
        shapes, fits = f"{shapes}, visible {list(visible.shape)}", fits and visible.shape == joints.shape[:2]
    if not fits:
        raise InputError(str(path), shapes, "must be names [N], joints [N, J, 2] and visible [N, J]")
    if joints.dtype.kind not in "iuf" or (visible is not None and visible.dtype.kind not in "biuf"):
        raise InputError(str(path), f"joints are {joints.dtype}", "must be numbers")
    others = {key: array for key, array in arrays.items() if array.shape == names.shape and key != "names"}
    rows = zip(_texts(names), joints.tolist(), *map(_texts, others.values()), strict=True)
    people = [{"name": name, _JOINTS: pose, **dict(zip(others, each, strict=True))} for name, pose, *each in rows]
    if visible is not None:
        people = [{**person, "visible": flags} for person, flags in zip(people, visible.tolist(), strict=True)]
    body: _Entry = {key: arrays[key].tolist() for key in ("joint_names", "skeleton") if key in arrays}
    return people_table(path, "arrays", {**body, "people": people}, options)


def _texts(array: np.ndarray[Any, Any]) -> list[Any]:
    """Return the values of an array. Bytes become texts, as numpy writes some texts as bytes."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in array.tolist()]


def people_table(path: Path, form: str, content: Mapping[str, Any], options: TableOptions) -> Table:
    """Return the table of {"people": [{name, joints, visible, ...}, ...]}, perhaps with "joint_names" and "skeleton".

    The third number of a joint is its flag in `visible`. Images are beside the file, or in a folder "images" beside the
    file.

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
    """Return the names and the limbs in the file."""
    joints = records[0][1][_JOINTS]
    body = unnamed(len(joints) if isinstance(joints, list) else 0)
    names = content.get("joint_names", body.names)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: joint_names", f"{names!s:.60}", "must be a list of names")
    return Body(names, pairs(content.get("skeleton", body.skeleton), len(names), 0, f"{path}: skeleton"))


def _with_flags(where: str, joints: Any, visible: Any) -> Any:
    if visible is None or not isinstance(joints, list) or not all(isinstance(joint, list | None) for joint in joints):
        return joints
    if not isinstance(visible, list) or len(visible) != len(joints):
        raise InputError(where, f"{visible!s:.60} is visible", f"must be a list of {len(joints)} flags")
    return [[*(joint or (None, None)), flag] for joint, flag in zip(joints, visible, strict=True)]


#: A field of a pattern, or its star.
_FIELD = re.compile(r"(\{[^{}]*\}|\*)")
_PATTERN_HINT = "say what the names mean: --pattern '{age}_*.jpg'; or give a table"


def read_data(path: Path, pattern: str | None, options: TableReading) -> Table:
    """Read a table, a file of poses, an annotation file in the format of COCO, or a folder of images.

    Args:
        path: the file or the folder.
        pattern: the columns in the names of a folder's images.
        options: options of reading a file.

    Raises:
        InputError: the file is missing, damaged or in another format, or the pattern fits no image.
    """
    if path.is_dir():
        return _read_folder(path, pattern, options)
    if pattern is not None:
        raise InputError("pattern", f"used with the file {path}", hint="give the folder of the images as data")
    if not path.exists():
        raise no_such_file(path)
    check_table_suffix(path, JOINTS)
    if table_suffix(path) == JOINTS:
        return arrays_table(path, options)
    if table_suffix(path) != ".json":
        return read_table(path, options)
    content = parsed_json(str(path), options.text(path))
    found = content if isinstance(content, dict) else {}
    if "images" in found:
        return coco_table(path, found, options)
    if "people" in found:
        return people_table(path, "JSON of people", found, options)
    if found and all(isinstance(value, list | str | None) for value in found.values()):
        content = [{"image": name, "caption": texts} for name, texts in found.items()]
    return json_table(path, content, options)


def _read_folder(folder: Path, pattern: str | None, options: TableOptions) -> Table:
    """Return the images below a folder, with their parts of a split by folders, and their labels.

    The labels are the fields of a pattern, or the classes that folders name.
    """
    files = images_below(folder)
    folders = [file.relative_to(folder).parts[:-1] for file in files]
    while folders and all(folders) and len({parts[0] for parts in folders}) == 1:
        folders = [parts[1:] for parts in folders]  # photos/images/CLASS/1.jpg: all images are in one folder
    columns = {"image": [file.relative_to(folder).as_posix() for file in files]}
    if all(parts and part_of(parts[0]) for parts in folders) and len({parts[0] for parts in folders}) > 1:
        columns["split"] = [parts[0] for parts in folders]
        folders = [parts[1:] for parts in folders]
    if pattern is not None:
        columns |= _fields(folder, pattern, columns["image"])
        return texts_table(folder, f"names like {pattern}", columns, files, options)
    # A text file is often not a table.
    endings = [ending for ending in (*TABLES, JOINTS) if ending != ".txt"]
    tables = [path for path in sorted(folder.iterdir()) if table_suffix(path) in endings and path.name[0] != "."][:3]
    if outside := [file for file, parts in zip(files, folders, strict=True) if not parts]:
        hint = f"give the table: {' or '.join(map(str, tables))}" if tables else _PATTERN_HINT
        raise InputError(str(outside[0]), "not in the folder of a class", hint=hint)
    columns["class"] = [parts[0] for parts in folders]
    description = "a folder for each class" + ", the outer of several" * any(len(parts) > 1 for parts in folders)
    if tables:
        description += f"; {', '.join(table.name for table in tables)} not read"
    return texts_table(folder, description, columns, files, replace(options, missing_words=[]))  # "None" may be a class


def _fields(folder: Path, pattern: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns that a pattern finds in the names of images. The cells of a name that does not fit are empty.

    A field takes the fewest possible characters. A star takes any characters. Neither goes beyond one part of a path.
    The pattern must fit the end of a path, with as many folders as the pattern contains. Upper and lower case are the
    same, as in 1.JPG. The Unicode forms of a character are the same too.
    """
    texts, marks = _FIELD.split(pattern)[::2], _FIELD.split(pattern)[1::2]
    fields = [mark[1:-1].strip() for mark in marks if mark != "*"]
    invalid = len(set(fields)) < len(fields) or {"", "image", "split"} & {*fields} or set("{}") & set("".join(texts))
    if not fields or invalid:
        allowed = "must have fields with different names, not image or split, as in '{age}_{sex}_*.jpg'"
        raise InputError("pattern", pattern, allowed)
    pairs = zip(texts, [*("[^/]*" if mark == "*" else "([^/]+?)" for mark in marks), ""], strict=True)
    expression = "(?:.*/)?" + "".join(re.escape(normalize("NFC", text)) + mark for text, mark in pairs)
    regex = re.compile(expression, re.DOTALL | re.IGNORECASE)
    matches = [regex.fullmatch(normalize("NFC", name)) for name in names]
    if not any(matches):
        raise InputError("pattern", pattern, f"fits no image in {folder}", f"one of them is {names[0]}")
    cells = [[""] * len(fields) if match is None else match.groups() for match in matches]
    return {field: list(column) for field, column in zip(fields, zip(*cells, strict=True), strict=True)}


def with_listed_split(table: Table, image: str | None, split: str | None) -> tuple[Table, str | None]:
    """Add a column of the split that lists of names define. Return the table and the name of the column.

    The table is unchanged if `split` is a column. The lists are a JSON file, {"train": [...], "val": [...], "test":
    [...], "queries": [...]} with queries from test, or a folder with train.txt, val.txt, test.txt and query.txt. A name
    may lack the folder and the suffix of the image.

    Args:
        table: the table.
        image: the column of images. None: the first column that has a name of the lists.
        split: a column, or the file or the folder of lists, in the folder of the table or anywhere.

    Raises:
        InputError: the lists have another form, a name fits no or several images, or an image is in two lists.
    """
    path = None if split is None or split in table else table.root / Path(split).expanduser()
    if path is None or not path.exists():
        return table, split
    if path.is_dir():
        files = sorted(file for file in path.glob("*.txt") if part_of(file.stem))
        lists = name_lists(path, {file.stem: [line.strip() for _, line in read_lines(file)] for file in files})
    else:
        lists = read_lists(path, "split")
    wanted = {name for names in lists.values() for name in names}
    for column in [image] if image is not None else table.columns:
        cells = table.texts(column, "images", "image")
        images = _images_by_name(cells)
        if not wanted.isdisjoint(images):
            break
    found: dict[str, list[str]] = {}
    for part, names in lists.items():
        for name in names:
            if len(images.get(name, ())) != 1:
                got = f"'{name}' of {part} is the name of {len(images.get(name, ()))} images"
                raise InputError(str(path), got, "must be the name of one image of the table")
        found[part] = [next(iter(images[name])) for name in names]
    parts = zip(("train", "val", "query", "test"), split_by_lists(path, **found), strict=True)
    part_of_image = {each: part for part, items in parts for each in items}
    values = pyarrow.array([part_of_image.get(cell) for cell in cells], pyarrow.large_string())
    return replace(table, columns={**table.columns, path.name: Column(pyarrow.chunked_array([values]))}), path.name


def _images_by_name(cells: Sequence[str]) -> dict[str, set[str]]:
    """Return the images that each name may mean.

    Names are whole cells, and cells without folder or suffix. A whole cell means only its own image.
    """
    short: dict[str, set[str]] = {}
    for image in set(cells):
        path = Path(image)
        for name in (str(path.parent / path.stem), path.name, path.stem):
            short.setdefault(name, set()).add(image)
    return short | {image: {image} for image in cells}
