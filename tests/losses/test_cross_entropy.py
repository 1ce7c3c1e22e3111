"""Cross entropy as a baseline: equal to its slow loop and to torch, for any class ids and anchors, in blocks."""

from __future__ import annotations

import pytest
import torch
from support.reference_classes import cross_entropy
from support.refusals import refuses
from support.strategies import CLASS_CASES

from contml.labels import NumberLabels
from contml.losses import LOSSES, CrossEntropyLoss
from contml.testing import check_loss


def make(classes=4, dim=6, **options):
    torch.manual_seed(0)
    return CrossEntropyLoss(num_classes=classes, embedding_dim=dim, **options)


def value_and_gradients(value, *leaves):
    return [value.detach(), *torch.autograd.grad(value, leaves)]


@pytest.mark.parametrize("case", CLASS_CASES, ids=str)
def test_equals_its_loop_whole_and_in_blocks(case):
    # Two classes have no item in any batch; all items are compared with them all the same.
    loss = make(case.num_classes + 2, case.embeddings.shape[1]).double()
    theirs, weight, bias = case.leaf(), *(p.detach().clone().requires_grad_() for p in loss.parameters())
    expected = value_and_gradients(cross_entropy(theirs, case.classes, weight, bias), theirs, weight, bias)
    for loss.block_rows in (None, 1, 7, len(theirs)):
        leaf = case.leaf()
        ours = value_and_gradients(loss(leaf, case.classes), leaf, *loss.parameters())
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * max(1.0, float(b.abs().max())))


def test_it_is_torchs_cross_entropy_of_a_linear_layer():
    torch.manual_seed(1)
    loss, x, classes = make(), torch.randn(9, 6), torch.randint(0, 4, (9,))
    expected = torch.nn.functional.cross_entropy(x @ loss.proxies.T + loss.bias, classes)
    torch.testing.assert_close(loss(x, classes), expected)
    assert {name: tuple(p.shape) for name, p in loss.named_parameters()} == {"proxies": (4, 6), "bias": (4,)}


def test_any_class_ids_and_some_anchors():
    torch.manual_seed(1)
    ids, anchors = [40, 3, 7, 12], torch.tensor([5, 0, 2])
    x, classes = torch.randn(8, 6).double(), torch.tensor([7, 7, 3, 40, 7, 40, 3, 7])
    loss = make(4, class_ids=ids).double()
    expected = cross_entropy(x, classes, loss.proxies, loss.bias, anchors, class_ids=ids)
    for loss.block_rows in (None, 1, 2):
        leaf = x.clone().requires_grad_()
        value = loss(leaf, classes, anchors=anchors)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert not gradient[[1, 3, 4, 6, 7]].any()  # an item that is no anchor says nothing


def test_holds_the_contract():
    assert LOSSES["cross_entropy"] is CrossEntropyLoss
    check_loss(make())


@pytest.mark.parametrize("block_rows", [None, 2])
def test_gradcheck(block_rows):
    loss = make(3, 2).double()
    loss.block_rows = block_rows
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e, *_: loss(e, torch.tensor([0, 1, 0, 2])), (x, *loss.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_costs_no_more_than_its_rounding(dtype):
    torch.manual_seed(0)
    classes, x = torch.randint(0, 4, (40,)), (30 * torch.randn(40, 6)).to(dtype)
    exact = make().double()(x.double(), classes)
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = make()(leaf, classes)
    ours.backward()
    assert ours.dtype == torch.float32
    assert torch.isfinite(leaf.grad).all()
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)


def test_bad_labels():
    with refuses("class id", got="4", allowed="4 classes, 0 to 3"):
        make()(torch.randn(3, 6), torch.tensor([0, 1, 4]))
    with refuses("CrossEntropyLoss", got="graded", allowed="classes"):
        make()(torch.randn(4, 6), NumberLabels(torch.randn(4)))
