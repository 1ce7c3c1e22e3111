"""Karpathy's splits: dataset_coco.json, dataset_flickr8k.json and dataset_flickr30k.json hold captions and split."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from contml import InputError
from contml.data.text_files import read_json

from .._readers.splits import SplitItems

#: "restval" is the rest of COCO's official validation set, which everyone trains on.
_SPLITS = ("train", "restval", "val", "test")


class KarpathyImage(NamedTuple):
    """One image: only COCO has `folder` and `cocoid`."""

    filename: str
    folder: str
    cocoid: int | None
    captions: list[str]


def read_karpathy(path: Path) -> SplitItems[KarpathyImage]:
    """The training images (with "restval"), the validation and the test images.

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
            raise InputError(
                f"{path}: image {number}", f"{entry.filename} appears twice, first as image {index_by_key[key]}"
            )
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
