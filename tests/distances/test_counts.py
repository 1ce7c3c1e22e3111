"""Ranks by counting: against brute force, with ties and copies in other blocks, whatever matrix products round."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from contml.distances import ExactDistances, distinct, nearest_vectors, ranks, squared_distances_of
from contml.distances.exact import squared_norms
from contml.distances.ranks import count_nearer


def brute_force(queries, gallery, radii, self_index=None):
    nearer, tied = [], []
    for row, (x, radius) in enumerate(zip(queries.double(), radii.tolist(), strict=True)):
        d = squared_norms(gallery.double() - x).tolist()
        others = [value for place, value in enumerate(d) if self_index is None or place != int(self_index[row])]
        nearer.append(sum(value < radius for value in others))
        tied.append(sum(value == radius for value in others))
    return torch.tensor(nearer), torch.tensor(tied)


def radii_of_items(queries, gallery, seed=0):
    """Squared distances to one item of the gallery each: there is always a tie."""
    generator = torch.Generator().manual_seed(seed)
    cols = torch.randint(0, len(gallery), (len(queries),), generator=generator)
    return squared_distances_of(queries, gallery, torch.arange(len(queries)), cols)


def vectors_of(kind, items, dim, generator):
    if kind == "normal":
        return torch.randn(items, dim, generator=generator)
    if kind == "whole":
        return torch.randint(0, 3, (items, dim), generator=generator).float()
    if kind == "copies":
        return torch.randn(4, dim, generator=generator)[torch.randint(0, 4, (items,), generator=generator)]
    if kind == "offset":
        return 1e-3 * torch.randn(items, dim, generator=generator) + 1000
    if kind == "scales":
        scale = 10.0 ** torch.randint(-8, 8, (items, 1), generator=generator)
        return torch.randn(items, dim, generator=generator) * scale
    return torch.ones(items, dim)


KINDS = ["normal", "whole", "copies", "offset", "scales", "one point"]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**16),
    dim=st.integers(1, 20),
    q=st.integers(1, 20),
    g=st.integers(1, 30),
    double=st.booleans(),
    blocks=st.sampled_from([(512, 2048), (1, 1), (3, 5)]),
    data=st.data(),
)
def test_counts_equal_brute_force(kind, seed, dim, q, g, double, blocks, data):
    x = vectors_of(kind, q + g, dim, torch.Generator().manual_seed(seed))
    x = x.double() if double else x
    overlap = data.draw(st.integers(0, min(q, g)))
    queries, gallery = x[:q], x[q - overlap :][:g]
    position = torch.arange(q) - (q - overlap)
    self_index = position.clamp(min=-1) if data.draw(st.booleans()) else None
    radii = radii_of_items(queries, gallery, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_ROWS", blocks[0])
        patch.setattr(ranks, "_COLUMNS", blocks[1])
        patch.setattr(ranks, "_DISTINCT", data.draw(st.sampled_from([0.0, 0.9, 1.0])))
        found = count_nearer(queries, gallery, radii, self_index=self_index)
    nearer, tied = brute_force(queries, gallery, radii, self_index)
    assert torch.equal(found.nearer, nearer)
    assert torch.equal(found.tied, tied)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**16),
    items=st.integers(1, 40),
    blocks=st.sampled_from([(512, 2048), (1, 1), (3, 5), (7, 2)]),
    share=st.sampled_from([0.0, 0.9]),
    leave_out=st.booleans(),
)
def test_one_product_serves_both_items_of_a_pair(kind, seed, items, blocks, share, leave_out):
    x = vectors_of(kind, items, 5, torch.Generator().manual_seed(seed))
    radii, self_index = radii_of_items(x, x, seed), torch.arange(items) if leave_out else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_ROWS", blocks[0])
        patch.setattr(ranks, "_COLUMNS", blocks[1])
        patch.setattr(ranks, "_DISTINCT", share)
        found, apart = (count_nearer(x, y, radii, self_index=self_index) for y in (x, x.clone()))
    nearer, tied = brute_force(x, x, radii, self_index)
    for one in (found, apart):
        assert torch.equal(one.nearer, nearer)
        assert torch.equal(one.tied, tied)


def test_near_ties_that_float32_cannot_tell_apart():
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(1, 256, generator=generator, dtype=torch.float64)
    gallery = centre + 1e-9 * torch.randn(300, 256, generator=generator, dtype=torch.float64)
    gallery[0] = 50.0  # the scale is another's: in float32 the rest is one point
    queries = centre + torch.randn(20, 256, generator=generator, dtype=torch.float64)
    radii = radii_of_items(queries, gallery[1:])
    found = count_nearer(queries, gallery, radii)
    assert len(found.nearer.unique()) > 10
    assert torch.equal(found.nearer, brute_force(queries, gallery, radii)[0])


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_low_precision_of_matrix_products_changes_nothing(precision):
    x = torch.nn.functional.normalize(torch.randn(400, 64, generator=torch.Generator().manual_seed(0)))
    radii = radii_of_items(x, x)
    expected = count_nearer(x, x, radii)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = count_nearer(x, x, radii)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found.nearer, expected.nearer)
    assert torch.equal(found.tied, expected.tied)


def test_threads_change_nothing(monkeypatch):
    x = torch.randn(700, 16, generator=torch.Generator().manual_seed(0))
    radii = radii_of_items(x, x)
    one = count_nearer(x, x, radii)
    monkeypatch.setattr("contml.distances._compiled._ENTRIES_PER_THREAD", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    three = count_nearer(x, x, radii)
    assert torch.equal(one.nearer, three.nearer)
    assert torch.equal(one.tied, three.tied)


def test_few_pairs_are_recomputed(monkeypatch):
    computed = []
    monkeypatch.setattr(
        ranks, "squared_distances_of", lambda *given: computed.append(len(given[2])) or squared_distances_of(*given)
    )
    x = torch.nn.functional.normalize(torch.randn(2000, 128, generator=torch.Generator().manual_seed(0)))
    count_nearer(x, x, radii_of_items(x, x))
    assert 2000 <= sum(computed) < 0.002 * 2000**2


def test_nothing_to_count():
    x = torch.randn(3, 4)
    assert count_nearer(x[:0], x, torch.zeros(0, dtype=torch.float64)).nearer.shape == (0,)
    assert count_nearer(x, x[:0], torch.ones(3, dtype=torch.float64)).nearer.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 64, 511])
def test_exact_distances_are_the_same_wherever_they_are_computed(dim):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, dim, generator=generator), torch.randn(70, dim, generator=generator)
    whole = ExactDistances(y)
    found = nearest_vectors(x, y, 70)
    for row in (0, 7, 49):
        d = whole.of(x[row])
        alone = [squared_distances_of(x, y, torch.tensor([row]), torch.tensor([c])).item() for c in range(70)]
        assert (d.tolist(), found.values[row].tolist()) == (alone, d[found.positions[row]].tolist())
        true = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(x[row].tolist(), y[3].tolist(), strict=True))
        assert d[3].item() == pytest.approx(float(true), rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_distinct_rows(dtype):
    x = torch.tensor([[1.0, 2.0], [0.0, -0.0], [1.0, 2.0], [-0.0, 0.0], [3.0, 1.0]], dtype=dtype)
    found = distinct(x)
    assert sorted(found.first_index.tolist()) == [0, 1, 4]
    assert torch.equal(x[found.first_index][found.inverse] + 0.0, x + 0.0)
    assert found.counts.sum() == 5
    # Their order is one of values: any order of the items gives the same rows.
    again = distinct(x.flip(0))
    assert torch.equal(x[found.first_index] + 0.0, x.flip(0)[again.first_index] + 0.0)
    assert (distinct(x[:0]).counts.tolist(), distinct(x[:, :0]).counts.tolist()) == ([], [5])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_counts_on_cuda():
    x = torch.randn(3000, 64, generator=torch.Generator().manual_seed(0))
    radii = radii_of_items(x, x)
    expected, found = count_nearer(x, x, radii), count_nearer(x.cuda(), x.cuda(), radii.cuda())
    assert np.array_equal(expected.nearer.numpy(), found.nearer.cpu().numpy())
    assert np.array_equal(expected.tied.numpy(), found.tied.cpu().numpy())
