"""Hierarchical AP, Kendall's tau, recall within a label distance: against slow loops and scipy."""

import math
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import kendalltau
from support import reference_metrics
from support.fake_runs import read_again
from support.label_spaces import space_of
from support.retrieval import evaluate
from support.strategies import label_vectors

from contml.evaluation import graded, hierarchical_average_precision, kendall_tau, recall_within, retrieval
from contml.labels import ClassLabels, NumberLabels, OrdinalLabels, VectorLabels


@st.composite
def ranked_lists(draw, most=5):
    """Distances and label distances `[Q, C]`, with many ties, zeros, and lists at one distance."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    shape = draw(st.integers(1, 4)), draw(st.integers(1, most))
    distances = torch.randint(0, draw(st.sampled_from([1, 2, 4, 1000])), shape, generator=generator).double()
    labels = torch.randint(0, draw(st.sampled_from([1, 2, 4, 1000])), shape, generator=generator).double() / 4
    return distances, labels


@st.composite
def vector_splits(draw, most=6):
    """Embeddings with exact ties, labels as vectors, and queries and gallery: disjoint, or each against all others."""
    labels = draw(label_vectors(max_size=most).filter(lambda x: len(x) > 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    embeddings = torch.randint(0, draw(st.integers(1, 5)), (len(labels), 2), generator=generator).double()
    cut = draw(st.integers(1, len(labels) - 2))
    rows = torch.arange(len(labels))
    return embeddings, space_of(labels), draw(st.sampled_from([(None, None), (rows[:cut], rows[cut:])]))


def lists_of(embeddings, labels, rows):
    """For each query: embedding distances, float32 label distances, label vectors of its gallery, and its own."""
    matrix, vectors = labels.pairwise().double().tolist(), labels.values.tolist()
    every = range(len(embeddings))
    queries, gallery = (every if part is None else part.tolist() for part in rows)
    for q in queries:
        seen = [g for g in gallery if g != q]
        near = (embeddings[seen] - embeddings[q]).square().sum(1).tolist()
        yield near, [matrix[q][g] for g in seen], [vectors[g] for g in seen], vectors[q]


@settings(max_examples=60, deadline=None)
@given(case=ranked_lists())
def test_the_functions_equal_their_loops(case):
    distances, labels = case
    relevance = (1 - labels / 2).clamp(min=0)
    lists = list(zip(distances.tolist(), labels.tolist(), relevance.tolist(), strict=True))
    expected = [reference_metrics.hierarchical_ap(near, rel) for near, _, rel in lists if sum(rel)]
    found = hierarchical_average_precision(distances, labels, relevance=lambda d: (1 - d / 2).clamp(min=0))
    assert found == pytest.approx(fmean(expected) if expected else math.nan, abs=1e-10, nan_ok=True)
    defined = [(near, values) for near, values, _ in lists if len(set(values)) > 1]
    tau = [kendalltau(near, values).statistic if len(set(near)) > 1 else 0.0 for near, values in defined]
    expected_tau = fmean(tau) if tau else math.nan
    assert kendall_tau(distances, labels) == pytest.approx(expected_tau, abs=1e-12, nan_ok=True)
    thresholds = [0.0, 0.25, 0.6, 1000.0]
    for k in range(1, distances.shape[1] + 1):
        loops = [
            fmean(reference_metrics.recall_within(near, values, t, k) for near, values, _ in lists) for t in thresholds
        ]
        assert recall_within(distances, labels, thresholds=thresholds, k=k) == pytest.approx(loops, abs=1e-10)


@pytest.mark.parametrize("levels", [3, 40, 10**6])
def test_long_lists_equal_scipy_and_quadratic_sums(levels):
    random = np.random.default_rng(levels)
    distances = random.integers(0, levels, (3, 300)).astype(float)
    labels = distances + random.integers(0, levels, (3, 300))
    expected = [kendalltau(near, values).statistic for near, values in zip(distances, labels, strict=True)]
    assert kendall_tau(distances, labels) == pytest.approx(fmean(expected), abs=1e-12)
    # Without ties: the definition as a matrix.
    distances = random.permuted(np.tile(np.arange(300.0), (3, 1)), axis=1)
    relevance = random.integers(0, levels, (3, 300)) / levels
    loops = []
    for near, rel in zip(distances, relevance, strict=True):
        ordered = rel[np.argsort(near)]
        shared = np.tril(np.minimum(ordered[:, None], ordered)).sum(1)
        loops.append((shared / np.arange(1, 301)).sum() / rel.sum())
    found = hierarchical_average_precision(distances, relevance, relevance=lambda values: values)
    assert found == pytest.approx(fmean(loops), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(split=vector_splits())
def test_an_evaluation_equals_the_loops(split):
    embeddings, labels, rows = split
    found, _ = evaluate(embeddings, labels, *rows)
    lists = list(lists_of(embeddings, labels, rows))
    assert found.sorted_queries == len(lists)
    sample = sorted(d for _, values, *_ in lists for d in values)
    above = [d for d in sample if d > 0]
    unit = above[(len(above) - 1) // 2] if above else 1.0
    for column in ("model", "random", "oracle"):
        of_column = [
            ({"model": near, "random": [0.0] * len(near), "oracle": values}[column], values, vectors, own)
            for near, values, vectors, own in lists
        ]
        relevant = [(near, [max(0, 1 - d / unit) for d in values]) for near, values, *_ in of_column]
        hap = [reference_metrics.hierarchical_ap(*each) for each in relevant if sum(each[1])]
        assert ("hap" in found.scores) == bool(hap)
        if hap:
            assert getattr(found.scores["hap"], column) == pytest.approx(fmean(hap), abs=1e-10)
        tau = [
            kendalltau(near, values).statistic if len(set(near)) > 1 else 0.0
            for near, values, *_ in of_column
            if len(set(values)) > 1
        ]
        assert ("kendall" in found.scores) == bool(tau)
        if tau:
            assert getattr(found.scores["kendall"], column) == pytest.approx(fmean(tau), abs=1e-12)
        mean_distance = getattr(found.curves["label_distance"], column)
        area = getattr(found.scores["label_distance_area"], column)
        assert area == pytest.approx(fmean(mean_distance), rel=1e-12)
    assert read_again(found) == found or math.isnan(found.spearman) or math.isnan(found.random_margin)


def test_which_labels_have_which_metrics():
    torch.manual_seed(0)
    embeddings = torch.randn(6, 3)
    ages = [20.0, 21.0, 30.0, 41.0, 40.0, 22.0]
    ordinal = OrdinalLabels([1, 2, 3, 3, 2, 1])
    for labels in (NumberLabels(ages), ordinal):
        found, _ = evaluate(embeddings, labels)
        assert list(found.scores) == ["label_distance_area", "hap", "kendall"]
        assert "recall" not in found.curves
    classes, _ = evaluate(embeddings, ClassLabels([0, 0, 0, 1, 1, 1]))
    assert not {"hap", "kendall", "label_distance_area"} & classes.scores.keys()
    assert classes.sorted_queries == 0
    equal, _ = evaluate(embeddings, NumberLabels(torch.ones(6)))
    assert list(equal.scores) == ["label_distance_area", "hap"]  # nothing is in order or out of it
    assert equal.scores["hap"].model == equal.scores["hap"].random == 1
    apart, _ = evaluate(torch.randn(3, 2), VectorLabels(torch.eye(3)))  # no item is nearer than the median
    assert list(apart.scores) == ["label_distance_area"]


def test_groups_and_missing_rows_do_not_count():
    torch.manual_seed(0)
    labels, embeddings = torch.randn(30, 2), torch.randn(30, 4)
    groups = torch.arange(30) % 10
    found, _ = evaluate(embeddings, space_of(labels), groups=groups, missing=[4])
    kept = torch.tensor([row for row in range(30) if row != 4])
    tau = []
    for q in kept:
        seen = kept[groups[kept] != groups[q]]
        near = (embeddings[seen] - embeddings[q]).square().sum(1)
        tau.append(kendalltau(near, (labels[seen] - labels[q]).square().sum(1)).statistic)
    assert found.scores["kendall"].model == pytest.approx(fmean(tau), abs=1e-7)


def test_a_sample_of_queries_is_sorted_where_there_are_many(monkeypatch):
    torch.manual_seed(0)
    labels = torch.randn(200, 2)
    embeddings = labels + torch.randn(200, 2)
    whole, _ = evaluate(embeddings, space_of(labels))
    assert whole.sorted_queries == 200
    monkeypatch.setattr(graded, "_SORTED", 100)
    monkeypatch.setattr(retrieval, "_LABEL_DISTANCES", 200 * 7)
    sample, _ = evaluate(embeddings, space_of(labels))
    assert (sample.sorted_queries, sample.curves) == (100, whole.curves)
    for name in ("hap", "kendall"):
        assert sample.scores[name].model != whole.scores[name].model
        assert sample.scores[name].model == pytest.approx(whole.scores[name].model, abs=0.05)
    monkeypatch.setattr(graded, "_SORTED", 500)
    monkeypatch.setattr(graded, "_SORTED_PAIRS", 0)
    monkeypatch.setattr(graded, "_LEAST_SORTED", 30)
    assert evaluate(embeddings, space_of(labels))[0].sorted_queries == 30
