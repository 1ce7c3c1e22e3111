"""The distributionally robust loss against loops over single pairs, and what it becomes when pairs are grouped."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.refusals import refuses

from contml.losses import DROLoss, kl_robust
from contml.losses.dro import top_weights
from contml.mining import Miner

ALL = 10**6


class Copies(Miner):
    """Weights 0 to 3: a pair drawn so many times."""

    def weights(self, candidates):
        return copies(len(candidates.similarity))


def copies(size):
    return torch.randint(0, 4, (size, size), generator=torch.Generator().manual_seed(3)).double()


def unit(x):
    norm = x.norm(dim=1, keepdim=True)
    return (norm > 0) * x / torch.where(norm > 0, norm, 1)


def largest(losses, k):
    return sorted(losses, key=lambda loss: loss.item(), reverse=True)[:k]


def mean(losses, like):
    return torch.stack(losses).mean() if losses else 0.0 * like.sum()


def kl(losses, gamma, like):
    """gamma log mean e^{l / gamma}, 0 without losses; the largest is taken out: e^1000 would overflow."""
    if not losses:
        return 0.0 * like.sum()
    top = max(loss.item() for loss in losses)
    return top + gamma * mean([((loss - top) / gamma).exp() for loss in losses], like).log()


SETS = [("topk", 1, 1), ("topk", 9, 1), ("topk", ALL, 1), ("topk_pn", 2, 1), ("topk_pn", 12, 1), ("topk_pn", ALL, 1)]
SETS += [(name, 1, gamma) for name in ("kl", "kl_grouped") for gamma in (1.0, 0.1, 0.01, 0.001)]


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


def grouped(classes):
    """Groups `[B, B]`: 2 a for the positives of anchor a, 2 a + 1 for its negatives, -1 for itself."""
    same = classes[:, None] == classes
    return (2 * torch.arange(len(classes))[:, None] + (~same).long()).fill_diagonal_(-1), same


def similarities(size=9):
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    classes = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2])[:size]
    return unit(x) @ unit(x).T, classes


def test_the_weights_of_the_groups_are_those_of_raw():
    s, classes = similarities()
    groups, same = grouped(classes)
    s.requires_grad_()
    gamma = torch.tensor([0.5, 0.02], dtype=torch.float64).repeat(9)
    kl_robust(torch.where(same, 0.5 - s, s - 0.5), groups, gamma, dummy=True).sum().backward()
    b = 2  # of anchor 3, Eq. 15: 1 / (e^{alpha (s_ij - lambda)} + sum_P e^{alpha (s_ij - s_ik)})
    row = s.detach()[3]
    weight = 1 / (torch.exp(2 * (row[b] - 0.5)) + sum(torch.exp(2 * (row[b] - row[k])) for k in (2, 4)))
    torch.testing.assert_close(-s.grad[3, b], weight, rtol=1e-12, atol=0)


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


def test_all_in_one_group_it_is_the_loss():
    s, classes = similarities()
    x = torch.linalg.cholesky(s[:4, :4])  # unit vectors with these similarities
    groups, same = grouped(classes[:4])
    losses = torch.where(same, 0.2 + 0.5 - s[:4, :4], 0.2 + s[:4, :4] - 0.5).clamp(min=0)
    ours = DROLoss("margin", "kl", gamma=0.3)(x, classes[:4])
    torch.testing.assert_close(ours, kl_robust(losses, groups.clamp(max=0), 0.3)[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("gamma", [1.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_grouped_it_is_the_mean_of_the_robust_losses_of_the_groups(gamma, dtype):
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    _, classes = similarities()
    groups, same = grouped(classes)
    ours, theirs = x.to(dtype).requires_grad_(), x.to(dtype).double().requires_grad_()
    s = unit(theirs) @ unit(theirs).T
    expected = kl_robust(torch.where(same, -s, s), groups, gamma).sum() / 9
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-6}
    slow = torch.autograd.grad(expected, theirs)[0]
    for block_rows in (None, 2):
        loss = DROLoss("similarity", "kl_grouped", gamma=gamma)
        loss.block_rows = block_rows
        value = loss(ours, classes)
        torch.testing.assert_close(value.double(), expected, **tolerance)
        torch.testing.assert_close(torch.autograd.grad(value, ours)[0].double(), slow, **tolerance)


def test_with_a_small_gamma_the_groups_give_their_hardest_pairs():
    s, classes = similarities()
    _, same = grouped(classes)
    least = s.masked_fill(~same, torch.inf).masked_fill(torch.eye(9) == 1, torch.inf).amin(1)
    most = s.masked_fill(same, -torch.inf).amax(1)
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    value = DROLoss("similarity", "kl_grouped", gamma=1e-6)(x, classes)
    torch.testing.assert_close(value, (most - least).mean(), rtol=1e-4, atol=0)


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


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"pair": "hinge"}, ("pair", "hinge", "margin, binomial, similarity")),
        ({"uncertainty": "chi2"}, ("uncertainty", "chi2", "topk, topk_pn, kl, kl_grouped")),
        ({"k": 0}, ("k", "0", "at least 1")),
        ({"uncertainty": "topk_pn", "k": 3}, ("k", "3", "even")),
        ({"gamma": 0.0}, ("gamma", "0.0", "above 0")),
        ({"alpha": -1.0}, ("alpha", "-1.0", "above 0")),
        ({"beta": math.inf}, ("beta", "inf", "above 0")),
        ({"margin": -0.1}, ("margin", "-0.1", "at least 0")),
    ],
)
def test_bad_options_are_refused(options, fields):
    with refuses(*fields):
        DROLoss(**options)
