"""Splits into training, validation, test and query items, from lists of names or from a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from contml import InputError
from contml.contracts import Rows
from contml.data import ImageSource, Pixels, Split, Task, View, drawn, query_split
from contml.data.text_files import read_json
from contml.labels import LabelSpace

T = TypeVar("T", bound=Hashable)

#: The first validation and the first test item of a synthetic data set. A larger training set never reaches them.
FIRST_VAL, FIRST_TEST = 5_000_000, 10_000_000

#: The words that name a part of a data set. They are cells of a column, keys of lists, or names of folders and files.
_PARTS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    **dict.fromkeys(("query", "queries", "probe", "test_queries"), "query"),
    "gallery": "gallery",
}
#: The parts of a test split.
TEST_PARTS = ("test", "query", "gallery")
#: Names of columns that hold the split of each row.
SPLIT_NAMES = re.compile(
    r"split|(?:k[\W_]?)?folds?|subset|partition|phase|set|(?:data|dataset)[\W_]?split"
    r"|is[\W_]?(?:train|training|val|valid|validation|test|testing)",
    re.I,
)
_FOLD = re.compile(r"(?:fold|cv|k)?[\W_]*[0-9]+(?:\.0)?", re.I)


class SplitItems(NamedTuple, Generic[T]):
    """Training items, validation items, test items that are queries, and the other test items."""

    train: list[T]
    val: list[T]
    queries: list[T]
    gallery: list[T]


def part_of(word: str) -> str:
    """Return the part that a word names: "train", "val", "test", "query" or "gallery".

    Return "" if the word names no part.
    """
    return _PARTS.get(word.strip().lower(), "")


def parts_of(cells: Sequence[str], where: Callable[[int], str], source: object, column: str) -> list[str]:
    """Return the part that each cell of a split column names. Return "" for an empty cell, whose item is not used.

    Args:
        cells: the cells.
        where: returns the file and line of a row, for errors.
        source: the file.
        column: the name of the column.

    Raises:
        InputError: a cell names no part; or the column names no training items, or neither test nor validation items.
    """
    parts = [part_of(cell) for cell in cells]
    for row, (part, cell) in enumerate(zip(parts, cells, strict=True)):
        if not part and cell.strip():
            allowed = "must be train, val, test, query, gallery or empty (not used)"
            raise InputError(f"{where(row)}: {column}", f"'{cell.strip()}'", allowed, split_hint(cells, column))
    named_parts = set(parts) - {""}
    if "train" not in named_parts or len(named_parts) < 2:
        words = ", ".join(f"'{word}'" for word in dict.fromkeys(cell.strip() for cell in cells) if word)
        got, allowed = f"only {words or 'empty cells'}", "must name train, and test or val"
        hint = "write train, val or test in all rows, or remove the column if it is not the split"
        raise InputError(f"{source}: {column}", got, allowed, hint)
    return parts


def split_hint(cells: Iterable[str], column: str) -> str:
    """Return a hint that shows how to write the cells of a column that is not understood."""
    words = {cell.strip().lower() for cell in cells} - {""}
    if words <= {"0", "1", "0.0", "1.0", "true", "false", "yes", "no"}:
        return f"write train, val or test instead of {' and '.join(sorted(words))}"
    if all(_FOLD.fullmatch(word) for word in words):
        return f"these look like folds: write train, val or test, or set task.group={column} to draw whole folds"
    return "write train, val or test, or rename the column if it is not the split"


def read_lists(path: Path, option: str) -> dict[str, list[str]]:
    """Read lists of names from a JSON file: "train", "val", "test", "queries". "queries" may be a part of "test".

    Raises:
        InputError: the file is missing, or holds something else than lists of names.
    """
    content = read_json(path, option)
    entries = content if isinstance(content, dict) else {}
    return name_lists(path, {key: names for key, names in entries.items() if part_of(key) or isinstance(names, list)})


def name_lists(path: Path, found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the lists of names by part: "train", "val", "queries", "test". A list that is not given is empty.

    Raises:
        InputError: a key names no part, two keys name the same part, or the training list or the test list is missing.
    """
    allowed = "must hold lists train, test or val, and perhaps queries"
    lists: dict[str, list[str]] = {}
    for key, names in found.items():
        part = {"query": "queries", "gallery": "test"}.get(part_of(key), part_of(key))
        if not part or part in lists:
            problem = f"is a second list of {part}" if part else "names no part"
            raise InputError(str(path), f"'{key}' {problem}", allowed)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(str(path), f"'{key}' is not a list of names", allowed)
        lists[part] = names
    if "train" not in lists or not {"test", "val"} & set(lists):
        missing = "'test' and no list 'val'" if "train" in lists else "'train'"
        raise InputError(str(path), f"no list {missing}", allowed)
    return {part: lists.get(part, []) for part in ("train", "val", "queries", "test")}


