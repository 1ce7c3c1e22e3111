"""The share of the nearest items that short codes and shorter embeddings find, against loops."""

import numpy as np
import pytest
import torch

from contml.retrieval.short_codes import CANDIDATES, code_recall


def embeddings(items=90, dim=16, unit=True):
    x = torch.randn(items, dim, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(x) if unit else x + 3


def slow(x, queries, gallery, nested_dims, unit):
    """code: the shares of the 10 nearest that its ranking has among its first 10, 50 and 200, by loops."""
    g = x[gallery]
    low, width, mean = g.min(0), g.max(0) - g.min(0), g.mean(0)
    decoded = low + (np.floor(255 * (g - low) / width) + 0.5) / 255 * width

    def short(rows, dim):
        return rows[:, :dim] / np.linalg.norm(rows[:, :dim], axis=1, keepdims=True) if unit else rows[:, :dim]

    rankings = {"int8": lambda q: ((decoded - q) ** 2).sum(1), "binary": lambda q: ((g > mean) != (q > mean)).sum(1)}
    for dim in nested_dims:
        rankings[f"first {dim} numbers"] = lambda q, d=dim: ((short(g, d) - short(q[None], d)) ** 2).sum(1)
    out = {}
    for code, distances in rankings.items():
        shares = []
        for row in queries:
            others = [n for n in range(len(g)) if gallery[n] != row]
            near = sorted(others, key=lambda n: ((g[n] - x[row]) ** 2).sum())[:10]
            by_code = distances(x[row])
            ranked = sorted(others, key=lambda n: by_code[n])
            shares.append([len({*near} & {*ranked[: 10 * each]}) / 10 for each in CANDIDATES])
        out[code] = np.mean(shares, axis=0)
    return out


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_the_share_of_the_nearest_that_codes_find(unit, apart):
    x = embeddings(unit=unit)
    rows = torch.arange(len(x))
    queries, gallery = (rows[:20], rows[20:]) if apart else (rows, rows[rows != 7])
    expected = slow(x.double().numpy(), queries.numpy(), gallery.numpy(), [4, 8], unit)
    found = {each.code: each for each in code_recall(x, queries, gallery, [4, 8])}
    assert found.keys() == expected.keys()
    assert [each.item_bytes for each in found.values()] == [16, 2, 16, 32]
    for code, (alone, five, all_items) in ((code, each.found) for code, each in found.items()):
        tolerance = 0.05 if code == "binary" else 0.006  # ties of bits; rounding at the edge of a code
        assert alone == pytest.approx(expected[code][0], abs=tolerance)
        assert five == pytest.approx(expected[code][1], abs=tolerance)
        assert all_items is None  # 200 candidates: all of them
    assert found["binary"].found[0] < found["int8"].found[0] > 0.9


def test_two_items():
    recalls = code_recall(embeddings(2), torch.arange(2), torch.arange(2))
    assert [each.found for each in recalls] == [[None, None, None]] * 2


def test_equal_embeddings():
    recalls = code_recall(torch.ones(30, 4), torch.arange(30), torch.arange(30))
    assert [each.found[0] for each in recalls] == [1, 1]


def test_recall_of_embeddings_that_are_not_finite_or_very_large():
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(40)
    some = x.clone()
    some[[3, 7], 1] = torch.nan
    finite = rows[some.isfinite().all(1)]
    assert code_recall(some, rows, rows) == code_recall(x[finite], torch.arange(38), torch.arange(38))
    assert code_recall(torch.full_like(x, torch.nan), rows, rows) == []
    assert code_recall(x, rows[:0], rows) == []
    assert {each.code for each in code_recall(x * 1e30, rows, rows)} == {"int8", "binary"}
