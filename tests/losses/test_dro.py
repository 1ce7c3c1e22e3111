"""The distributionally robust loss: the worst distribution, empty groups, blocks. Its loops: test_family.py."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.refusals import refused

from contml.losses import DROLoss, kl_robust
from contml.losses.dro import top_weights


@settings(max_examples=100, deadline=None)
@given(
    losses=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    seed=st.integers(0, 100),
    k=st.sampled_from([0.5, 1, 2, 3, 7.5, 40]),
)
def test_top_weights_are_the_worst_distribution(losses, seed, k):
    losses = torch.tensor(losses, dtype=torch.float64)
    weights = 2 * torch.rand(len(losses), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights[weights < 0.5] = 0
    p = top_weights(losses, weights, k)
    taken = min(k, float(weights.sum()))
    assert (p >= 0).all()
    assert (p <= weights * (1 + 1e-12)).all()
    assert math.isclose(float(p.sum()), taken, abs_tol=1e-12)
    worst, left = 0.0, taken  # fill up from the largest
    for i in losses.argsort(descending=True).tolist():
        worst, left = worst + min(left, float(weights[i])) * float(losses[i]), left - min(left, float(weights[i]))
    assert math.isclose(float(p @ losses), worst, abs_tol=1e-12)
    order = torch.randperm(len(losses), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(top_weights(losses[order], weights[order], k), p[order])


def test_groups_may_be_empty_and_losses_large():
    losses = torch.tensor([500.0, 400.0, -600.0, -601.0, 3.0], requires_grad=True)
    groups = torch.tensor([1, 1, 3, 3, -1])
    for dummy in (False, True):
        values = kl_robust(losses, groups, 0.5, dummy)
        (gradient,) = torch.autograd.grad(values.sum(), losses)
        assert values.isfinite().all()
        assert gradient.isfinite().all()
        assert values[0] == values[2] == 0
        assert gradient[4] == 0
        torch.testing.assert_close(values[1].item(), 500 - 0.5 * math.log(2 + dummy))
    assert kl_robust(losses[:0], groups[:0], 1.0).shape == (0,)
    assert (kl_robust(losses[:2], torch.tensor([-1, -1]), 1.0)).shape == (0,)


def test_the_groups_are_compared_in_blocks_the_other_sets_at_once():
    comparison = DROLoss().compare(torch.randn(9, 4), torch.arange(9) // 3)
    for uncertainty, rows in (("kl", 9), ("topk", 9), ("kl_grouped", 4)):
        loss = DROLoss(uncertainty=uncertainty)
        loss.block_rows = 4
        assert loss.rows_of_a_block(comparison) == rows


@pytest.mark.parametrize("uncertainty", ["topk", "topk_pn", "kl", "kl_grouped"])
@pytest.mark.parametrize("classes", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_one_sign_alone(uncertainty, classes):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    value = DROLoss("binomial", uncertainty)(x, torch.tensor(classes))
    (gradient,) = torch.autograd.grad(value, x)
    assert value > 0
    assert gradient.isfinite().all()
    nothing = DROLoss("binomial", uncertainty)(x, torch.tensor(classes), anchors=torch.tensor([], dtype=torch.int64))
    (gradient,) = torch.autograd.grad(nothing, x)
    assert float(nothing.detach()) == 0
    assert not gradient.any()


def test_as_many_pairs_of_both_signs_are_an_even_number():
    refused(lambda: DROLoss(uncertainty="topk_pn", k=3), "k", "3", "even")
