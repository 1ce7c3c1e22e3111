"""Pair weights against the closed forms of the unified view, and the curves drawn from them."""

import math

import numpy as np
import pytest
import torch
from support.choices import mostly_slow
from support.losses import made
from support.refusals import refuses
from support.strategies import CLASS_CASES
from torch import nn

from benchmarks.pair_weights import curves, weights_plot
from contml import InputError
from contml.app.report.plots import png
from contml.labels import ClassLabels
from contml.losses import LOSSES, pair_weights
from contml.losses.proxies import ProxyLoss
from contml.mining import MINERS

CASE = CLASS_CASES[1]  # classes of 4, 2 and 3 items


def contrastive(s, j, p, n):
    return 1.0 if j in p else float(s[j] > 0.5)


def raw(s, j, p, n, alpha=2.0, beta=50.0, base=0.5):
    if j in p:
        return 1 / (math.exp(alpha * (s[j] - base)) + sum(math.exp(alpha * (s[j] - s[k])) for k in p))
    return 1 / (math.exp(beta * (base - s[j])) + sum(math.exp(beta * (s[k] - s[j])) for k in n))


CLOSED = {"contrastive": contrastive, "raw": raw}


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].requires != "graded"])
def test_weights_give_the_gradient_of_the_embeddings(name):
    """dL/df by the chain rule through the similarities: w is all there is to a pair loss."""
    torch.manual_seed(0)
    loss = made(name).double()
    x = nn.functional.normalize(torch.randn(12, 6, dtype=torch.float64), dim=1).requires_grad_()
    classes = torch.tensor([0, 1, 2, 0, 3, 1, 0, 2, 3, 1, 0, 1])
    labels = ClassLabels(classes)
    values, _ = loss.sums(loss.compare(x, labels))
    (expected,) = torch.autograd.grad(values.sum(), x)
    w = pair_weights(loss, x, labels)
    comparison, proxies = loss.comparison(x, labels, None), isinstance(loss, ProxyLoss)
    rows, cols = (comparison.x, comparison.y) if proxies else (x, x)
    same = comparison.label_distances(slice(0, len(rows))) == 0 if proxies else classes[:, None] == classes
    sign = torch.where(same, -1.0, 1.0)
    if loss.on_sphere:
        rows, cols = nn.functional.normalize(rows, dim=1), nn.functional.normalize(cols, dim=1)
    s = rows @ cols.T
    if loss.distance not in ("cosine", "dot") and not loss.normalize:
        d = (rows[:, None] - cols).square().sum(-1)
        s = -d if loss.distance == "squared_euclidean" else -(d + torch.eye(12)).sqrt()
    (slope,) = torch.autograd.grad((w * sign * s).sum(), x)
    torch.testing.assert_close(slope, expected, rtol=1e-9, atol=1e-9)


def test_some_anchors_are_some_rows():
    some = torch.tensor([7, 0, 7])
    for name in CLOSED:
        whole = pair_weights(LOSSES[name](), CASE.embeddings, CASE.classes)
        torch.testing.assert_close(
            pair_weights(LOSSES[name](), CASE.embeddings, CASE.classes, anchors=some), whole[some]
        )
    nothing = pair_weights(LOSSES["raw"](), CASE.embeddings.bfloat16(), CASE.classes, anchors=some[:0])
    assert (nothing.shape, nothing.dtype) == ((0, 9), torch.float32)


def test_pair_weights_do_not_change_the_loss():
    loss = LOSSES["raw"](miner=MINERS["distance_weighted"]())
    x = CASE.embeddings.clone().requires_grad_()
    loss(x, CASE.classes)
    calls = loss.miner.calls.clone()
    assert torch.equal(pair_weights(loss, x, CASE.classes), pair_weights(loss, x, CASE.classes))
    assert loss.miner.calls == calls
    assert loss.miner.training
    assert x.grad is None


