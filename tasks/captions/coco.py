"""MS-COCO captions: the official files through pycocotools, or Karpathy's split."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, Literal

from contml import InputError
from contml.data import Task

from .karpathy import Entry, read_karpathy
from .reading import Folders, data_folder
from .records import Options, Record, make_task


def coco(
    root: str,
    train: str = "annotations/captions_train2014.json",
    test: str = "annotations/captions_val2014.json",
    train_images: str = "train2014",
    test_images: str = "val2014",
    karpathy: str | None = None,
    held_out: Literal["test", "val"] = "test",
    vectors: str | None = None,
    normalize: bool = False,
    empty: Literal["refuse", "drop"] = "refuse",
    missing: Literal["refuse", "drop"] = "refuse",
    queries: int = 1000,
    dim: int = 100,
    seed: int = 0,
) -> Task:
    """MS-COCO with its captions: train2014 to train on, val2014 to retrieve in, or the split of a Karpathy file.

    ROOT/annotations/captions_train2014.json, ROOT/annotations/captions_val2014.json, and the images in ROOT/train2014
    and ROOT/val2014. For 2017 name the files and the folders. With `karpathy` (dataset_coco.json) captions and split
    come from that file, "restval" is trained on, and images are found under their 2014 or their 2017 names.

    Args:
        root: the folder of the data set.
        train: the official file of training captions in it.
        test: the official file of test captions in it.
        train_images: the folder of the training images in it.
        test_images: the folder of the test images in it.
        karpathy: a file of Karpathy's form in it, in place of the official two.
        held_out: which part of Karpathy's file is the test split.
        vectors: a file of word vectors, in root or anywhere: word2vec binary or text, GloVe text, gensim's own;
            null trains Word2Vec on the training captions.
        normalize: scale word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" them.
        queries: how many test images, drawn at random, are queries; 0: every one is a query against all others.
        dim: dimension of word vectors that are trained.
        seed: of the draw of queries, and of word vectors that are trained.
    """
    folder, folders = data_folder(root), Folders()
    options = Options(vectors, normalize, empty, missing, queries, dim, seed)
    if karpathy:
        source = folder / karpathy
        train_records, test_records = (
            [_karpathy_record(folder, folders, entry) for entry in entries]
            for entries in read_karpathy(source, held_out)
        )
    else:
        source = folder / test
        train_records = _official_records(folder / train, "train", folder / train_images, folders, missing)
        test_records = _official_records(source, "test", folder / test_images, folders, missing)
    return make_task(folder, source, train_records, test_records, options)


def _karpathy_record(root: Path, folders: Folders, entry: Entry) -> Record:
    """An image of Karpathy's file, under its own name or that of the 2017 download."""
    places = [root / entry.folder / entry.filename]
    if entry.cocoid is not None:
        places += [root / folder / f"{entry.cocoid:012d}.jpg" for folder in ("train2017", "val2017")]
    return Record(str(places[0]), folders.find(*places), entry.captions)


def _official_records(
    path: Path, option: str, images: Path, folders: Folders, missing: Literal["refuse", "drop"]
) -> list[Record]:
    listed, captions = _read(path, option)
    names: dict[int, str] = {}
    for image_id, name in listed:
        # Some copies list an image once for each of its annotations.
        if names.setdefault(image_id, name) != name:
            raise InputError(
                f"{path}: image id {image_id} has two file names, {names[image_id]} and {name}; "
                "every image has an id of its own"
            )
    unknown = [image_id for image_id in captions if image_id not in names]
    if unknown and missing == "refuse":
        raise InputError(
            f"{path}: captions of image id {unknown[0]}, which 'images' does not list ({len(unknown):,} such ids); "
            "complete the file, or set missing=drop to leave such captions out"
        )
    return [
        Record(str(images / name), folders.find(images / name), captions.get(image_id, []))
        for image_id, name in names.items()
    ]


def _read(path: Path, option: str) -> tuple[list[tuple[int, str]], dict[int, list[str]]]:
    """Id and file name of each image, and the captions of each image id in the order of their own ids."""
    from pycocotools.coco import COCO  # here: no other task needs it

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints how long it takes
            index = COCO(str(path))
        content: dict[str, Any] = index.dataset
        if not all(isinstance(content.get(key), list) and content[key] for key in ("images", "annotations")):
            raise InputError(f"{path}: has no lists 'images' and 'annotations'; is it a captions_*.json of COCO?")
        annotations = content["annotations"]
        if other := next((note for note in annotations if not isinstance(note.get("caption"), str)), None):
            raise InputError(
                f"{path}: annotation {other['id']} has no caption; is it a file of instances or keypoints? "
                f"{option} must be a captions_*.json"
            )
        if len(index.anns) < len(annotations):
            repeated = _repeated([note["id"] for note in annotations])
            raise InputError(f"{path}: annotation id {repeated} appears twice; every caption has an id of its own")
        images = [(image["id"], image["file_name"]) for image in content["images"]]
        captions = {
            image_id: [note["caption"].strip() for note in sorted(notes, key=lambda note: note["id"])]
            for image_id, notes in index.imgToAnns.items()
        }
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; set {option} to the official file of captions in root") from None
    except KeyError as error:
        raise InputError(f"{path}: an image or an annotation has no {error}; is it a captions_*.json?") from None
    except (OSError, ValueError, AssertionError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not an annotation file of COCO, or cut short ({error})") from None
    return images, captions


def _repeated(ids: list[int]) -> int:
    """The first id that appears again."""
    seen: set[int] = set()
    for number in ids:
        if number in seen:
            return number
        seen.add(number)
    raise AssertionError("every id appears once")
