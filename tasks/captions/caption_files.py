"""Published captions of MS-COCO, Flickr8k and Flickr30k, in the official files or in Karpathy's splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import Task
from contml.data.text_files import add_once, read_json, read_lines, read_names
from contml.data.values import whole_number

from .._readers.coco_files import Field, listed_images, read_coco, refuse_unlisted
from .._readers.folders import DiskFiles, Missing, data_folder, image_folders
from .._readers.splits import SplitItems
from .distance import DistanceOptions, WordWeights
from .split import CaptionedImage, CaptionOptions, make_task

#: "restval" is the rest of COCO's official validation set, which everyone trains on.
_SPLITS = ("train", "restval", "val", "test")


class KarpathyImage(NamedTuple):
    """One image. Only COCO has `folder` and `cocoid`."""

    filename: str
    folder: str
    cocoid: int | None
    captions: list[str]


def read_karpathy(path: Path) -> SplitItems[KarpathyImage]:
    """Read the training images, with "restval", and the validation and test images.

    Raises:
        InputError: the file has another form, or names an image twice.
    """
    content = read_json(path, "karpathy")
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not images:
        raise InputError(str(path), "has no list 'images' of {filename, split, sentences}", "must be a dataset_*.json")
    parts: dict[str, list[KarpathyImage]] = {name: [] for name in _SPLITS}
    index_by_key: dict[tuple[str, str], int] = {}
    for number, image in enumerate(images):
        split, entry = _entry(f"{path}: image {number}", image)
        key = (entry.folder, entry.filename)
        if key in index_by_key:
            problem = f"{entry.filename} appears twice, first as image {index_by_key[key]}"
            raise InputError(f"{path}: image {number}", problem)
        index_by_key[key] = number
        parts["train" if split == "restval" else split].append(entry)
    return SplitItems(parts["train"], parts["val"], [], parts["test"])


def _entry(where: str, image: Any) -> tuple[str, KarpathyImage]:
    allowed = "must be {filename, split, sentences: [{raw}]}"
    try:
        split, filename = image["split"], image["filename"]
        captions = [sentence["raw"].strip() for sentence in image["sentences"]]
        entry = KarpathyImage(filename, image.get("filepath", ""), image.get("cocoid"), captions)
        if not (isinstance(filename, str) and isinstance(entry.folder, str) and isinstance(split, str)):
            raise TypeError
        if entry.cocoid is not None and type(entry.cocoid) is not int:
            raise TypeError
    except KeyError as error:
        raise InputError(where, f"has no {error}", allowed) from None
    except (TypeError, AttributeError):
        raise InputError(where, "has another form", allowed) from None
    if split not in _SPLITS:
        raise InputError(where, f"split is {split!r}", f"must be one of {', '.join(_SPLITS)}")
    return split, entry


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
    seed: NonNegativeInt = 0,
) -> Task:
    """Read MS-COCO captions: training on train2014, retrieval in val2014, or the split of a Karpathy file.

    The folder holds `annotations/captions_train2014.json`, `annotations/captions_val2014.json`, and the images in
    `train2014` and `val2014`. For 2017, name the files and the folders. With `karpathy` (dataset_coco.json), captions
    and split come from the Karpathy file. "val" is the validation split, and "restval" is part of the training set.
    Images are found under their 2014 or 2017 names.

    Args:
        root: the folder of the data set.
        train: the official file of training captions in `root`.
        test: the official file of test captions in `root`.
        train_images: the folder of the training images in `root`, or a list of folders, which are searched in order.
        test_images: the folder of the test images in `root`, or a list of folders.
        karpathy: a file in Karpathy's format in `root`, in place of both official files.
        distance: the distance between captions: wmd, tfidf, mean_vector, or module:name, a function that returns
            vectors of a list of captions. Or several with weights, {wmd: 0.5, tfidf: 0.5}, each divided by its mean in
            training.
        word_weights: the weights of words in wmd and mean_vector: count (1), or idf, of the training captions.
        vectors: a file of word vectors, in `root` or anywhere: word2vec, GloVe or fastText. null: Word2Vec is trained
            on the training captions.
        normalize: scale word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" and count them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" and count them.
        queries: number of test images, drawn at random, that are queries. 0: each image is a query for all others.
        dim: dimension of word vectors that are trained.
        seed: seed of the draw of queries, and of the training of word vectors.
    """
    folder, on_disk = data_folder(root), DiskFiles()
    choice = DistanceOptions(distance, word_weights)
    options = CaptionOptions(choice, vectors, normalize, empty, missing, queries, dim, seed)
    if karpathy:
        source = folder / karpathy
        entries = read_karpathy(source)
        parts = SplitItems(*([_karpathy_record(folder, on_disk, entry) for entry in part] for part in entries))
    else:
        source = folder / test
        train_records = _official_records(folder / train, "train", image_folders(folder, train_images), missing)
        test_records = _official_records(source, "test", image_folders(folder, test_images), missing)
        parts = SplitItems(train_records, [], [], test_records)
    return make_task(folder, source, parts, options)


def _karpathy_record(root: Path, on_disk: DiskFiles, entry: KarpathyImage) -> CaptionedImage:
    """Return an image of Karpathy's file, under its own name or its name in the 2017 download."""
    paths = [root / entry.folder / entry.filename]
    if entry.cocoid is not None:
        paths += [root / folder / f"{entry.cocoid:012d}.jpg" for folder in ("train2017", "val2017")]
    return CaptionedImage(f"{entry.folder}/{entry.filename}", str(paths[0]), on_disk.find(*paths), entry.captions)


