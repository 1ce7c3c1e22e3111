"""Flickr8k and Flickr30k: the token file with the official lists of names, or Karpathy's split."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import Task
from contml.data.text_files import add_once, read_lines, read_names
from contml.data.values import whole_number
from contml.labels.word_vectors import MAX_BYTES, MAX_ROWS

from .._readers.folders import DiskFiles, data_folder, image_folders
from .._readers.splits import SplitItems
from .distance import DistanceOptions, WordWeights
from .karpathy import read_karpathy
from .split import CaptionOptions, Record, make_task


@check_ranges
def flickr(
    root: str,
    captions: str = "Flickr8k.token.txt",
    images: str | list[str] = "Flicker8k_Dataset",
    train: str = "Flickr_8k.trainImages.txt",
    val: str | None = "Flickr_8k.devImages.txt",
    test: str = "Flickr_8k.testImages.txt",
    karpathy: str | None = None,
    encoding: str = "utf-8",
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
    """Flickr8k or Flickr30k with five captions per image; the defaults are Flickr8k's own names and spelling.

    A line of the token file is `NAME.jpg#K`, a tab, the caption. A list has one name per line, with or without ".jpg";
    images that are in no list are not used. For Flickr30k: captions=results_20130124.token images=flickr30k-images, and
    your own lists. With `karpathy` (dataset_flickr8k.json, dataset_flickr30k.json) captions and split come from that
    file.

    Args:
        root: the folder of the data set.
        captions: the token file in it.
        images: the folder of images in it, or a list of folders, which are searched in order.
        train: the list of training images in it.
        val: the list of validation images in it; null: without them.
        test: the list of test images in it.
        karpathy: a file in Karpathy's format in it, instead of the token file and the lists.
        encoding: the encoding of the token file.
        distance: how captions are compared: wmd, tfidf, mean_vector, or module:name, a function that returns vectors of
            a list of captions; or several with weights, {wmd: 0.5, tfidf: 0.5}, each divided by its mean in training.
        word_weights: the weights of words of wmd and mean_vector: count (1), or idf, of the training captions.
        vectors: a file of word vectors, in root or anywhere: word2vec, GloVe, fastText, or FILE.zip/MEMBER;
            null trains Word2Vec on the training captions.
        normalize: scale word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" and count them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" and count them.
        queries: how many test images, drawn at random, are queries; 0: every one is a query against all others.
        dim: dimension of word vectors that are trained.
        max_bytes: the largest file of word vectors that is read, unpacked, if larger than the default.
        max_rows: the most vectors that are read of it, if more than the default.
        seed: seed of the draw of queries, and of the training of word vectors.
    """
    folder, on_disk = data_folder(root), DiskFiles()
    search_folders = image_folders(folder, images)
    choice = DistanceOptions(distance, word_weights)
    options = CaptionOptions(choice, vectors, normalize, empty, missing, queries, dim, max_bytes, max_rows, seed)
    source = folder / (karpathy or captions)
    if karpathy:
        parts = [[(entry.filename, entry.captions) for entry in part] for part in read_karpathy(source)]
    else:
        texts = read_tokens(source, encoding)
        parts = [
            [(name, texts.get(name, [])) for name in _as_keys(names, texts)]
            for names in (
                read_names(folder / train, "train"),
                [] if val is None else read_names(folder / val, "val"),
                [],
                read_names(folder / test, "test"),
            )
        ]
    records = SplitItems(*([Record.of(on_disk, search_folders, *item) for item in part] for part in parts))
    return make_task(folder, source, records, options)


def read_tokens(path: Path, encoding: str = "utf-8") -> dict[str, list[str]]:
    """The captions of each image of a token file, in the order of their numbers, without blank ones.

    Raises:
        InputError: a line has another form, or repeats the key of an earlier one.
    """
    captions: dict[str, dict[int, str]] = {}
    lines: dict[str, int] = {}
    for number, line in read_lines(path, "captions", encoding):
        key, tab, caption = line.partition("\t")
        # A name may contain '#', and need not end in .jpg: one of Flickr8k's ends in .jpg.1
        name, separator, number_text = key.strip().rpartition("#")
        order = whole_number(number_text)
        if not (tab and separator and name) or order is None:
            if number == 1 and "#" not in line and line.lower().startswith("image"):
                hint = f"contml train --data {path} reads it"
                raise InputError(f"{path}:1", f"a header ({line[:60]!r}), so the file is a table", hint=hint)
            problem = "a key without '#' and a number" if tab else "no tab after the key"
            raise InputError(f"{path}:{number}", f"{problem} ({line[:60]!r})", "must be NAME.jpg#K, a tab, the caption")
        add_once(lines, key.strip(), path, number)
        captions.setdefault(name, {})
        if caption.strip():
            captions[name][order] = caption.strip()
    return {name: [texts[order] for order in sorted(texts)] for name, texts in captions.items()}


def _as_keys(names: list[str], captions: dict[str, list[str]]) -> list[str]:
    """Names as the token file has them: some lists omit the .jpg."""
    return [name if name in captions or f"{name}.jpg" not in captions else f"{name}.jpg" for name in names]
