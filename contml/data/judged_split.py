"""Splits of judged items: by item, so that no judgment of one part has an item of the other; or by judgment.

Items that judgments connect are kept together. If more than half of all items are connected, the part is drawn from
them: items that are near each other in the graph of judgments. Judgments between both parts are then left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from contml._support.errors import InputError
from contml.data.draw import Array, draw, positions
from contml.data.split import Split
from contml.labels.judged import JudgedItems

#: What a split divides.
DivideBy: TypeAlias = Literal["item", "judgment"]

_J = TypeVar("_J", bound=JudgedItems)


def connected_items(labels: JudgedItems) -> Array:
    """The number of the connected set of each item `[N]`: judgments connect their items."""
    from scipy.sparse import coo_array  # here: it takes a while to import
    from scipy.sparse.csgraph import connected_components

    count, owner = len(labels), labels.judgment_of
    entries = (np.ones(len(owner), dtype=np.int8), (labels.members, count + owner))
    graph = coo_array(entries, shape=(count + labels.count,) * 2)
    numbers: Array = connected_components(graph, directed=False)[1][:count]
    return numbers


def divide(
    labels: _J, names: Sequence[str], share: float, by: DivideBy, seed: int, purpose: str, *, fold: int = 0
) -> tuple[_J, _J]:
    """The judgments of the part that is left, and those of the part that is drawn, both over all items.

    Args:
        labels: the judgments, a root.
        names: the name of each item.
        share: approximate share of the items, or of the judgments, that is drawn.
        by: "item": no item is in both parts; "judgment": an item may be.
        seed: another seed draws another part.
        purpose: what is drawn: "test", "validation".
        fold: as in `contml.data.draw.draw`.

    Raises:
        InputError: a part has no judgment.
    """
    keys = labels.judgment_names(names) if by == "judgment" else ()
    if labels.count < 2 or (by == "judgment" and len(set(keys)) < 2):
        raise InputError(f"{purpose} split by {by}", "one judgment to divide", "needs at least 2")
    if by == "judgment":
        drawn = draw(keys, share, seed, purpose, fold=fold)
        return labels.keep(~drawn), labels.keep(drawn)
    drawn = _drawn_items(labels, names, share, seed, purpose, fold)
    parts = labels.keep_items(~drawn), labels.keep_items(drawn)
    if not all(part.count for part in parts):
        counts = f"{parts[0].judged:,} and {parts[1].judged:,}"
        got = f"{counts} of {labels.judged:,} judgments are among the items of one part"
        hint = "draw a larger share, or divide by judgment: then an item may be in both parts"
        raise InputError(f"{purpose} split by item", got, "each part needs one", hint)
    return parts


def _drawn_items(labels: JudgedItems, names: Sequence[str], share: float, seed: int, purpose: str, fold: int) -> Array:
    """The items that are drawn, bool `[N]`."""
    numbers, used = connected_items(labels), labels.used
    drawn = np.zeros(len(labels), dtype=bool)
    sizes = np.bincount(numbers[used])
    largest = int(sizes.argmax())
    together = (numbers == largest) & used if 2 * sizes[largest] > used.sum() else np.zeros(len(labels), dtype=bool)
    rows = np.flatnonzero(used & ~together)
    order = np.argsort(np.asarray(names, dtype=object)[rows], kind="stable")
    first: dict[int, str] = {}
    for row in rows[order].tolist():
        first.setdefault(int(numbers[row]), names[row])
    keys = [first[int(numbers[row])] for row in rows]
    if len(set(keys)) >= 2:
        drawn[rows] = draw(keys, share, seed, purpose, fold=fold)
    if together.any():
        near = _by_nearness(labels, np.flatnonzero(together), names, seed, purpose)
        start, stop = (round((fold + n) * share * len(near)) for n in (0, 1))
        drawn[near[start : max(stop, start + 1)]] = True
    return drawn


def _by_nearness(labels: JudgedItems, rows: Array, names: Sequence[str], seed: int, purpose: str) -> Array:
    """Connected items in breadth-first order from a drawn one: items that judgments connect are near each other."""
    from scipy.sparse import coo_array  # here: it takes a while to import
    from scipy.sparse.csgraph import breadth_first_order

    count, owner = len(labels), labels.judgment_of
    entries = (np.ones(len(owner), dtype=np.int8), (labels.members, count + owner))
    graph = coo_array(entries, shape=(count + labels.count,) * 2).tocsr()
    start = int(rows[positions([names[row] for row in rows], seed, purpose).argmin()])
    order = breadth_first_order(graph, start, directed=False, return_predecessors=False)
    found: Array = order[order < count]
    return found


def with_judgments(split: Split, labels: JudgedItems, left_out: int = 0) -> Split:
    """The split with other judgments over its items, of the items in one of them.

    Args:
        split: the split.
        labels: judgments of all items of the split.
        left_out: number of judgments that are in no part, since their items are divided between the parts.
    """
    part = replace(split, labels=labels).subset(labels.used)
    assert isinstance(part.labels, JudgedItems)
    part.labels.left_out += left_out
    return part
