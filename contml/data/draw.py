"""Drawn splits that do not move: the part of an item depends on its key, a seed and the share, on no other item.

    position(key) = hash(seed, purpose, key) in [0, 1);   an item is in the part if  start <= position(key) < stop

A key is what must not be divided: the name of an item, its group, or its class. Shares are approximate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from contml._support.errors import InputError
from contml._support.packed_texts import as_texts
from contml.contracts import Rows

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def positions(keys: Sequence[str], seed: int, purpose: str) -> Array:
    """A number in [0, 1) for each key `[N]`, the same on every machine; independent for different purposes.

    Args:
        keys: the key of each item.
        seed: another seed draws other numbers.
        purpose: what is drawn: "test", "validation", "queries".
    """
    prefix = f"{seed}/{purpose}/".encode()
    different_keys, numbers = as_texts(keys).numbered()
    digests = (hashlib.blake2b(prefix + key, digest_size=8).digest() for key in different_keys.contents())
    positions = (int.from_bytes(digest, "big") / 2**64 for digest in digests)
    key_positions: Array = np.fromiter(positions, np.float64, len(different_keys))
    return key_positions[numbers]


def folds(share: float) -> int:
    """The number of parts of this share that have no key in common."""
    return int(1 / share + 1e-9)


def draw(keys: Sequence[str], share: float, seed: int, purpose: str, *, fold: int = 0, least: int = 1) -> Array:
    """The items that are drawn, bool `[N]`: about a share of the keys, each with all of its items.

    Where so few keys are drawn, or left, that a part has fewer than `least` of them, the next keys in order of their
    positions are added to it. Only then an item's part depends on other items.

    Args:
        keys: the key of each item; items with equal keys stay together.
        share: the share that is drawn, between 0 and 1.
        seed: another seed draws another part.
        purpose: what is drawn: "test", "validation".
        fold: draws the part number `fold` of `folds(share)` parts that have no key in common.
        least: the least number of keys in the part, and of the keys that are left.

    Raises:
        InputError: there are too few keys, or the share or the fold is out of range.
    """
    if not 0 < share < 1:
        raise InputError("share", str(share), "must be between 0 and 1")
    if not 0 <= fold < folds(share):
        raise InputError("fold", str(fold), f"must be 0 to {folds(share) - 1}")
    unique_keys, numbers = as_texts(keys).numbered()
    if len(unique_keys) < 2 * least:
        raise InputError(purpose, f"{len(unique_keys)} different items to draw from", f"needs at least {2 * least}")
    # Turned, so that the part begins at 0.
    turned = (positions(unique_keys, seed, purpose) - fold * share) % 1
    order = np.argsort(turned, kind="stable")
    count = min(max(int((turned < share).sum()), least), len(unique_keys) - least)
    is_drawn = np.zeros(len(unique_keys), bool)
    is_drawn[order[:count]] = True
    drawn: Array = is_drawn[numbers]
    return drawn


def draw_queries(count: int, names: Sequence[str], seed: int) -> Rows:
    """`count` rows of a split, drawn by the names of its items: another item changes at most one query.

    Raises:
        InputError: fewer than two items would be left in the gallery.
    """
    check_queries(count, len(names))
    rows: list[int] = np.sort(np.argsort(positions(names, seed, "queries"), kind="stable")[:count]).tolist()
    return rows


def check_queries(count: int, items: int) -> None:
    """Refuse a number of queries that leaves fewer than two of the items to find."""
    max_queries = max(items - 2, 0)
    if not 0 <= count <= max_queries:
        allowed = f"must be 0 to {max_queries}, so that two of {items} test images are left to find"
        raise InputError("queries", str(count), allowed, "0 uses every image as a query against all others")
