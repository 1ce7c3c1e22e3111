"""Your own captioned images: a CSV or JSON file of images and captions, split by a column or by lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from contml import InputError
from contml.data import Task

from .._readers.folders import Files, data_folder, image_folders
from .._readers.splits import Parts, read_lists, split_by_column, split_by_lists
from .._readers.text import read_csv, read_json, refuse_object
from .distance import Choice, WordWeights
from .split import Options, Record, make_task

#: A row of a file: where it is, for errors; the image; its captions; its split, None where the file has none.
_Row: TypeAlias = "tuple[str, str, list[str], str | None]"


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
    distance: str | dict[str, float] = "wmd",
    word_weights: WordWeights = "count",
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
    single one, or an object {"a.jpg": ["...", "..."]}. The split is a column of the file: train, val, test,
    query (a test image that is a query) or empty (not used); or lists of names in a JSON file: {"train": [...],
    "val": [...], "test": [...], "queries": [...]}, where queries is a part of test. Without test images, the
    validation images are evaluated. Where no queries are named, every test image is a query against all others, or
    `queries` of them are. The label distance is a sum over captions: give all images about the same
    number of captions.

    Args:
        root: the folder of the data set.
        captions: the file of captions in it.
        images: the folder of images in it, or a list of folders, which are searched in order for the names in the file.
        image: the column, or key, of image names.
        caption: the column, or key, of captions; a JSON key may also end in s.
        split: the column, or key, of the split.
        lists: a JSON file in root with lists of names, instead of a column.
        delimiter: the character between the cells of a CSV file.
        encoding: the encoding of the file of captions.
        distance: how captions are compared: wmd, tfidf, mean_vector, or module:name, a function that returns vectors of
            a list of captions; or several with weights, {wmd: 0.5, tfidf: 0.5}, each divided by its mean in training.
        word_weights: the weights of words of wmd and mean_vector: count (1), or idf, of the training captions.
        vectors: a file of word vectors, in root or anywhere: word2vec, GloVe, fastText, or FILE.zip/MEMBER;
            null trains Word2Vec on the training captions.
        normalize: scale word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" and count them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" and count them.
        queries: how many test images, drawn at random, are queries where the split names none; 0: every one.
        dim: dimension of word vectors that are trained.
        seed: seed of the draw of queries, and of the training of word vectors.
    """
    folder, on_disk = data_folder(root), Files()
    search_folders = image_folders(folder, images)
    options = Options(Choice(distance, word_weights), vectors, normalize, empty, missing, queries, dim, seed)
    path = folder / captions
    if path.suffix == ".json":
        rows = _json_rows(path, read_json(path, "captions", encoding), image, caption, split)
    elif path.suffix in (".csv", ".tsv", ".txt"):
        rows = _csv_rows(path, delimiter, encoding, image, caption, split)
    else:
        raise InputError(str(path), f"ends in '{path.suffix}'", "must end in .csv, .tsv, .txt or .json")
    table = _by_image(path, rows)
    if lists:
        parts = split_by_lists(folder / lists, **read_lists(folder / lists, "lists"))
    else:
        parts = split_by_column(path, split, ((name, part) for name, (_, part) in table.items()))
    records = (
        [Record.of(on_disk, search_folders, name, table[name][0] if name in table else []) for name in names]
        for names in parts
    )
    return make_task(folder, path, Parts(*records), options)


def _csv_rows(path: Path, delimiter: str, encoding: str, image: str, caption: str, split: str) -> Iterator[_Row]:
    columns = {image: "image", caption: "caption"}
    for line, row in read_csv(path, "captions", columns, delimiter, encoding)[1]:
        refuse_object(row[caption], f"{path}:{line}: {caption}", "a caption")
        yield (f"{path}:{line}", row[image], [row[caption]], row.get(split))


def _json_rows(path: Path, content: Any, image: str, caption: str, split: str) -> Iterator[_Row]:
    if isinstance(content, dict):
        content = [{image: name, caption: texts} for name, texts in content.items()]
    if not isinstance(content, list) or not content:
        allowed = f"must be a list of {{{image}, {caption}}}, or an object of captions by image"
        raise InputError(str(path), "not a list of images", allowed)
    for number, row in enumerate(content):
        location = f"{path}: item {number}"
        if not isinstance(row, dict) or not isinstance(row.get(image), str):
            raise InputError(location, f"has no text '{image}'", hint="set image to the key of the image's name")
        texts = row.get(caption, row.get(f"{caption}s"))
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            hint = "set caption to the key of the captions"
            raise InputError(f"{location} ({row[image]})", f"'{caption}' is not a text or a list of texts", hint=hint)
        part = row.get(split)
        yield (location, row[image], texts, None if part is None else str(part))


def _by_image(path: Path, rows: Iterator[_Row]) -> dict[str, tuple[list[str], str | None]]:
    """The captions and the split of each image, whose rows may be anywhere in the file."""
    table: dict[str, tuple[list[str], str | None]] = {}
    for location, image, texts, split in rows:
        if not image:
            raise InputError(location, "names no image")
        captions, previous_split = table.setdefault(image, ([], split))
        if split != previous_split:
            problem = f"{image} is in {split or 'no split'} here, in {previous_split or 'none'} before"
            raise InputError(location, problem, hint="give all rows of an image the same split")
        captions += [text.strip() for text in texts if text.strip()]
    if not table:
        raise InputError(str(path), "has no captions")
    return table
