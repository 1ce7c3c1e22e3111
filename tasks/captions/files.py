"""Captions of one's own: a CSV or JSON file of images and captions, split by a column or by lists."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from contml import InputError

from .reading import Folders, a_folder, read_json, read_text
from .records import Options, Record, make_splits

_PARTS = ("train", "test", "query", "val")
#: What other files call the parts.
_ALSO = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "queries": "query"}


class CaptionFiles:
    """A folder of images and one file of captions, .csv or .json.

    A CSV file has a header and one image-caption pair a row: the rows of an image are its captions. A JSON file is a
    list of objects like {"image": "a.jpg", "captions": ["...", "..."], "split": "train"}, where "caption" may stand
    for one, or an object {"a.jpg": ["...", "..."]}. The split is a column of the file: train, test, query (a test
    image that queries) or val (left out); or lists of names in a JSON file: {"train": [...], "test": [...],
    "queries": [...]}, queries being a part of test. Where none query, every test image queries all others, or
    `queries` of them do. The label distance adds up over captions, so give every image about as many.

    Args:
        root: the folder of the data set.
        captions: the file of captions in it.
        images: the folder of images in it; names in the file are relative to that.
        image: the column, or key, of image names.
        caption: that of captions; in JSON also with an s.
        split: that of the split.
        lists: a JSON file in root with lists of names, in place of a column.
        delimiter: between the columns of a CSV file.
        encoding: of the file of captions.
        vectors: a file of word vectors, in root or anywhere: word2vec binary or text, GloVe text, gensim's own;
            null trains Word2Vec on the training captions.
        normalize: word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" them.
        queries: how many test images, drawn at random, query the others where none are named; 0: every one.
        dim: dimension of word vectors that are trained.
        seed: of the draw of queries, and of word vectors that are trained.
    """

    def __init__(
        self,
        root: str,
        captions: str = "captions.csv",
        images: str = "images",
        image: str = "image",
        caption: str = "caption",
        split: str = "split",
        lists: str | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
        vectors: str | None = None,
        normalize: bool = False,
        empty: Literal["refuse", "drop"] = "refuse",
        missing: Literal["refuse", "drop"] = "refuse",
        queries: int = 0,
        dim: int = 100,
        seed: int = 0,
    ) -> None:
        folder, folders = a_folder(root), Folders()
        path = folder / captions
        if path.suffix == ".json":
            table = _gathered(path, _json_rows(path, read_json(path, "captions", encoding), image, caption, split))
        elif path.suffix in (".csv", ".tsv", ".txt"):
            text = read_text(path, "captions", encoding)
            table = _gathered(path, _csv_rows(path, text, delimiter, image, caption, split))
        else:
            raise InputError(f"{path}: captions are read from .csv, .tsv, .txt or .json files")
        parts = _listed(folder / lists) if lists else _told(path, table, split)

        def records(names: list[str]) -> list[Record]:
            places = [folder / images / name for name in names]
            return [
                Record(str(place), folders.find(place), table.get(name, ([], None))[0])
                for name, place in zip(names, places, strict=True)
            ]

        self.train, self.test = make_splits(
            folder,
            path,
            records(parts["train"]),
            records(parts["test"]),
            Options(vectors, normalize, empty, missing, queries, dim, seed),
            [str(folder / images / name) for name in parts["query"]],
        )


#: Where a row stands, its image, its captions, and its split where it has one.
_Row = tuple[str, str, list[str], str | None]
_Table = dict[str, tuple[list[str], str | None]]


def _csv_rows(path: Path, text: str, delimiter: str, image: str, caption: str, split: str) -> Iterator[_Row]:
    if len(delimiter) != 1:
        raise InputError(f"task.delimiter={delimiter!r}: it is one character")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = [name.strip() for name in next(rows, [])]
        for option, name in (("image", image), ("caption", caption)):
            if header.count(name) != 1:
                raise InputError(
                    f"{path}:1: {'no' if name not in header else 'more than one'} column '{name}'; the header has "
                    f"{', '.join(header) or 'nothing'}: set task.{option}, or task.delimiter"
                )
        at, said, part = (header.index(name) if name in header else None for name in (image, caption, split))
        assert at is not None
        assert said is not None
        line = rows.line_num + 1
        for row in rows:
            where, line = f"{path}:{line}", rows.line_num + 1  # a quoted caption may hold line breaks
            if not any(field.strip() for field in row):
                continue
            if len(row) != len(header):
                raise InputError(
                    f"{where}: {len(row)} fields, but the header has {len(header)}; "
                    f"put captions that hold '{delimiter}' in double quotes"
                )
            yield where, row[at].strip(), [row[said]], None if part is None else row[part].strip()
    except csv.Error as error:
        raise InputError(f"{path}:{line}: not readable as CSV ({error})") from None


def _json_rows(path: Path, told: Any, image: str, caption: str, split: str) -> Iterator[_Row]:
    if isinstance(told, dict):
        told = [{image: name, caption: said} for name, said in told.items()]
    if not isinstance(told, list) or not told:
        raise InputError(f"{path}: neither a list of {{{image}, {caption}}} nor an object of captions by image")
    for number, row in enumerate(told):
        where = f"{path}: item {number}"
        if not isinstance(row, dict) or not isinstance(row.get(image), str):
            raise InputError(f"{where} has no '{image}' that is text; set task.image to the key of the image's name")
        said = row.get(caption, row.get(f"{caption}s"))
        said = [said] if isinstance(said, str) else said
        if not isinstance(said, list) or not all(isinstance(text, str) for text in said):
            raise InputError(f"{where} ({row[image]}) has no '{caption}' that is text or a list of texts")
        part = row.get(split)
        yield where, row[image], said, None if part is None else str(part)


def _gathered(path: Path, rows: Iterator[_Row]) -> _Table:
    """The captions and the split of each image; its rows need not stand together."""
    table: _Table = {}
    for where, name, said, part in rows:
        if not name:
            raise InputError(f"{where}: no image is named")
        captions, before = table.setdefault(name, ([], part))
        if part != before:
            raise InputError(f"{where}: {name} is in {part or 'no split'} here, and in {before or 'none'} before")
        captions += [caption.strip() for caption in said if caption.strip()]
    if not table:
        raise InputError(f"{path}: has no captions")
    return table


def _told(path: Path, table: _Table, column: str) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {part: [] for part in _PARTS}
    for name, (_, told) in table.items():
        if told is None:
            raise InputError(
                f"{path}: {name} has no '{column}'; give every image train, test, query or val, set task.split to the "
                "column that tells it, or task.lists to a file of lists"
            )
        part = _ALSO.get(told.lower(), told.lower())
        if part not in parts:
            raise InputError(f"{path}: {name} has {column} {told!r}; it takes {', '.join(_PARTS)}")
        parts[part].append(name)
    return {"train": parts["train"], "test": [*parts["test"], *parts["query"]], "query": parts["query"]}


def _listed(path: Path) -> dict[str, list[str]]:
    told = read_json(path, "lists")
    found = told if isinstance(told, dict) else {}
    parts = {
        "train": found.get("train"),
        "test": found.get("test"),
        "query": found.get("queries", found.get("test_queries", [])),
    }
    for part, names in parts.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: '{part}' is no list of names; it is an object of lists train, test, queries")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{path}: {twice} stands twice in {part}")
    return {
        "train": parts["train"] or [],
        "test": list(dict.fromkeys([*(parts["test"] or []), *(parts["query"] or [])])),
        "query": parts["query"] or [],
    }
