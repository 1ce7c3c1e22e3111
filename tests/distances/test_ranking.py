"""The compiled loops of the exact search, against torch and against sorting all entries."""

import pytest
import torch
from scipy.stats import rankdata
from support.choices import pairwise

from contml.distances import exact, nearest, nearest_vectors, ranks, squared_distances_of
from contml.evaluation.query_gallery import QueryGallery


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, 2, 3, 7, 64, 513])
def test_subtracted_distances_have_the_bits_of_torch(dim, dtype):
    random = torch.Generator().manual_seed(dim)
    x, y = (torch.randn(n, dim, generator=random, dtype=torch.float64).to(dtype) for n in (50, 60))
    rows, cols = (torch.randint(0, n, (500,), generator=random) for n in (50, 60))
    expected = exact.squared_norms(x[rows].double() - y[cols].double())
    assert torch.equal(squared_distances_of(x, y, rows, cols), expected)
    assert torch.equal(squared_distances_of(x.T.contiguous().T, y, rows, cols), expected)


SIZES = [(1, 700), (9, 700), (250, 700), (1, 3000), (250, 3000)]


@pytest.mark.parametrize(("size", "levels", "threads"), pairwise(SIZES, [2, 30, 10**6], [1, 3]))
def test_the_oracle_equals_sorting_all_label_distances(size, levels, threads, monkeypatch):
    k, items = size
    random = torch.Generator().manual_seed(k + levels)
    d = torch.randint(0, levels, (40, items), generator=random).float()
    groups = torch.randint(0, 90, (items,), generator=random)
    data = QueryGallery(torch.zeros(40, 1), torch.zeros(items, 1), torch.full((40,), -1), groups=(groups[:40], groups))
    monkeypatch.setattr("contml.distances._compiled._ENTRIES_PER_THREAD", 1000)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        best = data.baselines(slice(0, 40), d, k)
    finally:
        torch.set_num_threads(before)
    possible = groups[:40, None] != groups
    values, order = d.masked_fill(~possible, torch.inf).sort(dim=1, stable=True)
    assert torch.equal(best.positions, order[:, :k])
    assert torch.equal(best.label_distances, values[:, :k])
    for row in range(40):
        seen = d[row, possible[row]].double()
        assert float(best.mean_distance[row]) == pytest.approx(float(seen.mean()), rel=1e-13)
        assert float(best.mean_gain[row]) == pytest.approx(float((1 / (1 + seen)).mean()), rel=1e-13)


@pytest.mark.parametrize("columns", [1, 100, 1 << 11])
def test_blocks_find_the_candidates_of_a_sort(columns, monkeypatch):
    monkeypatch.setattr(nearest, "_CPU_COLUMNS", columns)
    random = torch.Generator().manual_seed(0)
    gallery, queries = (torch.randn(n, 16, generator=random) for n in (3000, 20))
    found = nearest_vectors(queries, gallery, 40)
    exactly = (queries[:, None].double() - gallery.double()).square().sum(2)
    assert torch.equal(found.positions, exactly.sort(dim=1, stable=True).indices[:, :40])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["numbers", "ties", "equal in float32", "infinite", "none"])
def test_rows_are_sorted_as_by_a_stable_sort(kind, dtype):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(5, 0 if kind == "none" else 3000, generator=random, dtype=torch.float64)
    if kind == "ties":
        x = (4 * x).round() / 4  # with 0 and -0
    elif kind == "equal in float32":
        x = 1 + 1e-12 * x
    elif kind == "infinite":
        x = torch.where(x > 1, torch.inf, torch.where(x < -1, -torch.inf, 1e200 * x)).to(dtype)
    x = x.to(dtype)
    assert torch.equal(ranks.argsort_rows(x), x.argsort(dim=1, stable=True))
    for row in x:
        assert torch.equal(ranks.mean_ranks(row), torch.from_numpy(rankdata(row.numpy())) - 1)


@pytest.mark.parametrize("kind", ["apart", "copies", "offset", "one outlier", "tiny", "huge", "equal"])
@pytest.mark.parametrize("dim", [1, 3, 200])
def test_whole_rankings_have_the_order_and_the_ties_of_exact_distances(dim, kind):
    random = torch.Generator().manual_seed(dim)
    x = torch.randn(300, dim, generator=random, dtype=torch.float64)
    if kind == "copies":
        x = x[torch.randint(0, 100, (300,), generator=random)]
    elif kind == "offset":  # most differences are below the rounding of a product
        x = 1 + 1e-9 * x
    elif kind == "one outlier":
        x[7] *= 1e7
    elif kind in ("tiny", "huge"):
        x *= {"tiny": 1e-160, "huge": 1e140}[kind]
    elif kind == "equal":
        x = x[:1].expand(300, dim)
    queries, excluded = x[:40], torch.rand(40, 300, generator=random) < 0.1
    found = ranks.ranked_vectors(queries, x, excluded)
    rows, cols = torch.arange(40).repeat_interleave(300), torch.arange(300).repeat(40)
    exact = squared_distances_of(queries, x, rows, cols).view(40, 300).masked_fill(excluded, torch.inf)
    assert torch.equal(found.order, exact.argsort(dim=1, stable=True))
    in_order, expected = (values.gather(1, found.order) for values in (found.values, exact))
    assert torch.equal(in_order[:, 1:] == in_order[:, :-1], expected[:, 1:] == expected[:, :-1])
    assert torch.equal(found.values.isinf(), excluded)