def test_what_has_no_pairs_is_refused():
    for given, name in ((nn.CrossEntropyLoss(), "CrossEntropyLoss"), (LOSSES["raw"], "RAWLoss")):
        with refuses(name, allowed="pair loss", hint="RAWLoss()"):
            pair_weights(given, CASE.embeddings, CASE.classes)
    with refuses("RAWLoss", allowed="0 and 1"):
        pair_weights(LOSSES["raw"](), CASE.embeddings, torch.full((9, 9), 0.5).fill_diagonal_(0))


# ---------------------------------------------------------------------------------------------------------------------
# curves


DRAWN = [name for name in LOSSES if LOSSES[name].requires != "graded"]
GRID = torch.arange(-0.995, 1, 0.01, dtype=torch.float64)
FIXED = {True: torch.linspace(0.4, 0.8, 3).double(), False: torch.linspace(-0.2, 0.6, 74).double()}


@pytest.mark.parametrize("name", CLOSED)
def test_curves_are_the_closed_forms(name):
    (curve,) = curves([name])
    torch.testing.assert_close(torch.from_numpy(curve.similarity), GRID)
    for positive, line in ((True, curve.positive), (False, curve.negative)):
        for value, weight in zip(GRID, line, strict=True):
            near = [value if positive else 0.6, *FIXED[True]]
            s = torch.tensor([*near, *[0.2 if positive else value, *FIXED[False]]], dtype=torch.float64)
            expected = CLOSED[name](s, 0 if positive else 4, range(4), range(4, 79))
            assert math.isclose(weight, expected, rel_tol=1e-6, abs_tol=1e-12)


@pytest.mark.parametrize("name", mostly_slow(DRAWN, 5))
def test_every_loss_that_takes_classes_has_curves(name):
    (curve,) = curves([name])
    assert curve.loss == name
    for line in (curve.positive, curve.negative):
        assert line.shape == (200,)
        assert np.isfinite(line).all()
    # It pulls a positive that is far, and pushes a negative that is near.
    assert curve.negative[-10:].min() > 0
    assert curve.positive[140:170].max() > 0 or curve.positive[:100].max() > 0
    weights_plot([curve])


def test_a_distance_is_drawn_by_the_cosine_of_unit_vectors():
    plain, squared = curves(["triplet_margin", "triplet_margin", "loss.distance=squared_euclidean", "loss.margin=0.2"])
    np.testing.assert_allclose(squared.positive, 2 * plain.positive)
    np.testing.assert_allclose(squared.negative, 2 * plain.negative)
    (euclidean,) = curves(["contrastive", "loss.distance=euclidean"])
    np.testing.assert_allclose(euclidean.positive, 2)  # of d^2 = 2 - 2 s


def test_a_miner_weighs_the_pairs_first():
    mined, vthm = curves(["raw", "miner=vthm", "miner.epsilon=0.2", "multi_similarity", "loss.epsilon=0.2"])
    assert mined.options == {"miner": "vthm", "miner.epsilon": 0.2}
    np.testing.assert_array_equal(mined.positive, vthm.positive)
    np.testing.assert_array_equal(mined.negative, vthm.negative)
    assert (vthm.positive[GRID > 0.8] == 0).all()
    assert (vthm.negative[GRID < 0.2] == 0).all()


@pytest.mark.slow
def test_plots_have_a_panel_per_loss():
    drawn = curves(["raw", "raw", "loss.beta=10", "triplet_margin"])
    for count in (1, 2, 3, 4, 10):
        plot = weights_plot((4 * drawn)[:count])
        titles = [axes.get_title(loc="left") for axes in plot.axes if axes.axison and axes.get_title(loc="left")]
        assert len(titles) == count
    assert png(weights_plot(drawn)).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["raw", "loss.bta=1"], ["command line", "loss.bta", "did you mean 'beta'?"]),
        (["loss.beta=1"], ["loss.beta=1", "before any loss", "after the loss"]),
        (["proxy_nca", "loss.norm=3", "miner=vthm"], ["miner=vthm", "proxy_nca", "omit"]),
        (["log_ratio"], ["LogRatioLoss", "0 / 1 or classes"]),
    ],
)
def test_mistakes_are_one_line(arguments, values):
    with pytest.raises(InputError) as error:
        curves(arguments)
    for value in values:
        assert value in str(error.value)
