"""Losses against proxies: equal to the slow loops, for any class ids and anchors, in blocks, and at the edges."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
import torch
from support.reference import proxy_anchor
from support.reference_classes import normalized_softmax, proxy_nca, soft_triple
from support.refusals import refuses
from support.strategies import CLASS_CASES

from contml.labels import ClassLabels, VectorLabels
from contml.losses import MarginLoss, NormalizedSoftmaxLoss, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss
from contml.testing import check_loss

#: Our loss and its slow loop, with options.
LOSSES = {
    "proxy_nca": (lambda **k: ProxyNCALoss(**k), lambda *a, **k: proxy_nca(*a, **k)),
    "proxy_nca scaled": (lambda **k: ProxyNCALoss(1 / 9, **k), lambda *a, **k: proxy_nca(*a, scale=3.0, **k)),
    "proxy_nca smoothed": (
        lambda **k: ProxyNCALoss(0.125, label_smoothing=0.1, **k),
        lambda *a, **k: proxy_nca(*a, scale=2.0, temperature=0.5, label_smoothing=0.1, **k),
    ),
    "proxy_nca++": (
        lambda **k: ProxyNCALoss(temperature=1 / 9, positive_in_denominator=True, **k),
        lambda *a, **k: proxy_nca(*a, temperature=1 / 9, positive_in_denominator=True, **k),
    ),
    "proxy_nca++ smoothed": (
        lambda **k: ProxyNCALoss(1 / 9, True, 0.1, **k),
        lambda *a, **k: proxy_nca(*a, scale=3.0, positive_in_denominator=True, label_smoothing=0.1, **k),
    ),
    "normalized_softmax": (lambda **k: NormalizedSoftmaxLoss(**k), lambda *a, **k: normalized_softmax(*a, **k)),
    "normalized_softmax warm": (
        lambda **k: NormalizedSoftmaxLoss(0.5, **k),
        lambda *a, **k: normalized_softmax(*a, temperature=0.5, **k),
    ),
    "soft_triple": (lambda **k: SoftTripleLoss(3, **k), lambda *a, **k: soft_triple(*a, **k)),
    "soft_triple one center": (lambda **k: SoftTripleLoss(1, **k), lambda *a, **k: soft_triple(*a, **k)),
    "soft_triple options": (
        lambda **k: SoftTripleLoss(2, 5.0, 0.5, 0.7, 0.3, **k),
        lambda *a, **k: soft_triple(*a, la=5.0, gamma=0.5, tau=0.7, margin=0.3, **k),
    ),
    "soft_triple free": (lambda **k: SoftTripleLoss(2, tau=0.0, **k), lambda *a, **k: soft_triple(*a, tau=0.0, **k)),
}
SIMPLE = ["proxy_nca", "normalized_softmax", "soft_triple"]
#: Every case with the losses as their papers have them, a few with their options.
PAIRS = [(case, name) for case in CLASS_CASES for name in LOSSES if name in SIMPLE or case in CLASS_CASES[1:4]]


def make(name, classes, dim=6, **options):
    torch.manual_seed(0)
    return LOSSES[name][0](num_classes=classes, embedding_dim=dim, **options)


def gradients(value, *leaves):
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def assert_same(ours, theirs, smooth=True):
    for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert torch.isfinite(a).all()
        if position == 0 or smooth:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * max(1.0, float(b.abs().max())))


def in_blocks(loss, embeddings, labels, anchors=None):
    (parameter,) = loss.parameters()
    for loss.block_rows in (None, 1, 7, len(embeddings)):
        leaf = embeddings.clone().requires_grad_()
        yield gradients(loss(leaf, labels, anchors=anchors), leaf, parameter)


@pytest.mark.parametrize(("case", "name"), PAIRS, ids=str)
def test_equals_its_loop(case, name):
    # Two classes have no item in any batch; their proxies are compared with all the same.
    loss = make(name, case.num_classes + 2, case.embeddings.shape[1]).double()
    proxies = next(loss.parameters()).detach().clone().requires_grad_()
    theirs = case.leaf()
    expected = gradients(LOSSES[name][1](theirs, case.classes, proxies), theirs, proxies)
    for ours in in_blocks(loss, case.embeddings, case.classes):
        # An embedding of zeros has no direction: its own gradient is 0 here and undefined in the loop.
        assert_same(ours, expected, case.smooth or "zeros" not in case.name)


@pytest.mark.parametrize("name", LOSSES)
def test_any_class_ids_and_some_anchors(name):
    torch.manual_seed(1)
    ids, anchors = [40, 3, 7, 12], torch.tensor([5, 0, 2])
    embeddings, classes = torch.randn(8, 6).double(), torch.tensor([7, 7, 3, 40, 7, 40, 3, 7])
    loss = make(name, 4, class_ids=ids).double()
    proxies, theirs = next(loss.parameters()).detach().clone().requires_grad_(), embeddings.clone().requires_grad_()
    expected = gradients(LOSSES[name][1](theirs, classes, proxies, anchors, class_ids=ids), theirs, proxies)
    for ours in in_blocks(loss, embeddings, classes, anchors):
        assert_same(ours, expected)
    assert bool((expected[1][[1, 3, 4, 6, 7]] == 0).all())  # no anchors, and no items that others are compared with


def test_proxy_anchor_keeps_its_proxies_for_any_ids():
    torch.manual_seed(1)
    loss = ProxyAnchorLoss(num_classes=3, embedding_dim=4, class_ids=[30, 10, 20]).double()
    embeddings = torch.randn(6, 4).double()
    rows = torch.tensor([0, 0, 1, 2, 1, 1])
    ours = loss(embeddings, torch.tensor([30, 10, 20])[rows])
    torch.testing.assert_close(ours, proxy_anchor(embeddings, rows, loss.proxies), rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("block_rows", [None, 2])
def test_gradcheck(name, block_rows):
    torch.manual_seed(0)
    loss = make(name, 3, 2).double()
    loss.block_rows = block_rows
    embeddings = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([0, 1, 0, 1])
    assert torch.autograd.gradcheck(lambda e, *_: loss(e, classes), (embeddings, *loss.parameters()), fast_mode=True)


@pytest.mark.parametrize("name", ["proxy_nca++ smoothed", "soft_triple free"])
def test_holds_the_contract(name):
    check_loss(make(name, 4))


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_costs_no_more_than_its_rounding(name, dtype):
    torch.manual_seed(0)
    classes, embeddings = torch.randint(0, 4, (40,)), (30 * torch.randn(40, 6)).to(dtype)
    exact = make(name, 4).double()(embeddings.double(), classes)
    leaf = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = make(name, 4)(leaf, classes)
    ours.backward()
    assert ours.dtype == torch.float32
    assert torch.isfinite(leaf.grad).all()
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SIMPLE)
def test_one_class_leaves_nothing_to_tell_apart(name):
    loss = make(name, 1)
    if name == "soft_triple":
        loss.tau = 0.0
    embeddings = torch.randn(4, 6, requires_grad=True)
    value = loss(embeddings, torch.zeros(4, dtype=torch.int64))
    value.backward()
    assert value.item() == 0
    assert torch.equal(embeddings.grad, torch.zeros(4, 6))
    assert torch.isfinite(next(loss.parameters()).grad).all()


def test_soft_triple_of_centers_that_met_has_finite_gradients():
    loss = make("soft_triple", 3)
    with torch.no_grad():
        loss.centers.copy_(loss.centers[:, :1].expand_as(loss.centers))
    loss(torch.randn(4, 6), torch.tensor([0, 1, 2, 0])).backward()
    assert torch.isfinite(loss.centers.grad).all()
    # All centers of a class are one: the regulariser is sqrt(1e-5) for each of K (K - 1) / 2 pairs of C classes.
    penalty = loss.penalty(loss.comparison(torch.zeros(1, 6), ClassLabels([0]), None))
    assert penalty.item() == pytest.approx(0.2 * 1e-5**0.5 / 2, rel=0.02)


@pytest.mark.parametrize("name", SIMPLE)
def test_proxies_learn_and_are_in_the_state(name):
    torch.manual_seed(0)
    loss, classes = make(name, 4, class_ids=[3, 5, 8, 9]), torch.tensor([3, 5, 8, 9]).repeat(4)
    embeddings = torch.nn.functional.normalize(torch.randn(4, 6)).repeat(4, 1) + 0.01 * torch.randn(16, 6)
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    before = loss(embeddings, classes).item()
    for _ in range(20):
        optimizer.zero_grad()
        loss(embeddings, classes).backward()
        optimizer.step()
    assert loss(embeddings, classes).item() < before
    other = make(name, 4, class_ids=[9, 8, 5, 3])
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other(embeddings, classes), loss(embeddings, classes))
    word = "centers" if name == "soft_triple" else "proxies"
    assert {key for key in loss.state_dict() if "index" not in key} == {word}
    assert next(loss.parameters()).shape == ((4, 3, 6) if word == "centers" else (4, 6))


@pytest.mark.parametrize(
    ("make", "options", "fields"),
    [
        (ProxyNCALoss, {"temperature": 0.0}, ("temperature", "0.0", "above 0")),
        (ProxyNCALoss, {"temperature": -1.0}, ("temperature", "-1.0", "above 0")),
        (ProxyNCALoss, {"label_smoothing": 1.0}, ("label_smoothing", "1.0", "at least 0 and below 1")),
        (NormalizedSoftmaxLoss, {"temperature": 0.0}, ("temperature", "0.0", "above 0")),
        (SoftTripleLoss, {"centers": 0}, ("centers", "0", "at least 1")),
        (SoftTripleLoss, {"gamma": float("nan")}, ("gamma", "nan", "above 0")),
        (SoftTripleLoss, {"tau": -1.0}, ("tau", "-1.0", "at least 0")),
    ],
)
def test_bad_options(make, options, fields):
    with refuses(*fields):
        make(**options, num_classes=3, embedding_dim=4)


@pytest.mark.parametrize("name", SIMPLE)
def test_bad_labels(name):
    loss = make(name, 3)
    with refuses("class id", got="3", allowed="3 classes, 0 to 2"):
        loss(torch.randn(4, 6), torch.tensor([0, 1, 2, 3]))
    with refuses(type(loss).__name__, got="graded", allowed="classes"):
        loss(torch.randn(4, 6), VectorLabels(torch.randn(4)))


@pytest.mark.parametrize("loss", [ProxyNCALoss, NormalizedSoftmaxLoss, SoftTripleLoss])
def test_what_the_data_tell_is_keyword_only(loss):
    parameters = inspect.signature(loss).parameters.values()
    data = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert data == ["num_classes", "embedding_dim", "class_ids"]


@pytest.mark.parametrize("loss", [ProxyAnchorLoss, partial(MarginLoss, per_class=True), ProxyNCALoss])
def test_names_of_other_classes_are_refused(loss):
    sizes = {"num_classes": 3} if isinstance(loss, partial) else {"num_classes": 3, "embedding_dim": 2}
    train, test = ClassLabels(["ant", "bee", "cat", "ant"]), ClassLabels(["bee", "cat", "dog", "bee"])
    learned, again, x = loss(**sizes), loss(**sizes), torch.randn(4, 2)
    learned(x, train)
    again.load_state_dict(learned.state_dict())
    for each in (learned, again):
        each(x, ClassLabels(["cat", "bee", "ant", "ant"]))  # the same names
        each(x, train.class_ids)  # integers are the same classes everywhere
        with refuses("labels", "rows of ClassLabels(4 items", "earlier batches", "labels[rows] of one ClassLabels"):
            each(x, test)


def test_classes_of_a_batch_are_those_of_the_data_set():
    classes = torch.tensor([7, 3, 3, 9, 7, 9])
    loss = ProxyAnchorLoss(num_classes=3, embedding_dim=2, class_ids=[3, 7, 9])
    x, rows = torch.randn(4, 2), [1, 2, 3, 5]
    assert loss(x, ClassLabels(classes[rows])) == loss(x, ClassLabels(classes)[rows]) == loss(x, classes[rows])
