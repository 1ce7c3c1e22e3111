"""The losses that were tried as one loss for all sets: each against a slow loop from its formula, in float64."""

import math

import pytest
import torch

from benchmarks.ideas import (
    ExpectedLabelDistance,
    FlooredLogRatio,
    HardestLogRatio,
    LabelRegression,
    LogRatioOfQuantiles,
    RanksAndRatios,
    SmoothRanksOfRatios,
)
from contml import VectorLabels
from contml.losses.log_ratio import EPSILON


def squared(x, a, j):
    return (x[a] - x[j]).square().sum() + EPSILON


def others(x, a):
    return [j for j in range(len(x)) if j != a]


def smooth_ranks(x, y, t):
    """1 - sum_i H_i / rank_i / sum_i rel_i, the probability that j is before i being D_j^(-1/t) of both."""
    terms = []
    for a in range(len(x)):
        rel = {j: max(0.0, 1 - y[a][j]) for j in others(x, a)}
        if sum(rel.values()) == 0:
            continue
        total = 0.0
        for i in rel:
            h, rank = rel[i], 1.0
            for j in set(rel) - {i}:
                first, second = squared(x, a, j) ** (-1 / t), squared(x, a, i) ** (-1 / t)
                h, rank = h + min(rel[i], rel[j]) * first / (first + second), rank + first / (first + second)
            total = total + h / rank
        terms.append(1 - total / sum(rel.values()))
    return sum(terms) / len(terms)


def log_ratios(x, y):
    """The mean over pairs of (log d_i / d_j - log y_i / y_j)^2."""
    terms = []
    for a in range(len(x)):
        r = {j: squared(x, a, j).log() / 2 - math.log(y[a][j] + EPSILON) for j in others(x, a) if y[a][j] > 0}
        pairs = [(r[i] - r[j]).square() for i in r for j in r if i < j]
        if pairs:
            terms.append(sum(pairs) / len(pairs))
    return sum(terms) / len(terms)


def expected(x, y, t):
    terms = []
    for a in range(len(x)):
        if mean := sum(y[a][j] for j in others(x, a)) / len(others(x, a)):
            weight = {j: squared(x, a, j) ** (-1 / t) for j in others(x, a)}
            terms.append(sum(weight[j] * y[a][j] for j in weight) / sum(weight.values()) / mean)
    return sum(terms) / len(terms)


@pytest.mark.parametrize("rows", [None, 1, 5])
@pytest.mark.parametrize("items", [3, 9])
@pytest.mark.parametrize("name", ["ranks", "both", "expected"])
def test_an_idea_is_its_formula(name, items, rows):
    torch.manual_seed(items)
    x = torch.randn(items, 4, dtype=torch.float64, requires_grad=True)
    labels = VectorLabels(torch.randint(0, 6, (items, 1)).double())
    losses = {"ranks": SmoothRanksOfRatios(0.2, train_labels=labels), "expected": ExpectedLabelDistance(0.3)}
    loss = {**losses, "both": RanksAndRatios(0.2, 0.3, train_labels=labels)}[name]
    y = labels.pairwise().double()
    y = (y if name == "expected" else y / loss.label_unit).tolist()
    reference = {
        "ranks": lambda: smooth_ranks(x, y, 0.2),
        "both": lambda: smooth_ranks(x, y, 0.2) + 0.3 * log_ratios(x, y),
        "expected": lambda: expected(x, y, 0.3),
    }[name]()
    loss.block_rows = rows
    value = loss(x, labels)
    assert value.item() == pytest.approx(reference.item(), abs=1e-10)
    (found,), (true,) = torch.autograd.grad(value, x), torch.autograd.grad(reference, x)
    assert torch.allclose(found, true, atol=1e-10, rtol=0)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_a_regression_of_labels_is_zero_at_labels_and_ranks_by_label_distances(dim):
    torch.manual_seed(0)
    y = torch.randn(40, 3, dtype=torch.float64) * torch.tensor([3.0, 2.0, 1.0])
    labels = VectorLabels(y)
    loss, rows = LabelRegression(scale=2, train_labels=labels), torch.tensor([5, 3, 30, 11])
    x = torch.randn(4, dim, dtype=torch.float64, requires_grad=True)
    target = loss.targets[rows][:, :dim]
    total = sum(sum((x[i, c] - (target[i, c] if c < 3 else 0)) ** 2 for c in range(dim)) for i in range(4))
    reference = total / (4 * 3 * 2**2)
    value = loss(x, labels[rows])
    assert value.item() == pytest.approx(reference.item(), rel=1e-5)
    (found,), (true,) = torch.autograd.grad(value, x), torch.autograd.grad(reference, x)
    torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-8)
    if dim == 3:
        found = torch.cdist(target, target) / 2 * (y - y.mean(0)).square().mean().sqrt()
        torch.testing.assert_close(found, labels[rows].pairwise().double(), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        best = torch.nn.functional.pad(target, (0, dim - target.shape[1]))
        assert loss(best, labels[rows], anchors=torch.tensor([0, 2])).item() == 0
        one = loss(best + torch.eye(4, dim), labels[rows], anchors=torch.tensor([1]))
    assert one.item() == pytest.approx(1 / (3 * 2**2), rel=1e-5)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", ["floor", "quantiles", "hardest"])
def test_a_changed_log_ratio_is_its_formula(name, squared):
    """With labels of a line of 7 points, all 21 label distances of pairs are known to the loss."""
    torch.manual_seed(3)
    x = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    points = [0.0, 0.0, 1.0, 3.0, 4.5, 8.0, 20.0]
    labels = VectorLabels(torch.tensor(points, dtype=torch.float64)[:, None])
    between = sorted(abs(points[i] - points[j]) for i in range(7) for j in range(i))
    loss = {
        "floor": lambda: FlooredLogRatio(0.2, squared, train_labels=labels),
        "quantiles": lambda: LogRatioOfQuantiles(squared, train_labels=labels),
        "hardest": lambda: HardestLogRatio(0.4, squared),
    }[name]()
    power, terms = (2 if squared else 1), []
    for a in range(7):
        r = {}
        for j in others(x, a):
            if y := abs(points[a] - points[j]):
                y = {
                    "floor": y + 0.2 * between[10],
                    "quantiles": sum(each <= y for each in between) / 21,
                    "hardest": y,
                }[name]
                distance = (x[a] - x[j]).square().sum() ** (power / 2)
                r[j] = (distance + EPSILON).log() - math.log(y**power + EPSILON)
        if name == "hardest":
            mean = sum(r.values()) / len(r)
            hardest = sorted(r, key=lambda j: -(r[j] - mean).abs().item())[: math.ceil(0.4 * len(r))]
            r = {j: r[j] for j in hardest}
        pairs = [(r[i] - r[j]).square() for i in r for j in r if i < j]
        terms.append(sum(pairs) / len(pairs))
    reference = sum(terms) / len(terms)
    value = loss(x, labels[torch.arange(7)])
    assert value.item() == pytest.approx(reference.item(), rel=1e-6)
    (found,), (true,) = torch.autograd.grad(value, x), torch.autograd.grad(reference, x)
    torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-7)
