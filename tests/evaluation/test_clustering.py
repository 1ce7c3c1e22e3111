"""k-means, NMI and F1: against loops, scikit-learn and pytorch-metric-learning; copies and order."""

import itertools
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference_metrics

from contml.evaluation import clustering
from contml.evaluation.clustering import (
    cluster,
    cluster_scores,
    f1_by_chance,
    nmi_by_chance,
    normalized_mutual_information,
    pairwise_f1,
)


@st.composite
def labellings(draw, max_items=12):
    items = draw(st.integers(1, max_items))
    return tuple(draw(st.lists(st.integers(0, 4), min_size=items, max_size=items)) for _ in range(2))


@settings(max_examples=200, deadline=None)
@given(both=labellings())
def test_nmi_and_f1_equal_their_definitions(both):
    classes, clusters = both
    given_ids = torch.tensor(classes), torch.tensor(clusters)
    nmi, f1 = normalized_mutual_information(*given_ids), pairwise_f1(*given_ids)
    assert nmi == pytest.approx(reference_metrics.normalized_mutual_information(*both), abs=1e-9)
    assert f1 == pytest.approx(reference_metrics.pairwise_f1(*both), abs=1e-12)
    # Symmetric, and names of groups do not matter.
    renamed = given_ids[0] * -7 + 1000, given_ids[1] * 3
    assert normalized_mutual_information(*renamed) == pytest.approx(nmi)
    assert pairwise_f1(*reversed(renamed)) == pytest.approx(f1)


def test_the_normalized_score_of_nmi_is_adjusted_mutual_information():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(0, 12, (400,), generator=generator)
    clusters = torch.where(torch.rand(400, generator=generator) < 0.4, classes, torch.randint(0, 30, (400,)))
    nmi, chance = normalized_mutual_information(classes, clusters), nmi_by_chance(classes, clusters)
    expected = metrics.adjusted_mutual_info_score(classes, clusters)
    assert 0.05 < chance < nmi < 1
    assert (nmi - chance) / (1 - chance) == pytest.approx(expected, rel=1e-9)


def test_chance_is_the_mean_over_all_permutations():
    classes, clusters = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 2]
    given_ids = torch.tensor(classes), torch.tensor(clusters)
    shuffled = list(itertools.permutations(clusters))
    nmi = fmean(reference_metrics.normalized_mutual_information(classes, list(order)) for order in shuffled)
    f1 = fmean(reference_metrics.pairwise_f1(classes, list(order)) for order in shuffled)
    assert nmi_by_chance(*given_ids) == pytest.approx(nmi)
    assert f1_by_chance(*given_ids) == pytest.approx(f1)


@pytest.mark.parametrize("items", [1, 2, 5])
def test_one_class_and_classes_of_one(items):
    one, each = torch.zeros(items, dtype=torch.int64), torch.arange(items)
    for metric, chance in ((normalized_mutual_information, nmi_by_chance), (pairwise_f1, f1_by_chance)):
        assert metric(one, one) == metric(each, each) == 1
        assert [chance(one, one), chance(each, each)] == pytest.approx([1, 1])
        assert chance(one, each) == pytest.approx(metric(one, each), abs=1e-12)


def blobs(classes=30, per_class=12, dim=16, spread=0.05):
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(classes).repeat_interleave(per_class)[torch.randperm(classes * per_class, generator=generator)]
    centres = torch.randn(classes, dim, generator=generator)
    return centres[ids] + spread * torch.randn(len(ids), dim, generator=generator), ids


def test_scores_are_means_over_seeds():
    """The clusters of one seed may change where embeddings are rounded in another way."""
    x, ids = blobs()
    scores, runs = cluster_scores(x, ids), [cluster(x, 30, seed=seed) for seed in range(clustering._RESTARTS)]
    metrics = {"nmi": (normalized_mutual_information, nmi_by_chance), "f1": (pairwise_f1, f1_by_chance)}
    for name, (metric, chance) in metrics.items():
        assert scores[name].model == pytest.approx(fmean(metric(ids, run) for run in runs))
        assert scores[name].random == pytest.approx(fmean(chance(ids, run) for run in runs))
    assert scores["nmi"].model > 0.97


@pytest.mark.parametrize("k", [7, 200])
def test_a_seed_gives_the_same_clusters_in_any_order(k):
    x, _ = blobs(spread=1.0)
    x[5], x[77], x[300] = x[200], x[200], x[8]
    found = cluster(x, k, seed=3)
    assert torch.equal(found, cluster(x, k, seed=3))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    assert torch.equal(found[order], cluster(x[order], k, seed=3))
    assert found[5] == found[77] == found[200]
    assert found[300] == found[8]
    assert found.min() >= 0
    assert found.max() < k
    others = [cluster(x, k, seed=seed) for seed in range(4, 7)]
    assert any(not torch.equal(found, other) for other in others)


def test_fewer_points_than_clusters(capfd):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))[torch.tensor([0, 1, 1, 2, 0, 0])]
    assert (len(cluster(x, 5).unique()), pairwise_f1(cluster(x, 3), torch.tensor([0, 1, 1, 2, 0, 0]))) == (3, 1)
    assert (cluster(torch.ones(9, 4), 4).tolist(), len(cluster(x, 2).unique())) == ([0] * 9, 2)
    assert len(cluster(torch.randn(40, 4), 39).unique()) >= 38
    assert capfd.readouterr() == ("", "")  # FAISS warns of few points on the terminal


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e290])
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_clusters_do_not_depend_on_offset_and_scale(offset, scale):
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    first, second, third, fourth = cluster((x + offset) * scale, 2).tolist()
    assert first == second != third == fourth
