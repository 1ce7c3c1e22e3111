"""The role of each column of a table: images, split, or a kind of label. Roles are given, or guessed from cells."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from contml import InputError
from contml.config import ConfiguredPart
from contml.data.tables import Table, listed_texts
from contml.labels.caption_words import split_words
from contml.labels.scales import parse_date

from .._readers.splits import SPLIT_NAMES, TEST_PARTS, part_of, parts_of
from . import cells as table_cells
from .cells import SEPARATORS, CellFiles, decimal_comma, is_comma_pair, looks_like_paths, number, numbers
from .kinds import KINDS, label_columns, label_parts
from .label import Array, Reading
from .number_labels import LATITUDE, LONGITUDE

#: Guesses read this many rows, evenly spaced.
_SAMPLE = 20_000
#: A kind must fit this share of the cells. Other cells are errors with their line when the labels are read.
_MIN_SHARE = 0.9
#: Texts are captions if their mean number of words is at least the first number, and tags if at most the second.
_CAPTION_WORDS, _TAG_WORDS = 4, 3

_PART_NAMES = ("", "train", "val", *TEST_PARTS)
_CLASS_NAMES = re.compile(
    r"(?:.*[\W_])?(?:class|category|label|species|identity|person|product|item|zip|postal)(?:[\W_]?(?:id|code))?", re.I
)
_ROW_NUMBER_NAMES = re.compile(r"(?:.*[\W_])?(?:id|index|idx|nr|number|no|row|\(column \d+\))", re.I)
# "lon" is searched after the first "lat" only. A search after each "lat" would take quadratic time. So would a name
# with a line break after each "img", if the last ".*" did not match the line break (re.S).
_GEO_NAMES = re.compile(r".*(?:place|coord|gps|location|position).*|(?:(?!lat).)*+lat.*lon.*", re.I | re.S)
_MAP_NAMES = re.compile(r".*(?:label|mask|map|seg|annot|layout).*", re.I | re.S)
_DIGIT_DATE = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")  # as cameras name their files
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(?:[T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}")


class Guess(NamedTuple):
    """A kind of label and the reason. The kind is "" for a column that cannot be a label."""

    kind: str
    reason: str


class Roles(NamedTuple):
    """The columns of images and of the split, and the guess for every other column."""

    image: str | None
    split: str | None
    guesses: dict[str, Guess]


class Spec(NamedTuple):
    """One label: its columns, its kind with all options, and the reason for the kind."""

    columns: tuple[str, ...]
    part: ConfiguredPart
    reason: str


def choose_columns(
    table: Table, reading: Reading, labels: Mapping[str, ConfiguredPart] | None
) -> tuple[Roles, list[Spec]]:
    """Return the role of each column, and the labels.

    `labels` are kinds by column. If None, the label is the one column that can be a label.

    Raises:
        InputError: a column is missing, a kind cannot be guessed, or there are no or several possible labels.
    """
    for option in ("image", "split", "group"):
        if (column := getattr(reading, option)) is not None:
            table.column(column, option)
    if labels == {}:
        raise InputError("labels", "{}", "must name a label and its kind, {age: number}", "or omit it")
    parts = {label_columns(table, name): part for name, part in (labels or {}).items()}
    if len(parts) < len(labels or {}):
        raise InputError("labels", f"{', '.join(labels or {})}", "must have each label once")
    taken = {column for columns in parts for column in columns}
    for column, use in ((reading.image, "images"), (reading.split, "the split")):
        if column in taken:
            raise InputError("labels", f"'{column}' is the column of {use}")
    roles = _guess_roles(table, reading, taken)
    if roles.image is None:
        hint = "name it: image=COLUMN (--image); the first line of the file names the columns"
        if table.delimiter is not None and len(table.columns) == 1:
            hint = "one column: if another character is between its cells, name it: task.table.delimiter=CHARACTER"
        if reading.has_features:
            hint = "name the column with the names of the features: image=COLUMN (--image)"
        got = f"no column of image paths (it has {', '.join(table.columns)})"
        if of_bytes := [name for name, why in table.opaque.items() if why.startswith("bytes")]:
            got, first = f"no column of image paths, but bytes in the column {of_bytes[0]}", f"{table.path.name}/0"
            hint = f"if these are images, name them in a table of paths and labels: {first} is the first one"
        raise InputError(str(table.path), got, hint=hint)
    if not parts:
        only = _only_label(table, roles, reading.group)
        parts = {only: label_parts({",".join(only): "auto"})[",".join(only)]}
    specs = []
    for columns, part in parts.items():
        guess = Guess(part.name, "as given")
        if part.name == "auto":
            guess, name = guess_columns(columns, roles.guesses), ",".join(columns)
            if not guess.kind:
                hint = f"give it as {name}=KIND, with one of {', '.join(KINDS)}"
                raise InputError(f"{table.path}: {name}", f"the kind cannot be guessed ({guess.reason})", hint=hint)
            part = label_parts({name: {**part.options, "kind": guess.kind}})[name]
        specs.append(Spec(columns, part, guess.reason))
    return roles, specs


def _only_label(table: Table, roles: Roles, group: str | None) -> tuple[str, ...]:
    """Return the only column that can be a label, or the two columns of latitude and longitude."""
    candidates = {name: guess for name, guess in pair_up(roles.guesses).items() if guess.kind and name != group}
    if len(candidates) == 1:
        (name,) = candidates
        return (name,) if name in roles.guesses else tuple(name.split(","))
    if not candidates:
        why = "; ".join(f"{name}: {guess.reason}" for name, guess in roles.guesses.items())
        problem = f"no column can be the label ({why or f'its only column is {roles.image}'})"
        hint = "name one: --label NAME=KIND (in a config labels: {NAME: KIND})" if why else "add a column of labels"
        raise InputError(str(table.path), problem, hint=hint)
    listed = ", ".join(f"{name} ({guess.kind})" for name, guess in candidates.items())
    label, guess = next(iter(candidates.items()))
    hint = f"choose by --label {shlex.quote(f'{label}={guess.kind}')} (in a config labels: {{{label}: {guess.kind}}})"
    raise InputError(str(table.path), f"several columns can be the label: {listed}", hint=hint)


def _guess_roles(table: Table, reading: Reading, taken: Collection[str]) -> Roles:
    """Return the role of every column. `taken` are the columns of labels.

    Raises:
        InputError: several columns can be the split, or a column is named like a split but its cells are unknown.
    """
    image, split = reading.image, reading.split
    rows = np.unique(np.linspace(0, len(table) - 1, min(len(table), _SAMPLE), dtype=np.int64)).tolist()
    sample = {name: column.texts(rows) for name, column in table.columns.items()}
    paths = [name for name, cells in sample.items() if looks_like_paths([c for c in cells if c]) and name != image]
    maps = [name for name in paths if table_cells.looks_like_maps(_existing(reading.files, sample[name]))]
    if image is None or not taken:
        candidates = {name: sample[name] for name in ([] if image is None else [image]) + paths if name not in taken}
        image = _choose_image(table, reading, candidates, maps, has_label=bool(taken))
    if split is None:
        split = _find_split(table, [name for name in sample if name not in (image, reading.group, *taken)])
    guesses: dict[str, Guess] = {}
    for name, cells in sample.items():
        if name in (image, split):
            continue
        if name in maps:
            guesses[name] = Guess("map", "its cells are files with few grey values")
        elif name in paths:
            guesses[name] = Guess("", "its cells name images")
        else:
            comma = decimal_comma(cells, reading.table.decimal, table.delimiter)
            guesses[name] = guess_cells(name, [cell for cell in cells if cell], comma)
    return Roles(image, split, guesses)


def _find_split(table: Table, names: Sequence[str]) -> str | None:
    """Return the column whose cells name training items, and validation or test items.

    Return None if no column does.
    """
    row_parts: dict[str, Array] = {}  # the number of the part of each row
    unclear: list[str] = []
    for name in names:
        texts, codes = table.columns[name].distinct()
        parts = [part_of(text) for text in texts]
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        share = counts[[bool(part) for part in parts]].sum() / max(counts.sum(), 1)
        named = {*parts} - {""}
        if share >= _MIN_SHARE and "train" in named and len(named) > 1:
            row_parts[name] = np.array([*map(_PART_NAMES.index, parts), _PART_NAMES.index("")])[codes]
        elif texts and (SPLIT_NAMES.fullmatch(name) or (share == 1 and named == {"train"})):
            unclear.append(name)
    if unclear and not row_parts:  # raises
        parts_of(table.columns[unclear[0]].texts(), table.where, table.path, unclear[0])
    column, *other_columns = row_parts or [None]
    differs = (name for name in other_columns if (row_parts[str(name)] != row_parts[str(column)]).any())
    if conflict := next(differs, None):
        problem = f"both '{column}' and '{conflict}' name training and test rows, and they differ"
        raise InputError(str(table.path), problem, hint=f"choose one: split={column}")
    return column


def guess_columns(names: Sequence[str], guesses: dict[str, Guess]) -> Guess:
    """Guess the kind of the columns that make one label together."""
    if len(names) == 1:
        return guesses[names[0]]
    kinds = {guesses.get(name, Guess("", "")).kind for name in names}
    if len(names) == 2 and LATITUDE.fullmatch(names[0]) and LONGITUDE.fullmatch(names[1]):
        return Guess("geo", "the columns' names")
    if kinds == {"number"}:
        return Guess("vector", f"{len(names)} columns of numbers")
    if kinds == {"captions"}:
        return Guess("captions", f"{len(names)} columns of captions")
    return Guess("", f"{len(names)} columns of different kinds")


def guess_cells(name: str, cells: Sequence[str], comma: bool) -> Guess:
    """Guess the kind of a column from its filled cells."""
    if not cells:
        return Guess("", "it is empty")
    distinct = Counter(cells)
    if len(distinct) == 1:
        return Guess("", "all rows have the same value")
    lists = [items for items in map(listed_texts, cells) if items is not None]
    if len(lists) >= _MIN_SHARE * len(cells):
        elements = [text for items in lists for text in items]
        if not elements or _share(elements, lambda text: number(text, False) is not None) < _MIN_SHARE:
            return _guess_lists(elements)
    if _share(cells, lambda cell: bool(_DIGIT_DATE.fullmatch(cell))) >= _MIN_SHARE:
        return Guess("date", f"its numbers are dates, such as {cells[0]}")
    if _share(cells, lambda cell: number(cell, comma) is not None) >= _MIN_SHARE:
        return _guess_numbers(name, cells, comma)
    length, count = Counter(len(numbers(cell, comma) or ()) for cell in cells).most_common(1)[0]
    if length == 2 and not comma and all(is_comma_pair(cell) for cell in cells):
        meanings = "may be a decimal (task.table.decimal=comma), have a thousands separator, or be two numbers (vector)"
        return Guess("", f"'{cells[0]}' {meanings}")
    if length > 1 and count >= _MIN_SHARE * len(cells):
        if length == 2 and _GEO_NAMES.fullmatch(name):
            return Guess("geo", "two numbers per cell, and its name")
        return Guess("vector", f"{length} numbers per cell")
    if _share(cells, lambda cell: bool(_DATE.fullmatch(cell))) >= _MIN_SHARE:
        if _share(cells, lambda cell: parse_date(cell) is not None) >= _MIN_SHARE:
            return Guess("date", "its cells are dates")
        return Guess("", f"its dates are not written year first: give their form, as in {name}=date:%d.%m.%Y")
    if example := table_cells.units(cells):
        return Guess("", f"its numbers have a unit or thousands separators, as '{example}': write plain numbers")
    for mark in SEPARATORS:
        tags = [tag.strip() for cell in cells for tag in cell.split(mark) if tag.strip()]
        distinct_tags = set(tags)
        looks_like_tags = len(tags) >= 1.3 * len(cells) and _words(tags) <= _TAG_WORDS
        if looks_like_tags and len(tags) >= 2 * len(distinct_tags) and len(distinct_tags) <= len(distinct):
            return Guess("tags", f"lists of {len(distinct_tags):,} short texts that repeat, separated by '{mark}'")
    if _words(cells) >= _CAPTION_WORDS and len(distinct) > len(cells) / 2:
        return Guess("captions", f"texts of {_words(cells):.0f} words, nearly all different")
    if len(distinct) <= len(cells) / 2:
        return Guess("class", f"{len(distinct):,} texts, each in {len(cells) / len(distinct):.3g} rows on average")
    return Guess("", "nearly every row has its own text")


def _guess_numbers(name: str, cells: Sequence[str], comma: bool) -> Guess:
    values = [number(cell, comma) for cell in cells]
    distinct = len(set(values))
    if distinct < 2:
        return Guess("", "all rows have the same value" if values else "it is empty")
    if all(value is not None and value.is_integer() for value in values):
        class_guess = Guess("class", f"its name, and {distinct:,} whole numbers that repeat")
        if _CLASS_NAMES.fullmatch(name) and distinct <= len(values) / 2:
            return class_guess
        steps = {b - a for a, b in pairwise(values) if a is not None and b is not None}
        numbering = distinct >= _MIN_SHARE * len(values) and _ROW_NUMBER_NAMES.fullmatch(name)  # some rows may repeat
        if distinct > 2 and (numbering or (distinct == len(values) and steps == {1.0})):
            return Guess("", "it only numbers the rows")
        if _ROW_NUMBER_NAMES.fullmatch(name) and distinct <= len(values) / 2:
            return class_guess
    invalid = sum(value is None for value in values)
    return Guess("number", "its cells are numbers" + (f", except {invalid:,} of those read" if invalid else ""))


def _guess_lists(elements: Sequence[str]) -> Guess:
    """Guess the kind of a column whose cells are lists. `elements` are the elements of all its lists."""
    if any(elements) and all(element.startswith("[") for element in filter(None, elements)):
        return Guess("pose", "its cells are lists of points")
    if _words(elements) >= _CAPTION_WORDS:
        return Guess("captions", "its cells are lists of texts")
    return Guess("tags", "its cells are lists of short texts") if elements else Guess("", "its lists are empty")


def _choose_image(
    table: Table, reading: Reading, paths: Mapping[str, Sequence[str]], maps: Sequence[str], *, has_label: bool
) -> str | None:
    """Return the column of images: the only column of paths whose files exist and are not label maps.

    Args:
        table: the table, for errors.
        reading: the options of the task.
        paths: some cells of each column of paths.
        maps: the columns of label maps.
        has_label: True if labels were given.

    Raises:
        InputError: several columns can be the images. A label could then belong to either image.
    """
    files, given = reading.files, reading.image
    others = [name for name in paths if name not in maps or name == given]
    # If all columns hold maps, the names of some columns show it.
    candidates = [name for name in others if name == given or _existing(files, paths[name])] or others
    candidates = candidates or [*[name for name in paths if not _MAP_NAMES.fullmatch(name)], *paths][:1]
    different = {tuple(map(files.place, filter(None, paths[name]))): name for name in reversed(candidates)}
    if len(different) > 1:
        problem = f"{len(candidates)} columns of image paths: {', '.join(candidates)}"
        hint = f"choose the one that the labels belong to: image={candidates[0]} (--image {shlex.quote(candidates[0])})"
        if not has_label:
            hint = "if a row judges these images, name the columns a, b, score, or anchor, x, y, choice "
            hint += "(docs/judgments.md); if a label belongs to one of them, give --image and --label"
        raise InputError(str(table.path), problem, hint=hint)
    return given or next(iter(candidates), None)


def pair_up(guesses: dict[str, Guess]) -> dict[str, Guess]:
    """Return the guesses with latitude and longitude as one entry."""
    numeric = [name for name, guess in guesses.items() if guess.kind == "number"]
    matches = [[name for name in numeric if pattern.fullmatch(name)] for pattern in (LATITUDE, LONGITUDE)]
    if [len(names) for names in matches] != [1, 1]:
        return guesses
    ((latitude,), (longitude,)) = matches
    other_guesses = {name: guess for name, guess in guesses.items() if name not in (latitude, longitude)}
    return {**other_guesses, f"{latitude},{longitude}": Guess("geo", "the columns' names")}


def _existing(files: CellFiles, cells: Sequence[str]) -> list[str]:
    """Return up to three files of a column that exist."""
    places = map(files.place, filter(None, list(dict.fromkeys(cells))[:50]))
    return [*islice(filter(os.path.isfile, places), 3)]


def _share(cells: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, cells)) / len(cells)


def _words(cells: Sequence[str]) -> float:
    """Return the mean number of words. A code without spaces, as 1f0c-77ab, is one word."""
    counts = (len(split_words(cell, frozenset())) if len(cell.split()) > 1 else 1 for cell in cells)
    return sum(counts) / max(len(cells), 1)
