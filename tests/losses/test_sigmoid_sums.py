"""Sums of sigmoids against their loops: ties, both ends of the cosines, wide and narrow sigmoids, gradients."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.choices import pairwise
from support.losses import made

from contml.labels import VectorLabels
from contml.losses import LOSSES
from contml.losses.smooth_rank import shared_sums, sigmoid_sums

TEMPERATURES = [50.0, 1.0, 0.3, 0.1, 0.01, 0.002]


def loop_of_sums(targets, sources, values, temperature):
    rows = [
        torch.stack([sum(v[j] * torch.sigmoid((s[j] - t_i) / temperature) for j in range(len(s))) for t_i in t])
        for t, s, v in zip(targets, sources, values, strict=True)
    ]
    return torch.stack(rows)


def direct(s, values, temperature):
    """[R,i,j] at once: (sums of v_j, sums of min(v_i, v_j))."""
    before = ((s[:, None] - s[:, :, None]) / temperature).sigmoid()
    shared = torch.minimum(values[:, None], values[:, :, None])
    return torch.einsum("aij,aj->ai", before, values), (before * shared).sum(2)


def gradients(sums, weights, *leaves):
    return torch.autograd.grad((sums * weights).sum(), leaves, retain_graph=True)


def cosines(rows, items, seed=0, dtype=torch.float64):
    """Some equal, some at both ends."""
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(rows, items, generator=generator, dtype=torch.float64) * 2 - 1
    s[:, 1] = s[:, 0]
    s[:, 2], s[:, 3], s[:, 4] = 1, -1, 1
    return s.to(dtype), torch.rand(rows, items, generator=generator, dtype=torch.float64).to(dtype)


def assert_close(ours, theirs, tolerance):
    assert torch.isfinite(ours).all()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * max(1e-3, float(theirs.detach().abs().max())))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_sums_over_other_items_equal_their_loop(temperature):
    targets, weights = cosines(2, 9, seed=1)
    sources, values = cosines(2, 13)
    leaves = [targets.clone().requires_grad_(), sources.clone().requires_grad_()]
    expected = loop_of_sums(*leaves, values, temperature)
    ours_leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    ours = sigmoid_sums(*ours_leaves, values, temperature)
    assert_close(ours, expected, 1e-10)
    for a, b in zip(gradients(ours, weights, *ours_leaves), gradients(expected, weights, *leaves), strict=True):
        assert_close(a, b, 1e-8)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_float32_has_at_most_twice_the_error_of_all_sigmoids(temperature):
    s, values = cosines(8, 400)
    values[:, ::3] = 0
    single = s.float()
    weights = cosines(8, 400, seed=2)[0]
    exact_leaf = single.double().requires_grad_()
    exact = direct(exact_leaf, values.float().double(), temperature)
    sums_leaf, all_leaf = single.clone().requires_grad_(), single.clone().requires_grad_()
    ours = (
        sigmoid_sums(sums_leaf, sums_leaf, values.float(), temperature),
        shared_sums(sums_leaf, values.float(), temperature, 48),
    )
    theirs = direct(all_leaf, values.float(), temperature)
    for a, b, reference in zip(ours, theirs, exact, strict=True):
        size = float(reference.detach().abs().max())
        error, allowed = (float((x - reference).detach().abs().max()) / size for x in (a, b))
        assert error <= 2 * max(allowed, 1.5e-7)
        derived = gradients(reference, weights, exact_leaf)[0]
        size = float(derived.abs().max())
        error, allowed = (
            float((gradients(x, weights.float(), leaf)[0] - derived).abs().max()) / size
            for x, leaf in ((a, sums_leaf), (b, all_leaf))
        )
        assert error <= 2 * max(allowed, 5e-7)


@settings(max_examples=40, deadline=None)
@given(
    items=st.integers(1, 70),
    leaf=st.integers(1, 80),
    levels=st.integers(1, 4),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_shared_sums_with_equal_values_and_any_part(items, leaf, levels, temperature, seed):
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(2, items, generator=generator, dtype=torch.float64) * 2 - 1
    values = torch.randint(0, levels, (2, items), generator=generator).double() / levels
    torch.testing.assert_close(
        shared_sums(s, values, temperature, leaf), direct(s, values, temperature)[1], rtol=1e-9, atol=1e-9
    )


def test_a_second_derivative_is_refused():
    s, values = cosines(2, 6)
    s.requires_grad_()
    with pytest.raises(RuntimeError, match="no double backward"):
        torch.autograd.grad(sigmoid_sums(s, s, values, 0.1).sum(), s, create_graph=True)


@pytest.mark.parametrize(
    ("metric", "temperature", "block_rows"), pairwise(["ap", "recall", "ndcg"], [0.1, 0.01], [None, 7])
)
def test_a_large_batch_has_the_loss_of_all_sigmoids(metric, temperature, block_rows):
    torch.manual_seed(0)
    embeddings = torch.randn(230, 6, dtype=torch.float64)
    labels = VectorLabels(torch.randn(230, 2)).pairwise().double()
    loss = LOSSES["smooth_rank"](metric=metric, temperature=temperature, label_scale=2.0)
    assert not loss.is_direct(len(embeddings))
    loss.block_rows = block_rows
    found = []
    for is_direct in (False, True):
        loss.is_direct = lambda _items, answer=is_direct: answer
        leaf = embeddings.clone().requires_grad_()
        value = loss(leaf, labels)
        found.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
    (ours, ours_gradient), (theirs, theirs_gradient) = found
    assert abs(ours - theirs) < 1e-9
    assert_close(ours_gradient, theirs_gradient, 1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_changes_nothing(name):
    loss = made(name).eval()
    embeddings, classes = torch.randn(60, 6), torch.arange(60) % 4
    labels = VectorLabels(torch.randn(60, 2)).pairwise()
    target = labels if loss.requires in ("any", "graded") else classes
    expected = loss(embeddings, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(embeddings, target)
    assert torch.equal(found, expected)
