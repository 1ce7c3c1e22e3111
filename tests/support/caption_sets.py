"""Miniatures of caption data sets in their official layouts: drawn scenes, 40 to train and 20 to test."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from contml.tasks.captions.drawn_scenes import _paint, _write

TRAIN, DEV, TEST = 40, 5, 20


def scenes(count: int = TRAIN + TEST) -> list[tuple[np.ndarray[Any, Any], list[str]]]:
    return [draw_scene(0, index, 24) for index in range(count)]


def draw_scene(seed: int, index: int, size: int) -> tuple[np.ndarray[Any, Any], list[str]]:
    return _paint(seed, index, size)[0], _write(seed, index, 5)


def save(path: Path, pixels: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_flickr(root: Path) -> list[str]:
    """Token file, lists and images of Flickr8k, with its special cases; returns the names."""
    names = [f"{1000000 + index}_{index:010x}.jpg" for index in range(TRAIN + TEST)]
    lines = []
    for name, (pixels, captions) in zip(names, scenes(), strict=True):
        save(root / "Flicker8k_Dataset" / name, pixels)
        lines += [f"{name}#{k}\t{caption.capitalize()} ." for k, caption in enumerate(captions)]
    lines += [f"2258277193_586949ec62.jpg.1#{k}\tAn image that nobody has ." for k in range(5)]
    lines += [f"9999999_in_no_list.jpg#{k}\tIn no list ." for k in range(5)]
    dev = [f"{2000000 + index}_dev.jpg" for index in range(DEV)]
    for name, (pixels, captions) in zip(dev, scenes(DEV), strict=True):
        save(root / "Flicker8k_Dataset" / name, pixels)
        lines += [f"{name}#{k}\t{caption.capitalize()} ." for k, caption in enumerate(captions)]
    (root / "Flickr8k.token.txt").write_bytes(("\n".join(lines) + "\n").encode())
    for listed, part in (("trainImages", names[:TRAIN]), ("devImages", dev), ("testImages", names[TRAIN:])):
        (root / f"Flickr_8k.{listed}.txt").write_bytes(("\r\n".join(part) + "\r\n").encode())
    return names


def write_coco(root: Path, year: int = 2014) -> None:
    """Official files and folders; captions in random order, with space around them, three to five per image."""
    random = np.random.default_rng(0)
    (root / "annotations").mkdir(parents=True)
    for part, first, count in (("train", 0, TRAIN), ("val", TRAIN, TEST)):
        images, notes = [], []
        for index, (pixels, captions) in list(enumerate(scenes()))[first : first + count]:
            number = 100 + 7 * index
            name = f"COCO_{part}2014_{number:012d}.jpg" if year == 2014 else f"{number:012d}.jpg"
            save(root / f"{part}{year}" / name, pixels)
            images.append({"id": number, "file_name": name, "height": 24, "width": 24, "license": 1})
            captions = captions[: 3 + index % 3]
            notes += [
                {"image_id": number, "id": 10 * number + k, "caption": f" {caption}.\n"}
                for k, caption in enumerate(captions)
            ]
        notes = [notes[row] for row in random.permutation(len(notes))]
        content = {"info": {}, "licenses": [], "images": images, "annotations": notes}
        (root / "annotations" / f"captions_{part}{year}.json").write_text(json.dumps(content))


def write_karpathy(root: Path, *, coco: bool) -> Path:
    """Karpathy's file beside the images of `write_coco` or `write_flickr`, which this writes as well."""
    images = []
    names: list[str] = []
    if coco:
        write_coco(root)
    else:
        names = write_flickr(root)
    for index, (_, captions) in enumerate(scenes()):
        split = ("restval" if index % 4 == 0 else "train") if index < TRAIN else ("val" if index % 4 == 0 else "test")
        sentences = [
            {"tokens": caption.split(), "raw": f"{caption}. ", "imgid": index, "sentid": 5 * index + k}
            for k, caption in enumerate(captions)
        ]
        image = {"imgid": index, "split": split, "sentences": sentences, "sentids": [s["sentid"] for s in sentences]}
        if coco:
            part, number = ("train" if index < TRAIN else "val"), 100 + 7 * index
            image |= {"filepath": f"{part}2014", "filename": f"COCO_{part}2014_{number:012d}.jpg", "cocoid": number}
        else:
            image |= {"filename": names[index]}
        images.append(image)
    path = root / f"dataset_{'coco' if coco else 'flickr8k'}.json"
    path.write_text(json.dumps({"images": images, "dataset": "coco" if coco else "flickr8k"}))
    return path


def write_csv(root: Path) -> Path:
    """One image-caption pair per row, quoted where a caption holds commas; the split in a column."""
    path = root / "captions.csv"
    root.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption", "split"])
        for index, (pixels, captions) in enumerate(scenes()):
            save(root / "images" / f"{index}.png", pixels)
            split = "train" if index < TRAIN else "query" if index < TRAIN + 4 else "test"
            rows.writerows([f"{index}.png", caption, split] for caption in captions)
    return path
