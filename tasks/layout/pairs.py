"""Images and their label maps, found by name or told by a CSV file, and how they are split."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from contml import InputError

_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
_MAPS = (".png", ".tif", ".tiff", ".bmp", ".gif")
_PARTS = ("train", "query", "test")


class Pair(NamedTuple):
    """An image and its label map."""

    name: str  # of the image, in its folder
    image: Path
    label: Path
    split: str | None = None  # None: not told
    origin: str = ""  # where it is told, for errors


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
        # A map that is not there is missed when it is used: lists may leave its image out.
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
            raise InputError(f"{path}, line {line}: {image} stands already in line {lines[image]}")
        lines[image] = line
        told = f" ({path.name}, line {line})"
        pairs.append(Pair(image, path.parent / image, path.parent / label, row.get("split"), told))
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
                    raise InputError(f"{path}, line {reader.line_num}: has not the {len(have)} cells of the first line")
                yield reader.line_num, {key: value.strip() for key, value in row.items()}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a readable CSV file ({error})") from None


def split_by_column(path: Path, pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Training, query and other test pairs by the column `split` of their CSV file.

    Raises:
        InputError: there is no such column, it holds another word, or a part is too small.
    """
    parts: dict[str, list[Pair]] = {part: [] for part in _PARTS}
    for pair in pairs:
        if pair.split is None:
            raise InputError(f"{path}: has no column 'split'; add one of train and test, or name lists with task.split")
        if pair.split and pair.split not in parts:
            raise InputError(
                f"{path}: {pair.name} has split '{pair.split}'; it takes train, test, query, or nothing to leave it out"
            )
        if pair.split:
            parts[pair.split].append(pair)
    return _with_queries(path, parts)


def listed_split(path: Path, pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Training, query and other test pairs by lists of image names: a JSON file, or a folder of text files.

    Raises:
        InputError: no such file, not such lists, a name that is not there or not clear, or one in two lists.
    """
    lists = _json_lists(path) if path.is_file() else _text_lists(path)
    known: dict[str, list[Pair]] = {}
    for pair in pairs:
        path_of = Path(pair.name)
        for alias in {str(path_of.with_suffix("")), path_of.name, path_of.stem} - {pair.name}:
            known.setdefault(alias, []).append(pair)
    known |= {pair.name: [pair] for pair in pairs}  # a whole name is clear, whatever is short for others
    parts: dict[str, list[Pair]] = {}
    for part, names in lists.items():
        for name in names:
            if len(found := known.get(name, [])) != 1:
                what = "is no image" if not found else f"is {found[0].name} or {found[1].name}"
                raise InputError(f"{path}: '{name}' of {part} {what}; lists have names of images, one each")
        parts[part] = [known[name][0] for name in names]
        if len(set(parts[part])) < len(names):
            raise InputError(f"{path}: {next(n for n in names if names.count(n) > 1)} stands twice in {part}")
    queries = set(parts["query"])
    parts["test"] = [pair for pair in parts["test"] if pair not in queries]
    if both := set(parts["train"]) & (queries | set(parts["test"])):
        raise InputError(f"{path}: {min(both).name} is in train and in test ({len(both)} such names)")
    return _with_queries(path, parts)


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


def _json_lists(path: Path) -> dict[str, list[str]]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        lists = {"train": told["train"], "query": told.get("queries", []), "test": told["test"]}
        if not all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in lists.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not a JSON object with lists of names 'train' and 'test'") from None
    return lists


def _text_lists(folder: Path) -> dict[str, list[str]]:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such file or folder; task.split names a JSON file or a folder of text files")
    lists = {}
    for part in _PARTS:
        path = folder / f"{part}.txt"
        if not path.is_file() and part != "query":
            raise InputError(f"{path}: no such list; the folder needs train.txt and test.txt, one name a line")
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
        lists[part] = [line.strip() for line in text.splitlines() if line.strip()]
    return lists


def _with_queries(path: Path, parts: dict[str, list[Pair]]) -> dict[str, list[Pair]]:
    """The parts, the first fifth of the test as queries where none are named; enough of each."""
    if not parts["query"]:
        fifth = len(parts["test"]) // 5
        parts = {"train": parts["train"], "query": parts["test"][:fifth], "test": parts["test"][fifth:]}
    if len(parts["train"]) < 3 or len(parts["test"]) < 2 or not parts["query"]:
        sizes = ", ".join(f"{len(parts[part])} {part}" for part in _PARTS)
        raise InputError(
            f"{path}: the split has {sizes}; training needs at least 3, an evaluation 1 query and 2 others"
        )
    return parts
