"""Your own data as a table: a file, the annotations of COCO, or the images of a folder, whose names may be columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pyarrow

from contml import InputError
from contml._support.endings import JOINTS, TABLES, check_table_suffix, table_suffix
from contml.data.tables import (
    Column,
    Table,
    TableOptions,
    json_table,
    read_table,
    texts_table,
)
from contml.data.text_files import images_below, no_such_file, parsed_json, read_lines

from .._readers.splits import name_lists, part_of, read_lists, split_by_lists
from .coco import coco_table
from .joints import arrays_table, people_table

#: A field of a pattern, or its star.
_FIELD = re.compile(r"(\{[^{}]*\}|\*)")
_PATTERN_HINT = "say what the names mean: --pattern '{age}_*.jpg'; or give a table"


def read_data(path: Path, pattern: str | None, options: TableOptions) -> Table:
    """A table, a file of poses, the annotation file of a data set in the format of COCO, or a folder of images.

    Args:
        path: the file or the folder.
        pattern: the columns in the names of a folder's images.
        options: how a file is read.

    Raises:
        InputError: no such file, another format, damaged, or a pattern that fits no image.
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
    if isinstance(content, dict) and "images" in content:
        return coco_table(path, content, options)
    if isinstance(content, dict) and "people" in content:
        return people_table(path, "JSON of people", content, options)
    if (
        isinstance(content, dict)
        and content
        and all(isinstance(value, list | str | None) for value in content.values())
    ):
        content = [{"image": name, "caption": texts} for name, texts in content.items()]
    return json_table(path, content, options)


def _read_folder(folder: Path, pattern: str | None, options: TableOptions) -> Table:
    """The images below a folder: their parts of a split by folders, and their fields by a pattern, or their classes."""
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
    # A text is often no table.
    endings = [ending for ending in (*TABLES, JOINTS) if ending != ".txt"]
    tables = [path for path in sorted(folder.iterdir()) if table_suffix(path) in endings and path.name[0] != "."][:3]
    if outside := [file for file, parts in zip(files, folders, strict=True) if not parts]:
        hint = f"give the table: {' or '.join(map(str, tables))}" if tables else _PATTERN_HINT
        raise InputError(str(outside[0]), "not in the folder of a class", hint=hint)
    columns["class"] = [parts[0] for parts in folders]
    description = "a folder for each class"
    if any(len(parts) > 1 for parts in folders):
        description += ", the outer of several"
    if tables:
        description += f"; {', '.join(table.name for table in tables)} not read"
    return texts_table(folder, description, columns, files, replace(options, missing_words=[]))  # a class may be None


def _fields(folder: Path, pattern: str, names: Sequence[str]) -> dict[str, list[str]]:
    """The columns that a pattern finds in the names of images; the cells of a name that does not fit are empty.

    A field takes as few characters as possible, a star any, both within a name. The pattern is compared with as many
    folders as it names. Upper and lower case are the same, as in 1.JPG, and so are the Unicode forms of a character.
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
    """The table with a column of the split that lists of names give, and its name; unchanged if `split` is a column.

    The lists are a JSON file, {"train": [...], "val": [...], "test": [...], "queries": [...]} with queries from test,
    or a folder with train.txt, val.txt, test.txt and query.txt. A name may lack the folder and the suffix of the image.

    Args:
        table: the table.
        image: the column of images; None: the first one that has a name of the lists.
        split: a column, or the file or the folder of lists, in the folder of the table or anywhere.

    Raises:
        InputError: other content, a name of no image or of several, or an image in two lists.
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
    """The images of each name: whole, and without folder or suffix where that is no whole name."""
    short: dict[str, set[str]] = {}
    for image in set(cells):
        path = Path(image)
        for name in (str(path.parent / path.stem), path.name, path.stem):
            short.setdefault(name, set()).add(image)
    return short | {image: {image} for image in cells}
