"""Your own captioned images: a table of images and captions, split by a column or by lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from contml import InputError
from contml._support.endings import table_suffix
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import Task
from contml.data.tables import (
    MAX_BYTES,
    MAX_ROWS,
    Table,
    TableOptions,
    json_table,
    read_table,
    refuse_object,
    text_lists,
)
from contml.data.text_files import parsed_json

from .._readers.folders import DiskFiles, data_folder, image_folders
from .._readers.splits import SplitItems, read_lists, split_by_column, split_by_lists
from .distance import DistanceOptions, WordWeights
from .split import CaptionOptions, Record, make_task


@check_ranges
def files(
    root: str,
    captions: str = "captions.csv",
    images: str | list[str] = "images",
    image: str = "image",
    caption: str = "caption",
    split: str = "split",
    lists: str | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
    missing_words: list[str] | None = None,
    distance: str | dict[str, float] = "wmd",
    word_weights: WordWeights = "count",
    vectors: str | None = None,
    normalize: bool = False,
    empty: Literal["refuse", "drop"] = "refuse",
    missing: Literal["refuse", "drop"] = "refuse",
    queries: NonNegativeInt = 0,
    dim: PositiveInt = 100,
    max_bytes: PositiveInt = MAX_BYTES,
    max_rows: PositiveInt = MAX_ROWS,
    seed: NonNegativeInt = 0,
) -> Task:
    """A folder of images and one table of captions: CSV, TSV, JSON, Parquet or Excel.

    A row has an image and a caption, or a list of captions; all rows of an image are its captions. A JSON file is a
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
        caption: the column, or key, of captions; its name may also end in s.
        split: the column, or key, of the split.
        lists: a JSON file in root with lists of names, instead of a column.
        delimiter: the character between the cells of a CSV file; null: found automatically.
        encoding: the encoding of the file of captions.
        sheet: the sheet of an Excel file; null: the only one that is filled.
        missing_words: cells that mean a missing value, as an empty cell does; null: NA, N/A, NaN, null, None, -, ? and
            others that programs write; []: none, so that they are values.
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
        max_bytes: the largest file that is read, unpacked; word vectors may have 16 GiB at least.
        max_rows: the most rows that are read; of word vectors 10 million at least.
        seed: seed of the draw of queries, and of the training of word vectors.
    """
    folder, on_disk = data_folder(root), DiskFiles()
    search_folders = image_folders(folder, images)
    choice = DistanceOptions(distance, word_weights)
    options = CaptionOptions(choice, vectors, normalize, empty, missing, queries, dim, max_bytes, max_rows, seed)
    path = folder / captions
    table_options = TableOptions(delimiter, encoding, sheet, missing_words, max_bytes, max_rows, set_by="set ")
    is_json = table_suffix(path) == ".json"
    content = parsed_json(str(path), table_options.text(path, "captions")) if is_json else None
    if isinstance(content, dict):
        content = [{image: name, caption: texts} for name, texts in content.items()]
    if content is not None:
        source = json_table(path, content, table_options)
    else:
        source = read_table(path, table_options, option="captions")
    table = _by_image(source, image, caption, split)
    if lists:
        parts = split_by_lists(folder / lists, **read_lists(folder / lists, "lists"))
    else:
        parts = split_by_column(path, split, ((name, part) for name, (_, part) in table.items()))
    records = (
        [Record.of(on_disk, search_folders, name, table[name][0] if name in table else []) for name in names]
        for names in parts
    )
    task = make_task(folder, path, SplitItems(*records), options)
    words_missing = Counter[str]()
    for name in (caption, f"{caption}s"):
        words_missing += Counter(source.columns[name].missing if name in source else {})
    if not words_missing:
        return task
    words = ", ".join(f"{word} ({count:,})" for word, count in words_missing.items())
    return replace(task, summary=[*task.summary, ("read as missing captions", words)])


def _by_image(table: Table, image: str, caption: str, split: str) -> dict[str, tuple[list[str], str | None]]:
    """The captions and the split of each image, whose rows may be anywhere in the file."""
    names = table.texts(image, "images", "image")
    columns = [name for name in (caption, f"{caption}s") if name in table] or [caption]
    cells = zip(*(_captions(table, name) for name in columns), strict=True)
    splits: Sequence[str | None] = table.texts(split, "the split") if split in table else [None] * len(table)
    found: dict[str, tuple[list[str], str | None]] = {}
    for row, (name, captions, part) in enumerate(zip(names, cells, splits, strict=True)):
        if not name:
            raise InputError(table.where(row), "names no image")
        known, previous_part = found.setdefault(name, ([], part))
        if part != previous_part:
            problem = f"{name} is in {part or 'no split'} here, in {previous_part or 'none'} before"
            raise InputError(table.where(row), problem, hint="give all rows of an image the same split")
        known += [text.strip() for texts in captions for text in texts if text.strip()]
    return found


def _captions(table: Table, name: str) -> list[list[str]]:
    """The captions of each row: a text is one, a list has several, a missing cell none."""
    column = table.column(name, "captions", "caption")
    if column.kind not in ("text", "texts"):
        row = int(column.filled.argmax())
        (cell,) = column.texts([row])
        raise InputError(f"{table.where(row)}: {name}", cell[:60], "must be a text, or a list of texts")
    for row, cell in column.in_brackets():
        refuse_object(cell, f"{table.where(row)}: {name}", "a caption")
    return [[cell] if isinstance(cell, str) else cell or [] for cell in text_lists(column)]
