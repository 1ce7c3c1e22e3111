"""Images and their label maps, found by name or listed in a CSV file, and their training and test split."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from contml import InputError

_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
_MAPS = (".png", ".tif", ".tiff", ".bmp", ".gif")
#: What a CSV file calls the parts of a split; "test" without "query" is the gallery.
_PARTS = ("train", "query", "test")


class Pair(NamedTuple):
    """An image and its label map."""

    name: str  # of the image, in its folder
    image: Path
    label: Path
    split: str | None = None  # None: its file has no such column
    origin: str = ""  # the line of the CSV file that names it, for errors


class PairSplit(NamedTuple):
    """Training pairs, and test pairs: queries and gallery."""

    train: list[Pair]
    queries: list[Pair]
    gallery: list[Pair]


def pairs_by_name(images: Path, labels: Path) -> list[Pair]:
    """The images of a folder with the maps of the same names in another; nested folders are the same in both.

    Raises:
        InputError: no such folder, no images, or two files of one name.
    """
    for folder in (images, labels):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; task.images and task.labels name folders in task.root")
    maps = _by_stem(labels, _MAPS)
    pairs = [
        # A missing map is an error only when it is used: lists may leave its image out.
        Pair(str(path.relative_to(images)), path, maps.get(stem, labels / f"{stem}.png"))
        for stem, path in _by_stem(images, _IMAGES).items()
    ]
    if not pairs:
        raise InputError(f"{images}: holds no images ({', '.join(_IMAGES)})")
    return pairs


def pairs_by_table(path: Path) -> list[Pair]:
    """The pairs of a CSV file with columns `image` and `label`, paths beside the file, and perhaps `split`.

    Raises:
        InputError: no such file, no such columns, an empty cell, or an image twice.
    """
    pairs: list[Pair] = []
    lines: dict[str, int] = {}
    for line, row in read_table(path, ("image", "label")):
        image, label = row["image"], row["label"]
        if not image or not label:
            raise InputError(f"{path}, line {line}: has no {'label' if image else 'image'}; give both of each pair")
        if image in lines:
            raise InputError(
                f"{path}, line {line}: {image} appears already in line {lines[image]}; keep one of the lines"
            )
        lines[image] = line
        origin = f" ({path.name}, line {line})"
        pairs.append(Pair(image, path.parent / image, path.parent / label, row.get("split"), origin))
    return pairs


def read_table(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line numbers and rows of a CSV file that has these columns.

    Raises:
        InputError: no such file, not a CSV file, no such columns, or a row that is cut short.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            have = reader.fieldnames or []
            if missing := [column for column in columns if column not in have]:
                raise InputError(f"{path}: has no column '{missing[0]}' (it has {', '.join(have) or 'nothing'})")
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(
                        f"{path}, line {reader.line_num}: does not have the {len(have)} cells of the header"
                    )
                yield reader.line_num, {key: value.strip() for key, value in row.items()}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a readable CSV file ({error})") from None


def split_by_column(path: Path, pairs: list[Pair]) -> PairSplit:
    """The split by the column `split` of the CSV file.

    Raises:
        InputError: there is no such column, it holds another word, or a part is too small.
    """
    parts: dict[str, list[Pair]] = {part: [] for part in _PARTS}
    for pair in pairs:
        if pair.split is None:
            raise InputError(
                f"{path}: has no column 'split'; add one with train and test, or name lists with task.split"
            )
        if pair.split and pair.split not in parts:
            raise InputError(
                f"{path}: {pair.name} has split '{pair.split}'; it takes train, test, query, or nothing to leave it out"
            )
        if pair.split:
            parts[pair.split].append(pair)
    return _with_queries(path, PairSplit(parts["train"], parts["query"], parts["test"]))


def split_by_lists(path: Path, pairs: list[Pair]) -> PairSplit:
    """The split by lists of image names: a JSON file, or a folder of text files.

    Raises:
        InputError: no such file, not such lists, a name that no image or more than one image has, an image twice in a
            list or in train and test, or a part that is too small.
    """
    pairs_of: dict[str, list[Pair]] = {}
    for pair in pairs:
        image = Path(pair.name)
        for short_name in {str(image.with_suffix("")), image.name, image.stem} - {pair.name}:
            pairs_of.setdefault(short_name, []).append(pair)
    pairs_of |= {pair.name: [pair] for pair in pairs}  # a full name is unique, even if it is a short name of others
    parts: dict[str, list[Pair]] = {}
    for part, names in (_read_json_lists(path) if path.is_file() else _read_text_lists(path)).items():
        name_of: dict[Pair, str] = {}
        for name in names:
            matches = pairs_of.get(name, [])
            if len(matches) != 1:
                what = "is no image" if not matches else f"is {matches[0].name} or {matches[1].name}"
                raise InputError(f"{path}: '{name}' of {part} {what}; lists have names of images, one each")
            if matches[0] in name_of:
                raise InputError(f"{path}: {name} appears twice in {part}; list each image once")
            name_of[matches[0]] = name
        parts[part] = list(name_of)
    queries = set(parts["query"])
    gallery = [pair for pair in parts["test"] if pair not in queries]
    if both := set(parts["train"]) & {*queries, *gallery}:
        raise InputError(f"{path}: {min(both).name} is in train and in test ({len(both)} such names)")
    return _with_queries(path, PairSplit(parts["train"], parts["query"], gallery))


def _by_stem(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    """The files of a folder, and of folders in it, by their names without suffix."""
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and not path.name.startswith("."):
            stem = str(path.relative_to(folder).with_suffix(""))
            if stem in files:
                raise InputError(f"{path}: {files[stem].name} has the same name; keep one, or name pairs in a CSV file")
            files[stem] = path
    return files


def _read_json_lists(path: Path) -> dict[str, list[str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        lists = {"train": content["train"], "query": content.get("queries", []), "test": content["test"]}
        if not all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in lists.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not a JSON object with lists of names 'train' and 'test'") from None
    return lists


def _read_text_lists(folder: Path) -> dict[str, list[str]]:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such file or folder; task.split names a JSON file or a folder of text files")
    lists = {}
    for part in _PARTS:
        path = folder / f"{part}.txt"
        if not path.is_file() and part != "query":
            raise InputError(f"{path}: no such list; the folder needs train.txt and test.txt, one name per line")
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
        lists[part] = [line.strip() for line in text.splitlines() if line.strip()]
    return lists


def _with_queries(path: Path, split: PairSplit) -> PairSplit:
    """The split; the first fifth of the test pairs become the queries where none are named.

    Raises:
        InputError: a part is too small.
    """
    if not split.queries:
        fifth = len(split.gallery) // 5
        split = PairSplit(split.train, split.gallery[:fifth], split.gallery[fifth:])
    if len(split.train) < 3 or len(split.gallery) < 2 or not split.queries:
        sizes = ", ".join(f"{len(part)} {name}" for name, part in zip(_PARTS, split, strict=True))
        raise InputError(
            f"{path}: the split has {sizes}; training needs at least 3 images, an evaluation 1 query and 2 others"
        )
    return split
