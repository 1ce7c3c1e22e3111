"""Which items are for training, for testing, and queries: from lists of names, or from a column."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from contml import InputError
from contml.contracts import Rows
from contml.data import ImageSource, Split, draw_queries, query_split
from contml.labels import LabelSpace

from .text import read_json

T = TypeVar("T", bound=Hashable)

#: Number of the first test item of a synthetic data set: a larger training set never reaches it.
FIRST_TEST = 10_000_000

#: The words of a split column.
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
    """The part that a cell of a split column names: "train", "test", "query", "val"; "" where it names none."""
    return _PARTS.get(cell.strip().lower(), "")


def split_by_column(
    path: Path, column: str, items: Iterable[tuple[T, str | None]], left_out: Collection[str] = ()
) -> Parts[T]:
    """The split that a column names: "train", "test", or "query" for a test item that is a query.

    Args:
        path: the file, for errors.
        column: the name of the column.
        items: each with its cell; None where the file has no such column.
        left_out: cells that mark items as not used.

    Raises:
        InputError: an item has no cell, or an unknown one.
    """
    parts: dict[str, list[T]] = {"train": [], "test": [], "query": []}
    for item, cell in items:
        if cell is None:
            hint = "give each item train, test or query, or name a file of lists of names"
            raise InputError(str(path), f"{item} has no '{column}'", hint=hint)
        if cell in parts:
            parts[cell].append(item)
        elif cell not in left_out:
            words = ", ".join([*parts, *(word or "nothing" for word in left_out)])
            raise InputError(str(path), f"{item} has {column} '{cell}'", f"must be one of {words}")
    return Parts(parts["train"], parts["query"], parts["test"])


def read_lists(path: Path, option: str) -> dict[str, list[str]]:
    """Lists of names in a JSON file: "train", "test" and perhaps "queries" ("test_queries"), a part of "test".

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
            raise InputError(str(path), f"'{part}' is not a list of names", "must hold lists train, test, queries")
    return lists


def split_by_lists(path: Path, train: Sequence[T], queries: Sequence[T], test: Sequence[T]) -> Parts[T]:
    """The split that lists give; queries may be in the list of test items too.

    Raises:
        InputError: an item is twice in a list, or in train and in test.
    """
    for part, items in (("train", train), ("queries", queries), ("test", test)):
        if len(set(items)) < len(items):
            repeated = next(item for item in items if items.count(item) > 1)
            raise InputError(str(path), f"{repeated} appears twice in {part}", hint="list it once")
    chosen = set(queries)
    refuse_shared(path, train, (*queries, *test))
    return Parts(list(train), list(queries), [item for item in test if item not in chosen])


def refuse_shared(path: Path, train: Iterable[Any], test: Iterable[Any], what: str = "image") -> None:
    """Refuse items that are both in train and in test."""
    if both := set(train) & set(test):
        found = f"{what} {min(both)} is in train and in test ({len(both):,} such {what}s)"
        raise InputError(str(path), found, hint="give each to one of them")


def with_queries(path: Path, parts: Parts[T]) -> Parts[T]:
    """The split; where no queries are named, the first fifth of the test items are queries.

    Raises:
        InputError: a part is too small.
    """
    if not parts.queries:
        fifth = len(parts.gallery) // 5
        parts = Parts(parts.train, parts.gallery[:fifth], parts.gallery[fifth:])
    if len(parts.train) < 3 or len(parts.gallery) < 2 or not parts.queries:
        found = f"{len(parts.train)} train, {len(parts.queries)} query and {len(parts.gallery)} test items"
        raise InputError(str(path), found, "needs at least 3 train items, 1 query and 2 others to find")
    return parts


def check_queries(queries: int, items: int) -> None:
    """Refuse a number of queries that leaves fewer than two of the test items to find."""
    draw_queries(queries, items, seed=0)


def kept_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    labels: LabelSpace,
    kept: Sequence[int],
    queries: Rows,
    excluded: Mapping[str, int],
    **parts: Any,
) -> Split:
    """The split of the items that are kept.

    Args:
        images: one per item.
        names: one per item.
        labels: of the kept items.
        kept: the positions of the kept items.
        queries: the positions of the queries among the kept items.
        excluded: number of items left out, by reason; a reason without items is omitted.
        parts: further arguments of `Split`.
    """
    counts = {reason: count for reason, count in excluded.items() if count}
    query_rows = query_split(queries, len(kept))
    kept_names = [names[row] for row in kept]
    return Split([images[row] for row in kept], kept_names, labels, *query_rows, excluded=counts, **parts)
