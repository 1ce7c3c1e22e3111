"""Captions of your own: a CSV or JSON file of images and captions, split by a column or by lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contml import InputError
from contml.data import Task

from .._readers.folders import Files, data_folder, image_folders
from .._readers.splits import part_of, read_lists, split_by_column, split_by_lists
from .._readers.text import read_csv, read_json
from .records import Options, Record, make_task


def files(
    root: str,
    captions: str = "captions.csv",
    images: str | list[str] = "images",
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
        images: the folder of images in it, or several; names in the file are relative to that. A file is looked for in
            each in turn.
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
    folder, on_disk = data_folder(root), Files()
    places = image_folders(folder, images)
    options = Options(vectors, normalize, empty, missing, queries, dim, seed)
    path = folder / captions
    if path.suffix == ".json":
        rows = _json_rows(path, read_json(path, "captions", encoding), image, caption, split)
    elif path.suffix in (".csv", ".tsv", ".txt"):
        rows = _csv_rows(path, delimiter, encoding, image, caption, split)
    else:
        raise InputError(f"{path}: captions are read from .csv, .tsv, .txt or .json files")
    table = _by_image(path, rows)
    parts = _parts_of_lists(folder / lists) if lists else _parts_of_column(path, table, split)

    def record(name: str) -> Record:
        return Record.of(on_disk, on_disk.locate(places, name), table[name].captions if name in table else [])

    return make_task(
        folder,
        path,
        [record(name) for name in parts.train],
        [record(name) for name in parts.test],
        options,
        [str(on_disk.locate(places, name)) for name in parts.queries],
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


def _csv_rows(path: Path, delimiter: str, encoding: str, image: str, caption: str, split: str) -> Iterator[_Row]:
    columns = {image: "image", caption: "caption"}
    for line, row in read_csv(path, "captions", columns, delimiter, encoding)[1]:
        yield _Row(f"{path}:{line}", row[image], [row[caption]], row.get(split))


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


class _Parts(NamedTuple):
    """Names of images; the queries are test images too."""

    train: list[str]
    test: list[str]
    queries: list[str]


def _parts_of_column(path: Path, table: dict[str, _Captioned], column: str) -> _Parts:
    cells = ((name, row.split if row.split is None else part_of(row.split) or row.split) for name, row in table.items())
    train, queries, gallery = split_by_column(path, column, cells, left_out=("val",))
    return _Parts(train, [*gallery, *queries], queries)


def _parts_of_lists(path: Path) -> _Parts:
    lists = read_lists(path, "lists")
    train, queries, _ = split_by_lists(path, **lists)
    # Queries need not be in the list of test images, and keep their places where they are.
    return _Parts(train, list(dict.fromkeys([*lists["test"], *queries])), queries)
