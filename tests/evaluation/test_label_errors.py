"""Scores of label errors: equal to loops over single pairs, with ties, groups, folds and missing labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.label_spaces import SPACES
from support.refusals import refuses

from contml.evaluation import label_errors
from contml.evaluation.label_errors import REFERENCES, _references
from contml.labels import ClassLabels, VectorLabels, WeightedLabels
from contml.labels.base import LabelSpace

N = 20


def embeddings(items=N, seed=0):
    """With equal rows, whose neighbours tie."""
    x = torch.randn(items, 3, generator=torch.Generator().manual_seed(seed))
    x[5] = x[4] = x[3]
    x[9] = x[8]
    return x


def nanmean(values):
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def reference(x, d, k, *, folds=None, groups=None, missing=()):
    """The definition, by loops in float64; d[i][j] is NaN where labels cannot be compared."""
    n = len(d)
    groups = list(range(n)) if groups is None else groups
    rows = [row for row in range(n) if row not in missing]
    near, share, references = {}, {}, _references(torch.tensor(rows)).tolist()
    for i in rows:
        e = (x if folds is None else x[folds[i]]).double().numpy()
        others = [j for j in rows if groups[j] != groups[i]]
        near[i] = sorted(others, key=lambda j: (((e[i] - e[j]) ** 2).sum(), j))[:k]
        a = nanmean([float(d[i][j]) for j in near[i]])
        b = nanmean([float(d[i][j]) for j in references if j != i])
        share[i] = 0.0 if b == 0 else a / b
    scores = [math.nan] * n
    for i in rows:
        scores[i] = (share[i] + 0.05) / (nanmean([share[j] for j in near[i]]) + 0.05)
    return scores, near


def assert_equal(found, expected):
    scores, near = expected
    np.testing.assert_allclose(found.scores.numpy(), scores, rtol=0, atol=1e-10)
    for row, neighbours in enumerate(found.neighbours.tolist()):
        assert neighbours == near.get(row, [-1] * len(neighbours))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("k", [1, 4, 19])
def test_every_label_space_equals_the_loop(name, k, tmp_path):
    labels = SPACES[name](tmp_path)
    x = embeddings(len(labels))
    found = label_errors(x, labels, k=k)
    d = labels.pairwise().double().numpy()
    assert_equal(found, reference(x, d, k))
    np.testing.assert_array_equal(found.label_distances.numpy(), np.take_along_axis(d, found.neighbours.numpy(), 1))


def test_groups_missing_and_folds_equal_the_loop():
    labels = VectorLabels(torch.randn(N, 2, generator=torch.Generator().manual_seed(1)))
    d = labels.pairwise().double().numpy()
    groups, folds, missing = [row // 2 for row in range(N)], [row % 3 for row in range(N)], [2, 11]
    x = [embeddings(seed=seed) for seed in range(3)]
    found = label_errors(iter(x), labels, k=4, folds=folds, groups=groups, missing=missing)
    assert_equal(found, reference(x, d, 4, folds=folds, groups=groups, missing=missing))
    assert found.scores[missing].isnan().all()
    assert found.label_distances[missing].isnan().all()
    assert not set(found.order.tolist()) & set(missing)


def test_labels_that_cannot_be_compared_do_not_count():
    generator = torch.Generator().manual_seed(2)
    spaces = [VectorLabels(torch.randn(N, generator=generator)), ClassLabels(torch.arange(N) % 3)]
    present = torch.rand(N, 2, generator=generator) > 0.4
    present[7] = False  # without any label
    labels = WeightedLabels(dict.fromkeys(spaces, 1.0), present=present)
    d = labels.pairwise().double().numpy()
    for i in range(N):
        for j in range(N):
            if not (present[i] & present[j]).any():
                d[i, j] = math.nan
    x = embeddings()
    found = label_errors(x, labels, k=4)
    assert_equal(found, reference(x, d, 4))
    assert found.scores[7].isnan()
    assert 7 not in found.order.tolist()
    assert found.label_distances.isnan().any(1).sum() > 1


def test_equal_labels_have_no_errors():
    found = label_errors(embeddings(), VectorLabels(torch.ones(N)))
    assert found.scores.tolist() == [1.0] * N
    assert found.order.tolist() == list(range(N))


@pytest.mark.parametrize("squared", [False, True])
def test_swaps_and_noise_are_found_where_labels_are_precise(squared):
    """Labels follow the embedding closely on one side, loosely on the other: the loose half is no error."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(400, 2, generator=generator)
    noise = torch.where(x[:, 0] < 0.5, 0.01, 0.3)
    values = x[:, 0] + noise * torch.randn(400, generator=generator)
    precise = (x[:, 0] < 0.25).nonzero()[:3, 0]
    far = (x[:, 0] > 0.4).logical_and(x[:, 0] < 0.5).nonzero()[:3, 0]
    values[precise], values[far] = values[far].clone(), values[precise].clone()  # swaps
    noisy = (x[:, 0] < 0.25).nonzero()[5:8, 0]
    values[noisy] += 0.5
    planted = {*precise.tolist(), *far.tolist(), *noisy.tolist()}
    found = label_errors(x, VectorLabels(values, squared=squared))
    assert set(found.order[:6].tolist()) <= planted
    plain = found.label_distances.mean(1).topk(6).indices  # without a local scale
    assert not planted & set(plain.tolist())


def test_a_class_among_another_class_is_found():
    generator = torch.Generator().manual_seed(4)
    classes = torch.arange(200) % 4
    x = torch.nn.functional.one_hot(classes, 4).float() + 0.1 * torch.randn(200, 4, generator=generator)
    wrong = torch.tensor([3, 50, 101])
    classes[wrong] = (classes[wrong] + 1) % 4
    found = label_errors(x, ClassLabels(classes))
    assert set(found.order[:3].tolist()) == set(wrong.tolist())


def test_no_block_holds_all_pairs(monkeypatch):
    sizes, pairwise = [], LabelSpace.pairwise

    def noted(self, rows=None, cols=None, **options):
        result = pairwise(self, rows, cols, **options)
        sizes.append(result.numel())
        return result

    monkeypatch.setattr(LabelSpace, "pairwise", noted)
    items = 5000
    values = torch.arange(float(items))
    found = label_errors(values[:, None], VectorLabels(values))
    assert found.neighbours.shape == (items, 20)
    assert max(sizes) <= 4096 * REFERENCES


def test_the_default_number_of_neighbours_fits_small_data():
    assert [
        label_errors(embeddings(n), VectorLabels(torch.arange(float(n)))).neighbours.shape[1] for n in (10, 60)
    ] == [
        1,
        11,
    ]


def test_refusals():
    x, labels = embeddings(), VectorLabels(torch.arange(float(N)))
    with refuses("k", "20", "1 to 19"):
        label_errors(x, labels, k=20)
    with refuses("k", "0"):
        label_errors(x, labels, k=0)
    with refuses("k", "12", "1 to 10"):
        label_errors(x, labels, k=12, groups=[0] * 10 + [1] * 10)
    with refuses("items", "20 of them of one group"):
        label_errors(x, labels, groups=[0] * N)
    with refuses("embeddings", f"19 for {N} labels"):
        label_errors(x[1:], labels)
    with refuses("groups", f"3 for {N} labels"):
        label_errors(x, labels, groups=[0, 1, 2])
    with refuses("folds", "fold 2", "0 to 1"):
        label_errors([x, x], labels, folds=[row % 3 for row in range(N)])
    with refuses("labels", "list"):
        label_errors(x, [1.0] * N)
    with refuses("embedding", "not finite"):
        label_errors(x * math.nan, labels)
