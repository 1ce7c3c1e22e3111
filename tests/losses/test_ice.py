"""Instance cross entropy against loops over single pairs, in value and in both gradients."""

from __future__ import annotations

import math

import pytest
import torch
from support.refusals import refuses
from support.strategies import CLASS_CASES

from contml.losses import LOSSES, InstanceCrossEntropyLoss
from contml.mining import Miner

BLOCKS = [None, 1, 7]


class Drawn(Miner):
    """Weights that are any numbers >= 0, the same for a pair in every block."""

    def weights(self, candidates):
        table = torch.rand(40, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        table = torch.where(table < 0.3, 0, 3 * table)
        return table[candidates.anchors][:, : candidates.similarity.shape[1]]


def unit(x):
    norm = x.norm(dim=1, keepdim=True)
    return (norm > 0) * x / torch.where(norm > 0, norm, 1)


def values(classes, a, drawn):
    """Positives and negatives of an anchor, each with its weight."""
    table = torch.rand(40, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weight = [float(3 * t) if t >= 0.3 else 0.0 for t in table[a]] if drawn else [1.0] * 40
    others = [b for b in range(len(classes)) if b != a and weight[b] > 0]
    positives = [(b, weight[b]) for b in others if classes[b] == classes[a]]
    return positives, [(b, weight[b]) for b in others if classes[b] != classes[a]]


def loop(embeddings, classes, scale, drawn=False):
    """(Eq. 5 / m, the surrogate of Eq. 15), each pair by itself; e^x is taken in the range of float64 alone."""
    f = unit(embeddings)
    m = len(f)
    value = surrogate = 0.0 * embeddings.sum()
    for a in range(m):
        positives, negatives = values(classes, a, drawn)
        if not positives or not negatives:
            continue
        s = [f[a] @ f[b] for b in range(m)]
        rest = sum(w * (scale * s[j]).exp() for j, w in negatives)
        p = {i: (scale * s[i]).exp() / ((scale * s[i]).exp() + rest) for i, _ in positives}
        value = value - sum(w * p[i].log() for i, w in positives) / m
        missed = {i: (rest / ((scale * s[i]).exp() + rest)).detach() for i, _ in positives}
        for j, w in negatives:
            surrogate = surrogate + (w * (scale * s[j]).exp() / rest).detach() / (2 * m) * s[j]
        for i, w in positives:
            surrogate = surrogate - w * missed[i] / sum(v * missed[k] for k, v in positives) / (2 * m) * s[i]
    return value, surrogate


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("scale", [16.0, 64.0])
@pytest.mark.parametrize("case", CLASS_CASES, ids=str)
def test_equals_its_loop(case, scale, drawn):
    theirs = case.leaf()
    value, surrogate = loop(theirs, case.classes, scale, drawn)
    slopes = {
        reweight: torch.autograd.grad(term, theirs, retain_graph=True)[0]
        for reweight, term in ((False, value), (True, surrogate))
    }
    for reweight, slope in slopes.items():
        loss = InstanceCrossEntropyLoss(scale, reweight, miner=Drawn() if drawn else None)
        for loss.block_rows in (*BLOCKS, len(theirs)):
            leaf = case.leaf()
            ours = loss(leaf, case.classes)
            torch.testing.assert_close(ours, value, rtol=1e-10, atol=1e-10)
            (gradient,) = torch.autograd.grad(ours, leaf)
            torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-10 * max(1.0, float(slope.abs().max())))


def test_each_side_of_an_anchor_weighs_one_half():
    torch.manual_seed(0)
    classes = torch.tensor([0, 0, 0, 1, 1, 2])
    loss = InstanceCrossEntropyLoss()
    x = torch.nn.functional.normalize(torch.randn(6, 4, dtype=torch.float64), dim=1)
    s = (x @ x.T).requires_grad_()
    comparison = loss.compare(x, classes)
    values, _ = loss.values(loss.block(comparison, s, slice(0, 6)))
    (w,) = torch.autograd.grad(values.sum(), s)
    same = (classes[:, None] == classes) & ~torch.eye(6, dtype=torch.bool)
    torch.testing.assert_close((w * same).sum(1)[:5], torch.full((5,), -0.5, dtype=torch.float64))
    torch.testing.assert_close((w * (classes[:, None] != classes)).sum(1)[:5], torch.full((5,), 0.5).double())
    # Two items a class: Eq. 16. A class of one has nothing to match.
    assert float(w[3, 4]) == float(w[4, 3]) == -0.5
    assert not w[5].any()


def test_nothing_underflows_or_overflows():
    # In float32 e^64 squared is infinite and 1 - p is 0.
    x = torch.tensor([[1.0, 0.0], [1.0, 1e-4], [-1.0, 0.0], [-1.0, 1e-3]]).requires_grad_()
    for scale in (64.0, 1e4):
        for classes in ([0, 0, 1, 1], [0, 1, 0, 1]):
            value = InstanceCrossEntropyLoss(scale)(x, torch.tensor(classes))
            (gradient,) = torch.autograd.grad(value, x)
            assert value.isfinite()
            assert gradient.isfinite().all()
    easy = InstanceCrossEntropyLoss()(x, torch.tensor([0, 0, 1, 1]))
    assert 0 <= easy.item() < 1e-30


@pytest.mark.parametrize("classes", [[0, 0, 0, 0], [0, 1, 2, 3]])
@pytest.mark.parametrize("reweight", [False, True])
def test_nothing_to_match_is_a_zero_with_a_graph(classes, reweight):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    value = InstanceCrossEntropyLoss(reweight=reweight)(x, torch.tensor(classes))
    (gradient,) = torch.autograd.grad(value, x)
    assert value.item() == 0
    assert not gradient.any()


def test_gradcheck_of_the_plain_gradient():
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    classes = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda x: InstanceCrossEntropyLoss(8.0, False)(x, classes), x)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_bad_scale_is_refused(scale):
    with refuses("scale", got=str(scale), allowed="above 0"):
        InstanceCrossEntropyLoss(scale)


def test_it_is_in_the_table():
    assert LOSSES["instance_cross_entropy"] is InstanceCrossEntropyLoss
