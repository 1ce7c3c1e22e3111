"""Losses against proxies: options, edges and state. Their loops: test_family.py."""

from functools import partial

import pytest
import torch
from support.refusals import refuses

from contml.labels import ClassLabels
from contml.losses import MarginLoss, NormalizedSoftmaxLoss, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss

SIMPLE = {
    "proxy_nca": ProxyNCALoss,
    "normalized_softmax": NormalizedSoftmaxLoss,
    "soft_triple": partial(SoftTripleLoss, 3),
}


def make(name, classes, dim=6, **options):
    torch.manual_seed(0)
    return SIMPLE[name](num_classes=classes, embedding_dim=dim, **options)


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
def test_proxies_are_in_the_state(name):
    loss, embeddings, classes = make(name, 4, class_ids=[3, 5, 8, 9]), torch.randn(4, 6), torch.tensor([3, 5, 8, 9])
    next(loss.parameters()).data.normal_()  # what it has learned
    other = make(name, 4, class_ids=[9, 8, 5, 3])
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other(embeddings, classes), loss(embeddings, classes))
    word = "centers" if name == "soft_triple" else "proxies"
    assert {key for key in loss.state_dict() if "index" not in key} == {word}
    assert next(loss.parameters()).shape == ((4, 3, 6) if word == "centers" else (4, 6))


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
