"""Your own data as a table: a file, the annotations of COCO, or the images of a folder, whose names may be columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

from contml import InputError
from contml._support.endings import TABLES, check_table_suffix, table_suffix
from contml.data.sources import images_below
from contml.data.tables import (
    Table,
    TableOptions,
    json_table,
    read_table,
    texts_table,
)
from contml.data.text_files import no_such_file, parsed_json

from .._readers.splits import part_of
from .coco import coco_table

#: A field of a pattern, or its star.
_FIELD = re.compile(r"(\{[^{}]*\}|\*)")
_PATTERN_HINT = "say what the names mean: --pattern '{age}_*.jpg'; or give a table"


def read_data(path: Path, pattern: str | None, options: TableOptions) -> Table:
    """A table, the annotation file of a data set in the format of COCO, or a folder of images.

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
    check_table_suffix(path, "be a folder, or ")
    if table_suffix(path) != ".json":
        return read_table(path, options)
    content = parsed_json(str(path), options.text(path))
    if isinstance(content, dict) and "images" in content:
        return coco_table(path, content, options)
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
    endings = [ending for ending in TABLES if ending != ".txt"]
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
