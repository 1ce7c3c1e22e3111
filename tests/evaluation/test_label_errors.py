"""Scores of label errors: equal to loops over single pairs, with ties, groups, folds and missing labels."""

import math
import sys

import numpy as np
import pytest
import torch
from support.choices import spread
from support.label_spaces import SPACES
from support.refusals import refused, refuses

from contml.evaluation import label_errors
from contml.evaluation.label_errors import _PENALTIES, _draw_folds
from contml.labels import NumberLabels, VectorLabels
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


def weights_of(x, rows, others, penalty):
    """h `[rows][others]`: ridge regression of each item's indicator, with an intercept, by the normal equations."""
    z = x[others] - x[others].mean(0)
    total = (z**2).sum()
    found = []
    for i in rows:
        h = np.full(len(others), 1 / len(others))
        if total > 0 and not math.isinf(penalty):
            matrix = z.T @ z + penalty * total * np.eye(x.shape[1])
            h += z @ np.linalg.solve(matrix, x[i] - x[others].mean(0))
        found.append(h)
    return found


def distance_to_prediction(h, own, known):
    """sum_j h_j D_ij - 1/2 sum_jk h_j h_k D_jk."""
    return float(np.sum(h * own) - 0.5 * np.sum(np.outer(h, h) * known))


def reference(x, d, k, *, folds, groups=None, missing=()):
    """The definition, by loops in float64; d[i][j] is NaN where labels cannot be compared."""
    n = len(d)
    groups = list(range(n)) if groups is None else groups
    rows = [row for row in range(n) if row not in missing]
    labelled = [i for i in rows if sum(not math.isnan(d[i][j]) for j in rows) > 1]
    filled = [
        [d[i][j] if not math.isnan(d[i][j]) else nanmean([d[i][m] for m in labelled]) for j in range(n)]
        for i in range(n)
    ]
    near, errors = {}, {penalty: {} for penalty in _PENALTIES.tolist()}
    for fold in sorted({folds[i] for i in rows}):
        e = (x if isinstance(x, torch.Tensor) else x[fold]).double().numpy()
        own = [i for i in rows if folds[i] == fold]
        others = [j for j in labelled if folds[j] != fold]
        for i in own:
            candidates = [j for j in rows if groups[j] != groups[i]]
            near[i] = sorted(candidates, key=lambda j: (((e[i] - e[j]) ** 2).sum(), j))[:k]
        known = [[filled[a][b] for b in others] for a in others]
        for penalty, found in errors.items():
            for i, h in zip(own, weights_of(e, own, others, penalty), strict=True):
                to_others = [d[i][j] for j in others]
                to_others = [nanmean(to_others) if math.isnan(value) else value for value in to_others]
                found[i] = distance_to_prediction(h, to_others, known)
    best = min(errors.values(), key=lambda found: nanmean(list(found.values())))
    to_mean = errors[math.inf]
    mean = nanmean(list(to_mean.values()))
    q = {}
    for i in rows:
        if math.isnan(to_mean[i]):
            q[i] = math.nan
        else:
            q[i] = max(best[i], 0) / min(max(to_mean[i], 0.75 * mean), 1.25 * mean) if mean > 0 else 0.0
    scores = [math.nan] * n
    for i in rows:
        scores[i] = (q[i] + 0.05) / math.sqrt(nanmean([q[j] for j in near[i]]) + 0.05)
    return scores, [q.get(i, math.nan) for i in range(n)], near


def own_folds(items):
    """The folds that are drawn where none are given."""
    return _draw_folds(torch.arange(items), torch.arange(items)).tolist()


def assert_equal(found, expected):
    scores, errors, near = expected
    np.testing.assert_allclose(found.scores.numpy(), scores, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.errors.numpy(), errors, rtol=1e-7, atol=1e-9)
    for row, neighbours in enumerate(found.neighbours.tolist()):
        assert neighbours == near.get(row, [-1] * len(neighbours))


@pytest.mark.parametrize(("name", "k"), spread([name for name in SPACES if "pairs" not in name], [1, 4, 19]))
def test_every_label_space_equals_the_loop(name, k, tmp_path):
    labels = SPACES[name](tmp_path)
    x = embeddings(len(labels))
    found = label_errors(x, labels, k=k)
    d, known = labels.pairwise().double().numpy(), labels.known()
    if known is not None:
        d[~known.numpy()] = math.nan
    assert_equal(found, reference(x, d, k, folds=own_folds(len(d))))
    np.testing.assert_array_equal(found.label_distances.numpy(), np.take_along_axis(d, found.neighbours.numpy(), 1))


def test_judged_pairs_compare_too_few_items():
    refused(lambda: label_errors(embeddings(20), SPACES["pairs"](None)), "labels", got="judged pairs")


def test_groups_missing_and_folds_equal_the_loop():
    labels = VectorLabels(torch.randn(N, 2, generator=torch.Generator().manual_seed(1)))
    d = labels.pairwise().double().numpy()
    groups, folds, missing = [row // 2 for row in range(N)], [row // 2 % 3 for row in range(N)], [2, 11]
    x = [embeddings(seed=seed) for seed in range(3)]
    found = label_errors(iter(x), labels, k=4, folds=folds, groups=groups, missing=missing)
    assert_equal(found, reference(x, d, 4, folds=folds, groups=groups, missing=missing))
    assert found.scores[missing].isnan().all()
    assert found.label_distances[missing].isnan().all()
    assert not set(found.order.tolist()) & set(missing)


def test_equal_labels_have_no_errors():
    found = label_errors(embeddings(), NumberLabels(torch.ones(N)))
    assert (len(found.scores.unique()), found.order.tolist()) == (1, list(range(N)))


def test_no_block_holds_all_pairs(monkeypatch):
    sizes, pairwise = [], LabelSpace.pairwise

    def noted(self, rows=None, cols=None, **options):
        result = pairwise(self, rows, cols, **options)
        sizes.append(result.numel())
        return result

    monkeypatch.setattr(LabelSpace, "pairwise", noted)
    monkeypatch.setattr(sys.modules["contml.evaluation.label_errors"], "_BLOCK", 20_000)
    items = 500
    values = torch.arange(float(items))
    found = label_errors(values[:, None], NumberLabels(values))
    assert (len(found.order), found.neighbours.shape) == (items, (items, 20))
    assert max(sizes) <= 20_000


def test_refusals():
    x, labels = embeddings(), NumberLabels(torch.arange(float(N)))
    refused(lambda: label_errors(x, labels, k=20), "k", "20", "1 to 19")
    refused(lambda: label_errors(x, labels, k=12, groups=[0] * 10 + [1] * 10), "k", "12", "1 to 10")
    refused(lambda: label_errors(x, labels, groups=[0] * N), "items", "20 of them of one group")
    refused(lambda: label_errors([x, x], labels, folds=[row % 3 for row in range(N)]), "folds", "fold 2", "0 to 1")
    refused(lambda: label_errors([x], labels, folds=[0] * N), "folds", "all items are in one")
    with refuses("folds", "items of group 1 are in two"):
        label_errors([x, x], labels, folds=[0] * 3 + [1] * 17, groups=[row // 2 for row in range(N)])
    refused(lambda: label_errors(x, [1.0] * N), "labels", "list")