def split_by_lists(
    path: Path, train: Sequence[T], val: Sequence[T], queries: Sequence[T], test: Sequence[T]
) -> SplitItems[T]:
    """Build the split that lists of items define. The test list may contain the queries too.

    Raises:
        InputError: an item appears twice in a list, or in two of train, val and test.
    """
    for part, items in (("train", train), ("val", val), ("queries", queries), ("test", test)):
        if len(set(items)) < len(items):
            repeated = next(item for item in items if items.count(item) > 1)
            raise InputError(str(path), f"{repeated} appears twice in {part}", hint="list it once")
    query_set = set(queries)
    refuse_shared(path, {"train": train, "val": val, "test": (*queries, *test)})
    return SplitItems(list(train), list(val), list(queries), [item for item in test if item not in query_set])


def refuse_shared(path: Path, parts: Mapping[str, Iterable[Any]], what: str = "image") -> None:
    """Refuse items that are in two parts."""
    part_by_item: dict[Any, str] = {}
    for part, items in parts.items():
        distinct = set(items)
        if shared := distinct & part_by_item.keys():
            first, count = min(shared), f"{len(shared):,} such {what}s"
            problem = f"{what} {first} is in {part_by_item[first]} and in {part} ({count})"
            raise InputError(str(path), problem, hint="give each to one of them")
        part_by_item |= dict.fromkeys(distinct, part)


def queries_like(queries: int, items: int, others: int) -> int:
    """Return the number of queries among `others` items, in the proportion of `queries` to `items`.

    At least two items are not queries.
    """
    return min(round(queries * others / items), max(others - 2, 0)) if items else 0


def drawn_task(
    draw: Callable[..., Any], seed: int, counts: tuple[int, ...], size: int, what: str, make: Callable[..., Split]
) -> Task:
    """Build a data set of drawn images.

    Args:
        draw: `draw(seed, number, size)` returns the pixels and the label of an item, as in `drawn`.
        seed: the seed of the data set.
        counts: the numbers of training, validation and test images.
        size: side of an image in pixels.
        what: the word before the number of an item in its name.
        make: `make(part, images, names, labels)` returns the split of a part: "train", "val" or "test".
    """
    splits = {}
    for part, first, count in zip(("train", "val", "test"), (0, FIRST_VAL, FIRST_TEST), counts, strict=True):
        numbers = range(first, first + count)
        pixels, labels = drawn(draw, seed, numbers, size, "images")
        splits[part] = make(part, [Pixels(image) for image in pixels], [f"{what} {n}" for n in numbers], labels)
    return Task(splits["train"], splits["test"], splits["val"])


def kept_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    labels: LabelSpace,
    kept: Sequence[int],
    queries: Rows,
    excluded: Mapping[str, int],
    view: View,
) -> Split:
    """Build the split of the items that are kept.

    Args:
        images: the images of all items, with the items that are not kept.
        names: the names of all items, with the items that are not kept.
        labels: the labels of the kept items.
        kept: the positions of the kept items.
        queries: the positions of the queries among the kept items.
        excluded: number of excluded items, by reason. A reason without items is omitted.
        view: draws labels in reports.
    """
    counts = {reason: count for reason, count in excluded.items() if count}
    query_rows = query_split(queries, len(kept))
    kept_names = [names[row] for row in kept]
    return Split([images[row] for row in kept], kept_names, labels, *query_rows, excluded=counts, view=view)
