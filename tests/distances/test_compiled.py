"""Functions that numba compiles, where there is no place for its cache."""

from __future__ import annotations

import numba.core.caching

from contml.distances._compiled import compiled, inlined


def test_functions_are_compiled_without_a_place_for_the_cache(monkeypatch):
    for kind in vars(numba.core.caching).values():
        if isinstance(kind, type) and hasattr(kind, "_locator_classes"):
            monkeypatch.setattr(kind, "_locator_classes", [])

    @inlined
    def twice(x):
        return 2 * x

    @compiled
    def more(x):
        return twice(x) + 1

    assert more(3) == 7
