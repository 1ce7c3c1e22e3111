"""Drawn splits that do not change. The part of an item depends on its key, a seed and the share, and on no other item.

    position(key) = hash(seed, purpose, key) in [0, 1);   an item is in the part if  start <= position(key) < stop

Items with one key are not divided. A key is the name of an item, its group, or its class. Shares are approximate.
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
    """Return a number in [0, 1) for each key `[N]`, the same on every machine.

    Numbers for different purposes are independent.

    Args:
        keys: the key of each item.
        seed: another seed draws other numbers.
        purpose: the name of what is drawn: "test", "validation", "queries".
    """
    prefix = f"{seed}/{purpose}/".encode()
    different_keys, numbers = as_texts(keys).numbered()
    contents = (key.encode(errors="surrogateescape") for key in different_keys)
    digests = (hashlib.blake2b(prefix + content, digest_size=8).digest() for content in contents)
    positions = (int.from_bytes(digest, "big") / 2**64 for digest in digests)
    return np.fromiter(positions, np.float64, len(different_keys))[numbers]


def draw(keys: Sequence[str], share: float, seed: int, purpose: str, *, least: int = 1) -> Array:
    """Draw items, bool `[N]`: about a share of the keys, each with all of its items.

    If the drawn part has fewer than `least` keys, the next keys in order of their positions are added. If fewer keys
    than `least` are left, fewer are drawn. Only in these cases an item's part depends on other items.

    Args:
        keys: the key of each item. Items with equal keys stay together.
        share: the share that is drawn, between 0 and 1.
        seed: another seed draws another part.
        purpose: the name of the drawn part: "test", "validation".
        least: the least number of keys in the part, and of the keys that are left.

    Raises:
        InputError: there are too few keys, or the share is out of range.
    """
    if not 0 < share < 1:
        raise InputError("share", str(share), "must be between 0 and 1")
    unique_keys, numbers = as_texts(keys).numbered()
    if len(unique_keys) < 2 * least:
        raise InputError(purpose, f"{len(unique_keys)} different items to draw from", f"needs at least {2 * least}")
    places = positions(unique_keys, seed, purpose)
    count = min(max(int((places < share).sum()), least), len(unique_keys) - least)
    is_drawn = np.zeros(len(unique_keys), bool)
    is_drawn[np.argsort(places, kind="stable")[:count]] = True
    return is_drawn[numbers]


def draw_queries(count: int, names: Sequence[str], seed: int) -> Rows:
    """Draw `count` rows of a split by the names of its items. Adding an item changes at most one query.

    Raises:
        InputError: fewer than two items would be left in the gallery.
    """
    check_queries(count, len(names))
    return np.sort(np.argsort(positions(names, seed, "queries"), kind="stable")[:count]).tolist()


def check_queries(count: int, items: int) -> None:
    """Refuse a number of queries that leaves fewer than two items to find."""
    max_queries = max(items - 2, 0)
    if not 0 <= count <= max_queries:
        allowed = f"must be 0 to {max_queries}, so that two of {items} test images are left to find"
        raise InputError("queries", str(count), allowed, "0 uses every image as a query against all others")
