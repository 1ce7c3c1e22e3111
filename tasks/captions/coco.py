"""MS-COCO captions: the official files through pycocotools, or Karpathy's split."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, Literal

from contml import InputError

from .karpathy import Entry, read_karpathy
from .reading import Folders, a_folder
from .records import Options, Record, make_splits


class CaptionsCOCO:
    """MS-COCO with its captions: train2014 to learn from, val2014 to retrieve in, or the split of a Karpathy file.

    ROOT/annotations/captions_train2014.json, ROOT/annotations/captions_val2014.json, and the images in ROOT/train2014
    and ROOT/val2014. For 2017 name the files and the folders. With `karpathy` (dataset_coco.json) captions and split
    come from that file, "restval" is trained on, and images are found under their 2014 or their 2017 names.

    Args:
        root: the folder of the data set.
        train: the official file of training captions in it.
        test: that of the test captions.
        train_images: the folder of the training images in it.
        test_images: that of the test images.
        karpathy: a file of Karpathy's form in it, in place of the official two.
        held_out: which part of Karpathy's file is the test split.
        vectors: a file of word vectors, in root or anywhere: word2vec binary or text, GloVe text, gensim's own;
            null trains Word2Vec on the training captions.
        normalize: word vectors to unit length first.
        empty: what to do with images whose captions have no word with a vector: "refuse", or "drop" them.
        missing: what to do with images that have no file or no caption: "refuse", or "drop" them.
        queries: how many test images, drawn at random, query the others; 0: every one queries all others.
        dim: dimension of word vectors that are trained.
        seed: of the draw of queries, and of word vectors that are trained.
    """

    def __init__(
        self,
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
    ) -> None:
        folder, folders = a_folder(root), Folders()
        options = Options(vectors, normalize, empty, missing, queries, dim, seed)
        if karpathy:
            source = folder / karpathy
            learned, asked = (
                [_of_entry(folder, folders, entry) for entry in entries] for entries in read_karpathy(source, held_out)
            )
        else:
            source = folder / test
            learned = _official(folder / train, "train", folder / train_images, folders, missing)
            asked = _official(source, "test", folder / test_images, folders, missing)
        self.train, self.test = make_splits(folder, source, learned, asked, options)


def _of_entry(root: Path, folders: Folders, entry: Entry) -> Record:
    """An image of Karpathy's file, under its own name or that of the 2017 download."""
    places = [root / entry.folder / entry.filename]
    if entry.cocoid is not None:
        places += [root / folder / f"{entry.cocoid:012d}.jpg" for folder in ("train2017", "val2017")]
    return Record(str(places[0]), folders.find(*places), entry.captions)


def _official(path: Path, option: str, images: Path, folders: Folders, missing: str) -> list[Record]:
    named, captions = _read(path, option)
    listed: dict[int, str] = {}
    for number, name in named:
        # Some copies list an image once for each of its annotations.
        if listed.setdefault(number, name) != name:
            raise InputError(f"{path}: image id {number} stands for {listed[number]} and for {name}")
    unknown = [ids for ids in captions if ids not in listed]
    if unknown and missing == "refuse":
        raise InputError(
            f"{path}: captions of image id {unknown[0]}, which 'images' does not list ({len(unknown)} such ids); "
            "complete the file, or set task.missing=drop to leave such captions out"
        )
    return [
        Record(str(images / name), folders.find(images / name), captions.get(number, []))
        for number, name in listed.items()
    ]


def _read(path: Path, option: str) -> tuple[list[tuple[int, str]], dict[int, list[str]]]:
    """Id and file name of each image, and the captions of each image id in the order of their own ids."""
    from pycocotools.coco import COCO  # here: no other task needs it

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it tells how long it takes
            coco = COCO(str(path))
        told: dict[str, Any] = coco.dataset
        if not all(isinstance(told.get(key), list) and told[key] for key in ("images", "annotations")):
            raise InputError(f"{path}: has no lists 'images' and 'annotations'; is it a captions_*.json of COCO?")
        if odd := next((note for note in told["annotations"] if not isinstance(note.get("caption"), str)), None):
            raise InputError(
                f"{path}: annotation {odd['id']} has no caption; is it a file of instances or keypoints? "
                f"task.{option} takes captions_*.json"
            )
        if len(coco.anns) < len(told["annotations"]):
            twice = _repeated([note["id"] for note in told["annotations"]])
            raise InputError(f"{path}: annotation id {twice} stands twice; every caption has an id of its own")
        images = [(image["id"], image["file_name"]) for image in told["images"]]
        captions = {
            image: [note["caption"].strip() for note in sorted(notes, key=lambda note: note["id"])]
            for image, notes in coco.imgToAnns.items()
        }
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; task.{option} names the official file of captions in task.root"
        ) from None
    except KeyError as error:
        raise InputError(f"{path}: an image or an annotation has no {error}; is it a captions_*.json?") from None
    except (OSError, ValueError, AssertionError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not an annotation file of COCO, or cut short ({error})") from None
    return images, captions


def _repeated(ids: list[int]) -> int:
    seen: set[int] = set()
    return next(number for number in ids if number in seen or seen.add(number))  # type: ignore[func-returns-value]