def _official_records(path: Path, option: str, images: list[Path], missing: Missing) -> list[CaptionedImage]:
    """Read the listed images, with their captions in the order of the captions' ids."""
    content = read_coco(path, option, "captions", _FIELDS)
    listed, on_disk = listed_images(path, content), DiskFiles()
    if missing == "refuse":
        refuse_unlisted(path, content["annotations"], listed)
    captions: dict[int, list[str]] = {}
    for note in sorted(content["annotations"], key=lambda note: (isinstance(note["id"], str), note["id"])):
        captions.setdefault(note["image_id"], []).append(note["caption"].strip())
    found = ((image["file_name"], captions.get(number, [])) for number, image in listed.items())
    return [CaptionedImage.of(on_disk, images, name, texts) for name, texts in found]


@check_ranges
def flickr(
    root: str,
    captions: str = "Flickr8k.token.txt",
    images: str | list[str] = "Flicker8k_Dataset",
    train: str = "Flickr_8k.trainImages.txt",
    val: str | None = "Flickr_8k.devImages.txt",
    test: str = "Flickr_8k.testImages.txt",
    karpathy: str | None = None,
    distance: str | dict[str, float] = "wmd",
    word_weights: WordWeights = "count",
    vectors: str | None = None,
    normalize: bool = False,
    empty: Literal["refuse", "drop"] = "refuse",
    missing: Literal["refuse", "drop"] = "refuse",
    queries: NonNegativeInt = 0,
    dim: PositiveInt = 100,
    seed: NonNegativeInt = 0,
) -> Task:
    """Read Flickr8k or Flickr30k with five captions per image. The defaults are Flickr8k's own names and spelling.

    A line of the token file is `NAME.jpg#K`, a tab, the caption. A list has one name per line, with or without ".jpg".
    Images that are in no list are not used. For Flickr30k, set captions=results_20130124.token images=flickr30k-images,
    and your own lists. With `karpathy` (dataset_flickr8k.json, dataset_flickr30k.json), captions and split come from
    the Karpathy file.

    Args:
        root: the folder of the data set.
        captions: the token file in `root`.
        images: the folder of images in `root`, or a list of folders, which are searched in order.
        train: the list of training images in `root`.
        val: the list of validation images in `root`. null: no validation images.
        test: the list of test images in `root`.
        karpathy: a file in Karpathy's format in `root`, in place of the token file and the lists.
        distance: the distance between captions: wmd, tfidf, mean_vector, or module:name, a function that returns
            vectors of a list of captions. Or several with weights, {wmd: 0.5, tfidf: 0.5}, each divided by its mean in
            training.
        word_weights: the weights of words in wmd and mean_vector: count (1), or idf, of the training captions.
        vectors: a file of word vectors, in `root` or anywhere: word2vec, GloVe or fastText. null: Word2Vec is trained
            on the training captions.
        normalize: scale word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" and count them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" and count them.
        queries: number of test images, drawn at random, that are queries. 0: each image is a query for all others.
        dim: dimension of word vectors that are trained.
        seed: seed of the draw of queries, and of the training of word vectors.
    """
    folder, on_disk = data_folder(root), DiskFiles()
    search_folders = image_folders(folder, images)
    choice = DistanceOptions(distance, word_weights)
    options = CaptionOptions(choice, vectors, normalize, empty, missing, queries, dim, seed)
    source = folder / (karpathy or captions)
    if karpathy:
        parts = [[(entry.filename, entry.captions) for entry in part] for part in read_karpathy(source)]
    else:
        texts = read_tokens(source)
        lists = {"train": train, "val": val, "queries": None, "test": test}
        listed = ([] if name is None else read_names(folder / name, option) for option, name in lists.items())
        # Some lists omit the .jpg of the names in the token file.
        keys = [[name if name in texts or f"{name}.jpg" not in texts else f"{name}.jpg" for name in n] for n in listed]
        parts = [[(name, texts.get(name, [])) for name in names] for names in keys]
    records = SplitItems(*([CaptionedImage.of(on_disk, search_folders, *item) for item in part] for part in parts))
    return make_task(folder, source, records, options)


def read_tokens(path: Path) -> dict[str, list[str]]:
    """Read the captions of each image from a token file, in the order of their numbers, without blank captions.

    Raises:
        InputError: a line has another form, or repeats the key of an earlier line.
    """
    captions: dict[str, dict[int, str]] = {}
    lines: dict[str, int] = {}
    for number, line in read_lines(path, "captions"):
        key, tab, caption = line.partition("\t")
        # A name may contain '#', and need not end in .jpg: one name of Flickr8k ends in .jpg.1
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
