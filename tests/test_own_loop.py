"""A loop of one's own: losses, labels, a memory and an evaluation in plain PyTorch, as a user writes them."""

import json
from functools import partial

import pytest
import torch
from support.miniature import TINY
from support.refusals import refuses

import contml

ITEMS, DIM = 120, 8
AGES = torch.rand(ITEMS, generator=torch.Generator().manual_seed(0)) * 80
FEATURES = torch.cat((AGES[:, None] / 80, torch.rand(ITEMS, 5, generator=torch.Generator().manual_seed(1))), 1)
NAMES = [["ant", "bee", "cat", "dog"][n % 4] for n in range(ITEMS)]


def trained(loss_function, labels, epochs=6):
    """The embeddings after some epochs, and the loss of each step."""
    torch.manual_seed(0)
    model, values = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, DIM)), []
    optimizer = torch.optim.Adam([*model.parameters(), *loss_function.parameters()], lr=1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(ITEMS).split(40):
            loss = loss_function(model(FEATURES[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
    return model(FEATURES).detach(), values


def ages():
    return contml.NumberLabels(AGES)


@pytest.mark.parametrize("make", [contml.LogRatioLoss, contml.MultiSimilarityLoss, contml.DenseTripletLoss])
def test_losses_are_modules_of_torch(make):
    x = torch.randn(20, DIM)
    labels = ages()[range(20)] if make.requires != "binary" else contml.ClassLabels(NAMES)[range(20)]
    loss_function = make()
    assert loss_function.double()(x.double(), labels).dtype == torch.float64
    with refuses("embeddings", "torch.func", "gradients of its own", "loss.backward()"):
        torch.func.grad(lambda each: loss_function(each, labels))(x)


@pytest.mark.slow
@pytest.mark.parametrize("make", [contml.LogRatioLoss, contml.DenseTripletLoss])
def test_losses_can_be_compiled(make):
    x, labels = torch.randn(20, DIM), ages()[range(20)]
    torch.testing.assert_close(torch.compile(make(), backend="eager")(x, labels), make()(x, labels))


def test_a_loss_a_label_space_and_a_sampler_of_ones_own():
    class Hinge(contml.losses.PairLoss):
        requires, distance = "any", "euclidean"

        def values(self, block):
            value = (block.weights * (block.scores - block.label_distances).relu()).sum(1)
            return value, torch.ones_like(value)

    class Angles(contml.LabelSpace):
        unit = "degrees"

        def __init__(self, degrees):
            super().__init__(degrees=degrees)

        def distances(self, x, y):
            d = (x.degrees[:, None] - y.degrees).abs() % 360
            return torch.minimum(d, 360 - d)

    labels = Angles(AGES * 4.5)
    contml.testing.check_label_space(labels)
    embeddings, values = trained(contml.CrossBatchMemory(Hinge(), 32), labels, epochs=2)
    assert all(map(torch.isfinite, torch.tensor(values)))
    assert contml.evaluate(embeddings, labels).metrics["label_distance@10"] > 0
    sampler = contml.sampling.DenseSampler(24, 4, 5, labels=labels, seed=1)
    assert next(iter(torch.utils.data.DataLoader(FEATURES, batch_sampler=sampler))).shape == (24, 6)


def within(distances, label_distances):
    """The share of the 5 nearest within 9 years: a metric of one's own."""
    assert distances.shape == label_distances.shape
    assert bool((distances.diff(dim=1) >= 0).all())
    return (label_distances[:, :5] < 9).double().mean(1)


@pytest.mark.parametrize("rows", [{}, {"queries": range(40), "gallery": range(40, ITEMS)}])
def test_a_metric_of_ones_own(rows):
    houses = [f"house {n // 7}" for n in range(ITEMS)]  # the last one is smaller: lists of two lengths
    of_library = {
        "ndcg": partial(contml.evaluation.ndcg_at_k, k=7, per_query=True),
        "tau": partial(contml.evaluation.kendall_tau, per_query=True),
    }
    with refuses("metrics.ndcg", "this name of a metric", "no metric of contml"):
        contml.evaluate(FEATURES, ages(), metrics=of_library)
    metrics = {"within": within, "gain": of_library["ndcg"], "tau": of_library["tau"]}
    for groups in (None, houses):
        found = contml.evaluate(FEATURES, ages(), groups=groups, metrics=metrics, **rows)
        nearest = (found.ranking.label_distances[:, :5] < 9).double().mean(1)
        assert torch.equal(found.per_query["within"], nearest)
        assert found.metrics["within"] == pytest.approx(float(nearest.mean()))
        assert found.metrics["gain"] == pytest.approx(found.metrics["ndcg@7"])
        assert found.metrics["tau"] == pytest.approx(found.metrics["kendall"])
        score = found.evaluation.scores["gain"]
        assert (score.better, score.oracle) == ("higher", pytest.approx(1))
        assert score.random == pytest.approx(found.evaluation.curves["ndcg"].random[6], abs=0.03)
        assert found.intervals["within"] == contml.evaluation.half_width(nearest, found.ranking.items)
        assert found.evaluation.intervals["within"] == found.intervals["within"]
    nearer = contml.evaluate(FEATURES, ages(), metrics={"first": lambda _, labels: labels[:, 0]}).evaluation
    assert nearer.scores["first"].better == "lower"
    by_class = contml.evaluate(FEATURES, contml.ClassLabels(NAMES), metrics={"hit": lambda _, y: 1 - y[:, 0]})
    assert by_class.metrics["hit"] == by_class.metrics["recall@1"]
    collapsed = contml.evaluate(FEATURES * 0, ages(), metrics={"within": within}).evaluation.scores["within"]
    assert collapsed.model == pytest.approx(collapsed.random, abs=0.05)  # ties are not in the order of the rows


@pytest.mark.parametrize(("metric", "got", "allowed"), [
    (3, "int", "must be a function"),
    (lambda _, y: y, "shape [120, 119]", "one finite number per query"),
    (lambda _, y: y.mean(1) * torch.nan, "NaN", "one finite number per query"),
])  # fmt: skip
def test_a_metric_that_is_none_is_refused(metric, got, allowed):
    with refuses("metrics.mine", got, allowed):
        contml.evaluate(FEATURES, ages(), metrics={"mine": metric})


@pytest.mark.slow
def test_a_metric_of_ones_own_in_a_config(contml, tmp_path):
    head = "from torch import Tensor\n\n\ndef within(distances: Tensor, label_distances: Tensor) -> Tensor:\n"
    body = "    return (label_distances[:, :5] < 9).double().mean(1)\n"
    (tmp_path / "metrics_of_mine.py").write_text(head + body)
    change = "training.metrics={within_9_px: metrics_of_mine:within}"
    status, out, err = contml("train", "pose/synthetic", *TINY, change)
    assert (status, "within_9_px" in out) == (0, True), err
    folder = next((tmp_path / "runs/pose/synthetic").iterdir())
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert evaluation["scores"]["within_9_px"]["model"] >= 0
    assert evaluation["intervals"]["within_9_px"] >= 0
    assert '"within_9_px": ' in (folder / "metrics.jsonl").read_text()
    assert "<td>within_9_px</td>" in (folder / "report.html").read_text()
    status, out, _ = contml("compare", "runs", "--metric", "within_9_px")
    assert (status, "within_9_px" in out) == (0, True)
