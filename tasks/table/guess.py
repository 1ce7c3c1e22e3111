"""The kind of a column, guessed from its cells; the reason is shown beside the guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .._readers.splits import part_of
from .cells import SEPARATORS, Decimal, date_in_days, decimal_comma, is_nothing, number, numbers, texts
from .measured import LATITUDE, LONGITUDE
from .paths import CellFiles, looks_like_maps, looks_like_paths
from .reading import Table

#: Rows that are looked at, evenly spread.
_SAMPLE = 20_000
#: A kind must fit this share of the cells. The others are errors with their line when the labels are read.
_MOST = 0.9
#: From so many words on a text is a caption; up to so many it is a tag.
_CAPTION_WORDS, _TAG_WORDS = 4, 3

_CLASS_NAMES = re.compile(
    r"(?:.*[\W_])?(?:class|category|label|species|identity|person|product|item)(?:[\W_]?id)?", re.I
)
_COUNT_NAMES = re.compile(r"(?:.*[\W_])?(?:id|index|idx|nr|number|no|row|\(column \d+\))", re.I)
_PLACE_NAMES = re.compile(r".*(?:place|coord|gps|lat.*lon|location|position).*", re.I)
_IMAGE_NAMES = re.compile(r".*(?:image|img|photo|picture|file|path).*", re.I)
_MAP_NAMES = re.compile(r".*(?:label|mask|map|seg|annot|layout).*", re.I)
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(?:[T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}")


class Guess(NamedTuple):
    """A kind ("" for none that makes a label) and why."""

    kind: str
    why: str


class Roles(NamedTuple):
    """What the columns of a table are for: images, the split, and what each other one could be."""

    image: str | None
    split: str | None
    guesses: dict[str, Guess]


def guess_roles(
    table: Table, files: CellFiles, decimal: Decimal, *, image: str | None, split: str | None, taken: Collection[str]
) -> Roles:
    """What every column could be for. `image` and `split` are the columns that were given, `taken` the labels."""
    rows = np.unique(np.linspace(0, len(table) - 1, min(len(table), _SAMPLE), dtype=np.int64)).tolist()
    sample = {name: [cells[row].strip() for row in rows] for name, cells in table.columns.items()}
    paths = [name for name, cells in sample.items() if looks_like_paths([c for c in cells if c]) and name != image]
    maps = [name for name in paths if looks_like_maps(_existing(files, sample[name]))]
    if image is None:
        free = [name for name in paths if name not in taken]
        image = _image(free, maps, lambda name: bool(_existing(files, sample[name])))
    guesses: dict[str, Guess] = {}
    for name, cells in sample.items():
        if name in (image, split):
            continue
        filled = [cell for cell in cells if cell]
        if split is None and name not in taken and _names_parts(filled):
            split = name
        elif name in paths:
            kind = "map" if name in maps else ""
            guesses[name] = Guess(kind, "its cells are files of few grey values" if kind else "its cells name images")
        else:
            comma = decimal_comma(cells, decimal, table.delimiter)
            guesses[name] = guess_cells(name, filled, comma)
    return Roles(image, split, guesses)


def _names_parts(cells: Sequence[str]) -> bool:
    parts = {part_of(cell) for cell in dict.fromkeys(cells)}
    return {"train", "test"} <= parts | ({"test"} if "query" in parts else set()) and "" not in parts


def guess_columns(names: Sequence[str], guesses: dict[str, Guess]) -> Guess:
    """The kind of several columns that make one label together."""
    first, *_ = (guesses.get(name, Guess("", "")).kind for name in names)
    kinds = {guesses.get(name, Guess("", "")).kind for name in names}
    if len(names) == 2 and LATITUDE.fullmatch(names[0]) and LONGITUDE.fullmatch(names[1]):
        return Guess("place", "the columns' names")
    if kinds == {"number"}:
        return Guess("vector", f"{len(names)} columns of numbers")
    return Guess("captions" if kinds == {"captions"} else "", f"{len(names)} columns of {first or 'no one kind'}")


def guess_cells(name: str, cells: Sequence[str], comma: bool) -> Guess:
    """The kind of a column by its cells that are not empty."""
    if not cells:
        return Guess("", "it is empty")
    distinct = Counter(cells)
    if len(distinct) == 1:
        return Guess("", "all rows have the same")
    listed = [found for found in map(texts, cells) if found is not None]
    if len(listed) >= _MOST * len(cells):
        inside = [text for found in listed for text in found]
        if not inside or _share(inside, lambda text: number(text, False) is not None) < _MOST:
            return _texts(inside, "its cells are lists of texts")
    if _share(cells, lambda cell: is_nothing(cell) or number(cell, comma) is not None) >= _MOST:
        return _numbers(name, [cell for cell in cells if not is_nothing(cell)], comma)
    lengths = Counter(len(numbers(cell, comma) or ()) for cell in cells)
    length, count = lengths.most_common(1)[0]
    if length > 1 and count >= _MOST * len(cells):
        if length == 2 and _PLACE_NAMES.fullmatch(name):
            return Guess("place", "two numbers a cell, and its name")
        return Guess("vector", f"{length} numbers a cell")
    if _share(cells, lambda cell: bool(_DATE.fullmatch(cell))) >= _MOST:
        if _share(cells, lambda cell: date_in_days(cell) is not None) >= _MOST:
            return Guess("date", "its cells are dates")
        return Guess("", "its dates are not written year first, as in 2026-11-22")
    for mark in SEPARATORS:
        parts = [part.strip() for cell in cells for part in cell.split(mark) if part.strip()]
        if (
            len(parts) >= 1.3 * len(cells)
            and _words(parts) <= _TAG_WORDS
            and len(parts) >= 2 * len(set(parts))
            and len(set(parts)) <= len(distinct)
        ):
            return Guess("tags", f"lists of {len(set(parts)):,} short texts that come again, with '{mark}' between")
    if _words(cells) >= _CAPTION_WORDS and len(distinct) > len(cells) / 2:
        return Guess("captions", f"texts of {_words(cells):.0f} words, nearly all different")
    if len(distinct) <= len(cells) / 2:
        return Guess("class", f"{len(distinct):,} texts that come {len(cells) / len(distinct):.3g} times each")
    return Guess("", "nearly every row has a text of its own")


def _numbers(name: str, cells: Sequence[str], comma: bool) -> Guess:
    if not cells:
        return Guess("", "it is empty")
    values = [number(cell, comma) for cell in cells]
    distinct = len(set(values))
    if distinct == 1:
        return Guess("", "all rows have the same")
    if all(value is not None and value.is_integer() for value in values):
        if _CLASS_NAMES.fullmatch(name) and distinct <= len(values) / 2:
            return Guess("class", f"its name, and {distinct:,} whole numbers that come again")
        steps = {b - a for a, b in pairwise(values) if a is not None and b is not None}
        if distinct == len(values) > 2 and (steps == {1.0} or _COUNT_NAMES.fullmatch(name)):
            return Guess("", "it only counts the rows")
        if _COUNT_NAMES.fullmatch(name) and distinct <= len(values) / 2:
            return Guess("class", f"its name, and {distinct:,} whole numbers that come again")
    odd = sum(value is None for value in values)
    return Guess("number", "its cells are numbers" + (f", but {odd:,} of those looked at" if odd else ""))


def _texts(inside: Sequence[str], why: str) -> Guess:
    if _words(inside) >= _CAPTION_WORDS:
        return Guess("captions", why)
    return Guess("tags", f"{why}, short ones") if inside else Guess("", "its lists are empty")


def _image(paths: Sequence[str], maps: Sequence[str], exists: Callable[[str], bool]) -> str | None:
    """The column of images among those of paths: files that exist, no label maps, by its name."""
    candidates = [name for name in paths if exists(name)] or list(paths)
    candidates = [name for name in candidates if name not in maps] or [
        *[name for name in candidates if not _MAP_NAMES.fullmatch(name)],
        *candidates,
    ][:1]
    named = [name for name in candidates if _IMAGE_NAMES.fullmatch(name)]
    return next(iter(named or candidates), None)


def pair_up(guesses: dict[str, Guess]) -> dict[str, Guess]:
    """Guesses in which latitude and longitude stand together."""
    numeric = [name for name, guess in guesses.items() if guess.kind == "number"]
    south = [name for name in numeric if LATITUDE.fullmatch(name)]
    west = [name for name in numeric if LONGITUDE.fullmatch(name)]
    if len(south) != 1 or len(west) != 1:
        return guesses
    pair = {f"{south[0]},{west[0]}": Guess("place", "the columns' names")}
    return {**{name: guess for name, guess in guesses.items() if name not in (*south, *west)}, **pair}


def _existing(files: CellFiles, cells: Sequence[str]) -> list[str]:
    """Up to three files of a column that exist."""
    places = (files.place(cell) for cell in list(dict.fromkeys(cells))[:50] if cell)
    return [path for path in places if files.has(path)][:3]


def _share(cells: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, cells)) / len(cells)


def _words(cells: Sequence[str]) -> float:
    return sum(len(cell.split()) for cell in cells) / max(len(cells), 1)
