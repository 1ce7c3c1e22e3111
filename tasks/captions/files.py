"""Captions of your own: a CSV or JSON file of images and captions, split by a column or by lists."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contml import InputError
from contml.data import Task

from .reading import Folders, data_folder, read_json, read_text
from .records import Options, Record, make_task

_PARTS = ("train", "test", "query", "val")
#: Other names of the parts.
_SYNONYMS = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "queries": "query"}


def files(
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
) -> Task:
    """A folder of images and one file of captions, .csv or .json.

    A CSV file has a header and one image-caption pair per row: the rows of an image are its captions. A JSON file is a
    list of objects like {"image": "a.jpg", "captions": ["...", "..."], "split": "train"}, or with "caption" for a
    single one, or an object {"a.jpg": ["...", "..."]}. The split is a column of the file: train, test, query (a test
    image that is a query) or val (left out); or lists of names in a JSON file: {"train": [...], "test": [...],
    "queries": [...]}, where queries is a part of test. Where no queries are named, every test image is a query against
    all others, or `queries` of them are. The label distance is a sum over captions, so give every image about as many.

    Args:
        root: the folder of the data set.
        captions: the file of captions in it.
        images: the folder of images in it; names in the file are relative to that.
        image: the column, or key, of image names.
        caption: the column, or key, of captions; in JSON also with an s.
        split: the column, or key, of the split.
        lists: a JSON file in root with lists of names, in place of a column.
        delimiter: between the columns of a CSV file.
        encoding: of the file of captions.
        vectors: a file of word vectors, in root or anywhere: word2vec binary or text, GloVe text, gensim's own;
            null trains Word2Vec on the training captions.
        normalize: scale word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" them.
        queries: how many test images, drawn at random, are queries where none are named; 0: every one.
        dim: dimension of word vectors that are trained.
        seed: of the draw of queries, and of word vectors that are trained.
    """
    folder, folders = data_folder(root), Folders()
    options = Options(vectors, normalize, empty, missing, queries, dim, seed)
    path = folder / captions
    if path.suffix == ".json":
        content = read_json(path, "captions", encoding)
        table = _by_image(path, _json_rows(path, content, image, caption, split))
    elif path.suffix in (".csv", ".tsv", ".txt"):
        text = read_text(path, "captions", encoding)
        table = _by_image(path, _csv_rows(path, text, delimiter, image, caption, split))
    else:
        raise InputError(f"{path}: captions are read from .csv, .tsv, .txt or .json files")
    parts = _parts_of_lists(folder / lists) if lists else _parts_of_column(path, table, split)

    def record(name: str) -> Record:
        place = folder / images / name
        return Record(str(place), folders.find(place), table[name].captions if name in table else [])

    return make_task(
        folder,
        path,
        [record(name) for name in parts.train],
        [record(name) for name in parts.test],
        options,
        [str(folder / images / name) for name in parts.queries],
    )


class _Row(NamedTuple):
    """One row of a file: `where` it is, for errors; `split` is None where the file has none."""

    where: str
    image: str
    captions: list[str]
    split: str | None


class _Captioned(NamedTuple):
    """The captions and the split of an image."""

    captions: list[str]
    split: str | None


class _Parts(NamedTuple):
    """Names of images; the queries are test images too."""

    train: list[str]
    test: list[str]
    queries: list[str]


def _csv_rows(path: Path, text: str, delimiter: str, image: str, caption: str, split: str) -> Iterator[_Row]:
    if len(delimiter) != 1:
        raise InputError(f"delimiter is {delimiter!r}; it must be one character")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = [name.strip() for name in next(rows, [])]
        for option, name in (("image", image), ("caption", caption)):
            if header.count(name) != 1:
                raise InputError(
                    f"{path}:1: {'no' if name not in header else 'more than one'} column '{name}'; the header has "
                    f"{', '.join(header) or 'nothing'}: set {option}, or delimiter"
                )
        image_at, caption_at = header.index(image), header.index(caption)
        split_at = header.index(split) if split in header else None
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
            part = None if split_at is None else row[split_at].strip()
            yield _Row(where, row[image_at].strip(), [row[caption_at]], part)
    except csv.Error as error:
        raise InputError(f"{path}:{line}: not readable as CSV ({error})") from None


def _json_rows(path: Path, content: Any, image: str, caption: str, split: str) -> Iterator[_Row]:
    if isinstance(content, dict):
        content = [{image: name, caption: texts} for name, texts in content.items()]
    if not isinstance(content, list) or not content:
        raise InputError(f"{path}: neither a list of {{{image}, {caption}}} nor an object of captions by image")
    for number, row in enumerate(content):
        where = f"{path}: item {number}"
        if not isinstance(row, dict) or not isinstance(row.get(image), str):
            raise InputError(f"{where} has no '{image}' that is text; set image to the key of the image's name")
        texts = row.get(caption, row.get(f"{caption}s"))
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"{where} ({row[image]}) has no '{caption}' that is text or a list of texts; "
                "set caption to the key of the captions"
            )
        part = row.get(split)
        yield _Row(where, row[image], texts, None if part is None else str(part))


def _by_image(path: Path, rows: Iterator[_Row]) -> dict[str, _Captioned]:
    """The captions and the split of each image; its rows may be anywhere in the file."""
    table: dict[str, _Captioned] = {}
    for row in rows:
        if not row.image:
            raise InputError(f"{row.where}: no image is named")
        captions, before = table.setdefault(row.image, _Captioned([], row.split))
        if row.split != before:
            raise InputError(
                f"{row.where}: {row.image} is in {row.split or 'no split'} here, and in {before or 'none'} before; "
                "give all rows of an image the same split"
            )
        captions += [caption.strip() for caption in row.captions if caption.strip()]
    if not table:
        raise InputError(f"{path}: has no captions")
    return table


def _parts_of_column(path: Path, table: dict[str, _Captioned], column: str) -> _Parts:
    names: dict[str, list[str]] = {part: [] for part in _PARTS}
    for name, (_, split) in table.items():
        if split is None:
            raise InputError(
                f"{path}: {name} has no '{column}'; give every image train, test, query or val, set split to the "
                "name of that column, or lists to a file of lists"
            )
        part = _SYNONYMS.get(split.lower(), split.lower())
        if part not in names:
            raise InputError(f"{path}: {name} has {column} {split!r}; it must be one of {', '.join(_PARTS)}")
        names[part].append(name)
    return _Parts(names["train"], [*names["test"], *names["query"]], names["query"])


def _parts_of_lists(path: Path) -> _Parts:
    content = read_json(path, "lists")
    found = content if isinstance(content, dict) else {}
    parts: dict[str, Any] = {
        "train": found.get("train"),
        "test": found.get("test"),
        "queries": found.get("queries", found.get("test_queries", [])),
    }
    for part, names in parts.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: '{part}' is no list of names; give an object of lists train, test, queries")
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{path}: {repeated} appears twice in {part}")
    test = list(dict.fromkeys([*parts["test"], *parts["queries"]]))  # queries need not be listed as test again
    return _Parts(parts["train"], test, parts["queries"])
