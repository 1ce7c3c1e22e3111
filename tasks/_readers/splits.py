"""Which items are for training, for testing, and queries: by lists of names, or by a column."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from contml import InputError

from .text import read_json

T = TypeVar("T", bound=Hashable)

#: What the cells of a column of the split mean.
_PARTS = {
    **dict.fromkeys(("train", "training", "fit"), "train"),
    **dict.fromkeys(("test", "testing", "gallery", "eval", "evaluation"), "test"),
    **dict.fromkeys(("query", "queries"), "query"),
    **dict.fromkeys(("val", "validation", "valid", "dev"), "val"),
}


class Parts(NamedTuple, Generic[T]):
    """Training items; test items that are queries; the other test items."""

    train: list[T]
    queries: list[T]
    gallery: list[T]


def part_of(cell: str) -> str:
    """What a cell of a column of the split means; "" where it means nothing."""
    return _PARTS.get(cell.strip().lower(), "")


def split_by_column(
    path: Path, column: str, items: Iterable[tuple[T, str | None]], left_out: Collection[str] = ()
) -> Parts[T]:
    """The split that a column names: "train", "test", or "query" for a test item that is a query.

    Args:
        path: the file, for errors.
        column: the name of the column.
        items: each with its cell; None where the file has no such column.
        left_out: cells of items that are in no part.

    Raises:
        InputError: an item has no cell, or another.
    """
    parts: dict[str, list[T]] = {"train": [], "test": [], "query": []}
    for item, cell in items:
        if cell is None:
            raise InputError(
                f"{path}: {item} has no '{column}'; give every item train, test or query, or name a file of lists of "
                "names"
            )
        if cell in parts:
            parts[cell].append(item)
        elif cell not in left_out:
            allowed = ", ".join([*parts, *(word or "nothing" for word in left_out)])
            raise InputError(f"{path}: {item} has {column} '{cell}'; it must be one of {allowed}")
    return Parts(parts["train"], parts["query"], parts["test"])


def read_lists(path: Path, option: str) -> dict[str, list[str]]:
    """Lists of names in a JSON file: "train", "test" and perhaps "queries" ("test_queries"), which are part of "test".

    Raises:
        InputError: no such file, or not such lists.
    """
    content = read_json(path, option)
    found = content if isinstance(content, dict) else {}
    lists: dict[str, Any] = {
        "train": found.get("train"),
        "queries": found.get("queries", found.get("test_queries", [])),
        "test": found.get("test"),
    }
    for part, names in lists.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: '{part}' is no list of names; give an object of lists train, test, queries")
    return lists


def split_by_lists(path: Path, train: Sequence[T], queries: Sequence[T], test: Sequence[T]) -> Parts[T]:
    """The split that lists give; queries may be in the list of test items too.

    Raises:
        InputError: an item is twice in a list, or in train and in test.
    """
    for part, items in (("train", train), ("queries", queries), ("test", test)):
        if len(set(items)) < len(items):
            repeated = next(item for item in items if items.count(item) > 1)
            raise InputError(f"{path}: {repeated} appears twice in {part}; list it once")
    chosen = set(queries)
    refuse_shared(path, train, (*queries, *test))
    return Parts(list(train), list(queries), [item for item in test if item not in chosen])


def refuse_shared(path: Path, train: Iterable[Any], test: Iterable[Any], what: str = "image") -> None:
    """Refuse what is in train and in test: a test shows nothing where it was trained on."""
    if both := set(train) & set(test):
        raise InputError(
            f"{path}: {what} {min(both)} is in train and in test ({len(both):,} such {what}s); give each to one of them"
        )


def with_queries(path: Path, parts: Parts[T]) -> Parts[T]:
    """The split; where no queries are named, the first fifth of the test items are.

    Raises:
        InputError: a part is too small.
    """
    if not parts.queries:
        fifth = len(parts.gallery) // 5
        parts = Parts(parts.train, parts.gallery[:fifth], parts.gallery[fifth:])
    if len(parts.train) < 3 or len(parts.gallery) < 2 or not parts.queries:
        raise InputError(
            f"{path}: the split has {len(parts.train)} train, {len(parts.queries)} query, {len(parts.gallery)} test; "
            "training needs at least 3 images, an evaluation 1 query and 2 others"
        )
    return parts


def check_queries(queries: int, items: int) -> None:
    """Refuse a number of queries that leaves fewer than two of the test items to find.

    Raises:
        InputError: the number is out of range.
    """
    if not 0 <= queries <= max(items - 2, 0):
        raise InputError(
            f"queries is {queries}; it must be 0 to {max(items - 2, 0)}, so that two of {items} test images are left "
            "to find; 0 makes every image a query against all others"
        )
