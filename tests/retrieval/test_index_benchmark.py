"""A small run of `benchmarks.search`: our results are those of plain FAISS."""

from __future__ import annotations

import faiss
import pytest
import torch

from benchmarks import search


@pytest.fixture(autouse=True)
def threads():
    """The benchmark sets its own number of threads."""
    torch_threads, faiss_threads = torch.get_num_threads(), faiss.omp_get_max_threads()
    yield
    torch.set_num_threads(torch_threads)
    faiss.omp_set_num_threads(faiss_threads)


@pytest.mark.slow
def test_results_are_those_of_plain_faiss():
    for kind, found in search.run(items=12_000, dim=16, rounds=1, kinds=list(search.KINDS)).items():
        assert found["same"] > 0.999, kind
        assert found["gap"] < 1e-5, kind
        assert found["recall"] > (0.99 if kind != "flat" else 0.9999), kind
        assert 0 <= found["memory"] < 2e9, kind
