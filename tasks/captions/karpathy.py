"""Karpathy's splits: dataset_coco.json, dataset_flickr8k.json and dataset_flickr30k.json hold captions and split."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from contml import InputError

from .._readers.text import read_json

#: In COCO the rest of the official validation set; trained on, as everyone does.
_TRAIN = ("train", "restval")
_SPLITS = (*_TRAIN, "val", "test")


class Entry(NamedTuple):
    """One image: `folder` and `cocoid` are given in COCO only."""

    filename: str
    folder: str
    cocoid: int | None
    captions: list[str]


def read_karpathy(path: Path, held_out: str) -> tuple[list[Entry], list[Entry]]:
    """The training images (with "restval"), and those of split `held_out`.

    Raises:
        InputError: the file is of another form, or names an image twice.
    """
    content = read_json(path, "karpathy")
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not images:
        raise InputError(f"{path}: has no list 'images' of {{filename, split, sentences}}; is it a dataset_*.json?")
    parts: dict[str, list[Entry]] = {"train": [], held_out: []}
    seen: dict[tuple[str, str], int] = {}
    for number, image in enumerate(images):
        split, entry = _entry(path, number, image)
        key = (entry.folder, entry.filename)
        if key in seen:
            raise InputError(f"{path}: image {number} repeats {entry.filename} of image {seen[key]}; list it once")
        seen[key] = number
        part = "train" if split in _TRAIN else split
        if part in parts:
            parts[part].append(entry)
    return parts["train"], parts[held_out]


def _entry(path: Path, number: int, image: Any) -> tuple[str, Entry]:
    try:
        split, filename = image["split"], image["filename"]
        captions = [str(sentence["raw"]).strip() for sentence in image["sentences"]]
        cocoid = image.get("cocoid")
        entry = Entry(filename, image.get("filepath", ""), None if cocoid is None else int(cocoid), captions)
    except KeyError as error:
        raise InputError(f"{path}: image {number} has no {error}; it needs filename, split and sentences") from None
    except (TypeError, ValueError, AttributeError):
        raise InputError(
            f"{path}: image {number} is not of the form {{filename, split, sentences: [{{raw}}]}}"
        ) from None
    if split not in _SPLITS:
        raise InputError(f"{path}: image {number} has split {split!r}; it must be one of {', '.join(_SPLITS)}")
    return split, entry
