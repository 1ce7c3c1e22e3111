"""Combinations of values to test: fewer than a whole grid, chosen in the same way in each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def spread(*axes: Iterable[Any], times: int = 1) -> list[tuple[Any, ...]]:
    """Combinations in which each value of each axis occurs at least `times` times, with other values each time.

    For values that go through one piece of code, whatever the other values are.
    """
    lists = [list(axis) for axis in axes]
    longest = max(map(len, lists))
    return [
        tuple(values[(i + number * (i // longest)) % len(values)] for number, values in enumerate(lists))
        for i in range(longest * times)
    ]


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which each two values of two axes meet: errors of two options are found as in the whole grid."""
    lists = [list(axis) for axis in axes]
    pairs = list(combinations(range(len(lists)), 2))

    def meetings(indices: Sequence[int]) -> set[tuple[int, int, int, int]]:
        return {(a, b, indices[a], indices[b]) for a, b in pairs}

    grid = list(product(*(range(len(values)) for values in lists)))
    missing = set().union(*map(meetings, grid))
    chosen = []
    while missing:
        grid = [indices for indices in grid if meetings(indices) & missing]
        best = max(len(meetings(indices) & missing) for indices in grid)
        for indices in grid:
            if len(new := meetings(indices) & missing) == best:
                chosen.append(indices)
                missing -= new
    return [tuple(values[i] for i, values in zip(indices, lists, strict=True)) for indices in chosen]


def mostly_slow(cases: Iterable[Any], fast: int) -> list[Any]:
    """Parameters of a test: some cases, at equal distances, are in the fast suite, the others in the slow one."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    chosen = {round(place * len(listed) / fast) for place in range(fast)}
    return [pytest.param(*case, marks=[] if n in chosen else pytest.mark.slow) for n, case in enumerate(listed)]
