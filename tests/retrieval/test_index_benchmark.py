"""A small run of `benchmarks.search`: our results are those of plain FAISS."""

from __future__ import annotations

import pytest

from benchmarks import search


@pytest.mark.slow
def test_results_are_those_of_plain_faiss():
    for kind, found in search.run(items=12_000, dim=16, rounds=1, kinds=list(search.KINDS)).items():
        assert found["same"] > 0.999
        assert found["gap"] < 1e-5
        assert found["recall"] > (0.99 if kind != "flat" else 0.9999)
        assert 0 < found["memory"] < 2e9
