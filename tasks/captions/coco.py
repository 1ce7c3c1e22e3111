"""MS-COCO captions: the official files, or Karpathy's split."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import Task
from contml.labels.word_vectors import MAX_BYTES, MAX_ROWS

from .._readers.coco import Field, listed_images, read_coco, refuse_unlisted
from .._readers.folders import DiskFiles, Missing, data_folder, image_folders
from .._readers.splits import SplitItems
from .distance import DistanceOptions, WordWeights
from .karpathy import KarpathyImage, read_karpathy
from .split import CaptionOptions, Record, make_task

_FIELDS: dict[str, dict[str, Field]] = {
    "images": {"id": "id", "file_name": "text"},
    "annotations": {"id": "id", "image_id": "id", "caption": "text"},
}


@check_ranges
def coco(
    root: str,
    train: str = "annotations/captions_train2014.json",
    test: str = "annotations/captions_val2014.json",
    train_images: str | list[str] = "train2014",
    test_images: str | list[str] = "val2014",
    karpathy: str | None = None,
    distance: str | dict[str, float] = "wmd",
    word_weights: WordWeights = "count",
    vectors: str | None = None,
    normalize: bool = False,
    empty: Literal["refuse", "drop"] = "refuse",
    missing: Literal["refuse", "drop"] = "refuse",
    queries: NonNegativeInt = 1000,
    dim: PositiveInt = 100,
    max_bytes: PositiveInt = MAX_BYTES,
    max_rows: PositiveInt = MAX_ROWS,
    seed: NonNegativeInt = 0,
) -> Task:
    """MS-COCO with its captions: training on train2014, retrieval in val2014, or the split of a Karpathy file.

    The folder holds `annotations/captions_train2014.json`, `annotations/captions_val2014.json`, and the images in
    `train2014` and `val2014`. For 2017, name the files and the folders. With `karpathy` (dataset_coco.json), captions
    and split come from that file, "val" is the validation split, "restval" is part of the training set, and images are
    found under their 2014 or 2017 names.

    Args:
        root: the folder of the data set.
        train: the official file of training captions in it.
        test: the official file of test captions in it.
        train_images: the folder of the training images in it, or a list of folders, which are searched in order.
        test_images: the folder of the test images in it, or a list of folders.
        karpathy: a file in Karpathy's format in it, instead of the official two.
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
    choice = DistanceOptions(distance, word_weights)
    options = CaptionOptions(choice, vectors, normalize, empty, missing, queries, dim, max_bytes, max_rows, seed)
    if karpathy:
        source = folder / karpathy
        parts = SplitItems(
            *([_karpathy_record(folder, on_disk, entry) for entry in part] for part in read_karpathy(source))
        )
    else:
        source = folder / test
        train_records = _official_records(folder / train, "train", image_folders(folder, train_images), missing)
        test_records = _official_records(source, "test", image_folders(folder, test_images), missing)
        parts = SplitItems(train_records, [], [], test_records)
    return make_task(folder, source, parts, options)


def _karpathy_record(root: Path, on_disk: DiskFiles, entry: KarpathyImage) -> Record:
    """An image of Karpathy's file, under its own name or its name in the 2017 download."""
    paths = [root / entry.folder / entry.filename]
    if entry.cocoid is not None:
        paths += [root / folder / f"{entry.cocoid:012d}.jpg" for folder in ("train2017", "val2017")]
    return Record(f"{entry.folder}/{entry.filename}", str(paths[0]), on_disk.find(*paths), entry.captions)


def _official_records(path: Path, option: str, images: list[Path], missing: Missing) -> list[Record]:
    """The listed images, with their captions in the order of the captions' ids."""
    content = read_coco(path, option, "captions", _FIELDS)
    listed, on_disk = listed_images(path, content), DiskFiles()
    if missing == "refuse":
        refuse_unlisted(path, content["annotations"], listed)
    captions: dict[int, list[str]] = {}
    for note in sorted(content["annotations"], key=lambda note: (isinstance(note["id"], str), note["id"])):
        captions.setdefault(note["image_id"], []).append(note["caption"].strip())
    return [
        Record.of(on_disk, images, image["file_name"], captions.get(number, [])) for number, image in listed.items()
    ]
