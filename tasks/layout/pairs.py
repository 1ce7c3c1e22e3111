"""Images and their label maps, found by name or listed in a CSV file, and their training and test split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from contml import InputError

from .._readers.folders import IMAGE_SUFFIXES
from .._readers.splits import Parts, read_lists, split_by_column, split_by_lists
from .._readers.text import add_once, read_csv, read_lines

_MAPS = (".png", ".tif", ".tiff", ".bmp", ".gif")


class Pair(NamedTuple):
    """An image and its label map."""

    name: str  # of the image, in its folder
    image: Path
    label: Path
    split: str | None = None  # None: its file has no such column
    origin: str = ""  # the line of the CSV file that names it, for errors

    def __str__(self) -> str:
        return self.name


def pairs_by_name(images: Sequence[Path], labels: Path) -> list[Pair]:
    """The images of folders with the maps of the same names in another; nested folders are the same in all.

    Raises:
        InputError: no such folder, no images, or two files of one name.
    """
    for folder in (*images, labels):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; images and labels name folders in root")
    maps = _by_stem([labels], _MAPS)
    pairs = [
        # A missing map is an error only when it is used: lists may leave its image out.
        Pair(str(path.relative_to(folder)), path, maps[stem][1] if stem in maps else labels / f"{stem}.png")
        for stem, (folder, path) in _by_stem(images, IMAGE_SUFFIXES).items()
    ]
    if not pairs:
        raise InputError(f"{', '.join(map(str, images))}: holds no images ({', '.join(IMAGE_SUFFIXES)})")
    return pairs


def pairs_by_table(path: Path) -> list[Pair]:
    """The pairs of a CSV file with columns `image` and `label`, paths beside the file, and perhaps `split`.

    Raises:
        InputError: no such file, no such columns, an empty cell, or an image twice.
    """
    pairs: list[Pair] = []
    lines: dict[str, int] = {}
    for line, row in read_csv(path, "pairs", {"image": "", "label": ""})[1]:
        image, label = row["image"], row["label"]
        if not image or not label:
            raise InputError(f"{path}:{line}: has no {'label' if image else 'image'}; give both of each pair")
        add_once(lines, image, path, line)
        origin = f" ({path.name}, line {line})"
        pairs.append(Pair(image, path.parent / image, path.parent / label, row.get("split"), origin))
    return pairs


def split_pairs_by_column(path: Path, pairs: list[Pair]) -> Parts[Pair]:
    """The split by the column `split` of the CSV file; pairs without a word there are left out.

    Raises:
        InputError: there is no such column, or it holds another word.
    """
    return split_by_column(path, "split", ((pair, pair.split) for pair in pairs), left_out=("",))


def split_pairs_by_lists(path: Path, pairs: list[Pair]) -> Parts[Pair]:
    """The split by lists of image names: a JSON file, or a folder of text files.

    Raises:
        InputError: no such file, not such lists, a name that no image or more than one image has, or an image twice in
            a list or in train and test.
    """
    pairs_of: dict[str, list[Pair]] = {}
    for pair in pairs:
        image = Path(pair.name)
        for short_name in {str(image.with_suffix("")), image.name, image.stem} - {pair.name}:
            pairs_of.setdefault(short_name, []).append(pair)
    pairs_of |= {pair.name: [pair] for pair in pairs}  # a full name is unique, even if it is a short name of others

    def found(name: str, part: str) -> Pair:
        matches = pairs_of.get(name, [])
        if len(matches) != 1:
            what = "is no image" if not matches else f"is {matches[0].name} or {matches[1].name}"
            raise InputError(f"{path}: '{name}' of {part} {what}; lists have names of images, one each")
        return matches[0]

    lists = _text_lists(path) if path.is_dir() else read_lists(path, "split")
    return split_by_lists(path, **{part: [found(name, part) for name in names] for part, names in lists.items()})


def _by_stem(folders: Sequence[Path], suffixes: tuple[str, ...]) -> dict[str, tuple[Path, Path]]:
    """The files in folders, and in folders in these, by their names without suffix; with the folder of each."""
    files: dict[str, tuple[Path, Path]] = {}
    for folder in folders:
        before = set(files)  # of two folders, the first that has the name
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in suffixes and not path.name.startswith("."):
                stem = str(path.relative_to(folder).with_suffix(""))
                if stem in before:
                    continue
                if stem in files:
                    name = files[stem][1].name
                    raise InputError(f"{path}: {name} has the same name; keep one, or name pairs in a CSV file")
                files[stem] = folder, path
    return files


def _text_lists(folder: Path) -> dict[str, list[str]]:
    """The lists train.txt, test.txt and perhaps query.txt."""
    lists = {"train": "train.txt", "queries": "query.txt", "test": "test.txt"}
    if not (folder / "query.txt").is_file():
        del lists["queries"]
    names = {part: [line.strip() for _, line in read_lines(folder / file)] for part, file in lists.items()}
    return {"queries": [], **names}
