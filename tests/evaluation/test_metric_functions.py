"""The metrics as functions: against every order of ties, pytorch-metric-learning and torchmetrics; bad input."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference_metrics
from support.retrieval import evaluate
from support.strategies import retrieval_cases

import contml
from contml.distances import ranks
from contml.evaluation import (
    class_retrieval,
    hierarchical_average_precision,
    kendall_tau,
    mean_average_precision_at_r,
    mean_label_distance_at_k,
    ndcg_at_k,
    r_precision,
    recall_at_k,
    recall_within,
)
from contml.labels import ClassLabels, NumberLabels


def arguments(case):
    """Arguments of the functions for a case: every item against the others, or queries against a gallery."""
    embeddings, classes, queries, gallery = case
    classes = torch.tensor(classes)
    if queries == gallery:
        return (embeddings, classes), {}
    return (embeddings[queries], classes[queries]), {"gallery": (embeddings[gallery], classes[gallery])}


def separate(case):
    """Whether no query is also in the gallery: the functions would not exclude it from its own results."""
    return case[2] == case[3] or not set(case[2]) & set(case[3])


@settings(max_examples=60, deadline=None)
@given(case=retrieval_cases().filter(separate), large=st.booleans(), block=st.sampled_from([1, 2048]))
def test_functions_equal_their_definitions(case, large, block):
    embeddings, classes, queries, gallery = case
    slow = (embeddings.tolist(), classes, queries, gallery)
    positional, named = arguments(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_retrieval, "_LARGE", 1 if large else 512)
        patch.setattr(ranks, "_ROWS", block)
        patch.setattr(ranks, "_COLUMNS", block)
        found = recall_at_k(*positional, k=[1, 2, 5, 1000], **named)
    assert list(found) == [1, 2, 5, 1000]
    for k, value in found.items():
        assert value == pytest.approx(reference_metrics.recall_at_k(*slow, k), abs=1e-12)
    assert found[1] == pytest.approx(reference_metrics.precision_at_1(*slow), abs=1e-12)
    average, share = mean_average_precision_at_r(*positional, **named), r_precision(*positional, **named)
    assert average == pytest.approx(reference_metrics.map_at_r(*slow), abs=1e-12)
    assert share == pytest.approx(reference_metrics.r_precision(*slow), abs=1e-12)


def random_items(items=300, classes=40, dim=12):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, classes, (items,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator)
    return centres[ids] + torch.randn(items, dim, generator=generator), ids


@pytest.mark.parametrize("split", [None, 100])
def test_metrics_equal_pytorch_metric_learning(split):
    # Without ties and singletons the definitions agree; the calculator excludes singletons.
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    x, ids = random_items()
    ids[7], ids[200] = 1000, 1001  # singletons
    calculator = calculators.AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"), device=torch.device("cpu")
    )
    rows = {} if split is None else {"queries": range(split), "gallery": range(split, len(x))}
    theirs = calculator.get_accuracy(*(x, ids) if split is None else (x[:split], ids[:split], x[split:], ids[split:]))
    found = contml.evaluate(x, ClassLabels(ids), exclude_singletons=True, clusters=False, **rows).metrics
    names = {"precision_at_1": "recall@1", "r_precision": "r_precision", "mean_average_precision_at_r": "map_at_r"}
    assert {name: found[ours] for name, ours in names.items()} == pytest.approx(theirs, abs=1e-9)


def test_classes_may_have_names():
    x, ids = random_items(60, classes=7)
    names = [f"class {9 - each}" for each in ids]  # in another order than the numbers
    pair, named = (x[30:], ids[30:]), (x[30:].tolist(), names[30:])
    for function in (recall_at_k, mean_average_precision_at_r, r_precision):
        assert function(x, names) == function(x, ids)
        assert function(x[:30], names[:30], gallery=named) == function(x[:30], ids[:30], gallery=pair)


def test_recall_at_1000_is_that_of_a_ranking_of_all():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(1500) % 700
    x = torch.randint(-1, 2, (1500, 24), generator=generator).float()  # codes: many ties
    x[3], x[900] = x[1200], x[1200]
    ks = [1, 10, 100, 101, 500, 1000, 1499, 5000]
    counted = recall_at_k(x, classes, k=ks)
    ranked, _ = evaluate(x, ClassLabels(classes), recall_at=ks, clusters=False)
    curve = ranked.curves["recall"].model
    assert len(curve) == 1499
    assert list(counted.values()) == pytest.approx([curve[min(k, 1499) - 1] for k in ks])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contml.evaluation.retrieval.LARGEST_K", 1499)
        whole, _ = evaluate(x, ClassLabels(classes), clusters=False)
    assert curve == pytest.approx(whole.curves["recall"].model)
    assert curve[0] < curve[99] < curve[999] < curve[1498] == 1
    assert whole.curves["label_distance"].model[:100] == pytest.approx(ranked.curves["label_distance"].model)
    assert whole.scores == ranked.scores


# ---------------------------------------------------------------------------------------------------------------------
# lists with label distances


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    levels=st.sampled_from([1, 2, 5, 10**6]),
    items=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64]),
    data=st.data(),
)
def test_lists_equal_the_mean_over_all_orders(seed, levels, items, dtype, data):
    generator = torch.Generator().manual_seed(seed)
    distances = torch.randint(-levels, levels, (3, items), generator=generator).to(dtype)
    labels = torch.randint(0, 4, (3, items), generator=generator).float() / 3
    k = data.draw(st.integers(1, items))
    places = [reference_metrics.shared_places(*row) for row in zip(distances.tolist(), labels.tolist(), strict=True)]
    expected = sum(sum(row[:k]) / k for row in places) / 3
    assert mean_label_distance_at_k(distances, labels, k=k) == pytest.approx(expected)
    for function in (mean_label_distance_at_k, ndcg_at_k):
        assert function(distances, labels, k=[k, 1]) == {n: function(distances, labels, k=n) for n in (k, 1)}
    if items <= 5:
        # As points on a line, at the given distances from a query far away: the mean over all orders of ties.
        total = 0.0
        for near, values in zip(distances.tolist(), labels.tolist(), strict=True):
            points = [[0.0], *([float(d) + 4 * 10**6] for d in near)]
            matrix = [[0.0, *values]] * (items + 1)
            total += reference_metrics.ndcg_at_k(points, matrix, [0], range(1, items + 1), k) / 3
        assert ndcg_at_k(distances, labels, k=k) == pytest.approx(total)


def test_means_of_the_values_of_each_query():
    x, ids = torch.randn(30, 4).double(), torch.arange(30) % 7
    near, labels = torch.rand(9, 12).double(), torch.rand(9, 12).double()
    labels[2] = 0.5  # no order, so that Kendall's tau does not exist
    calls = {
        "recall": lambda **o: recall_at_k(x, ids, k=[1, 3], **o)[3],
        "map": lambda **o: mean_average_precision_at_r(x, ids, **o),
        "r": lambda **o: r_precision(x, ids, **o),
        "ndcg": lambda **o: ndcg_at_k(near, labels, k=4, **o),
        "distance": lambda **o: mean_label_distance_at_k(near, labels, k=4, **o),
        "hap": lambda **o: hierarchical_average_precision(near, labels, **o),
        "tau": lambda **o: kendall_tau(near, labels, **o),
        "within": lambda **o: torch.as_tensor(recall_within(near, labels, thresholds=[0.1], k=[5, 2], **o)[2])[..., 0],
    }
    for name, call in calls.items():
        values = call(per_query=True)
        assert values.shape == ((30,) if name in ("recall", "map", "r") else (9,)), name
        assert float(values.nanmean()) == pytest.approx(float(call()), abs=1e-7), name
    assert calls["tau"](per_query=True).isnan().nonzero().tolist() == [[2]]
    assert float(recall_at_k(x[:2], ids[:2], gallery=(x, ids), per_query=True)[0]) == 1.0


def test_one_result_has_everything():
    torch.manual_seed(0)
    ages, classes = torch.rand(120) * 50, torch.arange(120) % 10
    x = torch.stack([ages, torch.randn(120) * 9], 1)
    for labels in (NumberLabels(ages), ClassLabels(classes)):
        found = contml.evaluate(x, labels, groups=[f"house {n % 15}" for n in range(120)], exclude_group=False)
        main = found.evaluation.main
        assert (found.score, found.metrics[found.evaluation.headline]) == (main.normalized(), main.model)
        assert found.metrics["ndcg@7"] == found.evaluation.curves["ndcg"].at(7).model
        for name, values in found.per_query.items():
            assert float(values.mean()) == pytest.approx(found.metrics[name], abs=1e-9), name
        assert found.intervals.keys() == found.per_query.keys() >= {"ndcg@10", "label_distance@10"}
        numbered = contml.evaluate(x, labels, groups=torch.arange(120) % 15, exclude_group=False)
        assert found.intervals == pytest.approx(numbered.intervals)
        assert repr(found) == repr(found.evaluation)


def test_equal_labels_have_a_note_and_no_score():
    found = contml.evaluate(torch.randn(20, 3), NumberLabels(torch.full((20,), 3.3)))
    assert math.isnan(found.score)
    assert "all label distances are equal" in repr(found)
