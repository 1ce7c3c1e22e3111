"""Functions that numba compiles, where there is no place for its cache."""

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


def test_functions_are_compiled_on_a_full_disk(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", refuse)

    @compiled
    def thrice(x):
        return 3 * x

    assert thrice(3) == 9
    assert not [*tmp_path.rglob("*.nbc")]
