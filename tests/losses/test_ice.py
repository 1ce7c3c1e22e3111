"""Instance cross entropy against loops over single pairs, in value and in both gradients."""

from __future__ import annotations

import math

import pytest
import torch
from support.refusals import refuses

from contml.losses import InstanceCrossEntropyLoss


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


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_bad_scale_is_refused(scale):
    with refuses("scale", got=str(scale), allowed="above 0"):
        InstanceCrossEntropyLoss(scale)
