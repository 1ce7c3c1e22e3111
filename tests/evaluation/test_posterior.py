"""Posteriors over training items against loops, coordinates of labels, and the choice of k and scale."""

from statistics import fmean

import pytest
import torch
from support.label_spaces import SPACES
from support.labelled import loop_weights

from contml.evaluation import posterior as posteriors
from contml.evaluation.posterior import KS, SCALES, Coordinates, Posterior, as_query
from contml.labels import ClassLabels, NumberLabels, VectorLabels


def draw(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).double()


FORMS = [(torch.float64, 1), (torch.float32, 1), (torch.float16, 1), (torch.float64, 1e-18), (torch.float64, 1e18)]


@pytest.mark.parametrize(("dtype", "size"), FORMS)
@pytest.mark.parametrize("k", [1, 3, 20])
def test_weights_are_those_of_the_definition(monkeypatch, k, dtype, size):
    monkeypatch.setattr(posteriors, "_ENTRIES", 40)  # two queries at a time
    x, queries = (size * draw(20, 4)).to(dtype), (size * draw(5, 4, 1)).to(dtype)
    found = Posterior(x, draw(20, 2), k, 0.7 * size).weights(queries)
    for q, query in enumerate(queries.double()):
        expected = loop_weights(x.double(), query, k, 0.7 * size)
        assert found.rows[q].tolist() == [*expected]
        assert found.weights[q].tolist() == pytest.approx([*expected.values()])


def test_copies_of_a_training_item_have_equal_weights_and_the_lower_rows_come_first():
    """Their distances by a matrix product would differ by rounding."""
    row = (1e3 + draw(1, 64)).float()
    found = Posterior(torch.cat((-row, row.expand(5, -1))), draw(6, 2), 3, 1e-3).weights(row + 0.3)
    assert (found.rows.tolist(), found.weights.tolist()) == ([[1, 2, 3]], [[1 / 3] * 3])


def test_excluded_items_have_no_weight():
    x, excluded = draw(20, 4), torch.rand(5, 20, generator=torch.Generator().manual_seed(1)) < 0.5
    found = Posterior(x, draw(20, 2), 20, 0.7).weights(draw(5, 4, 1), excluded)
    for q, query in enumerate(draw(5, 4, 1)):
        expected = loop_weights(x, query, 20, 0.7, excluded[q].nonzero()[:, 0].tolist())
        pairs = zip(found.rows[q].tolist(), found.weights[q].tolist(), strict=True)
        assert {row: weight for row, weight in pairs if weight} == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1e3, 1e300])
def test_extreme_scales_are_the_nearest_item_and_equal_weights(scale):
    x = torch.cat((draw(8, 3), draw(8, 3)))  # each has a copy
    weights = Posterior(x, draw(16, 2), 16, scale).weights(draw(8, 3) + 1e-9).weights
    assert weights.sum(1).tolist() == pytest.approx([1.0] * 8)
    assert weights[:, :2].tolist() == [pytest.approx([0.5, 0.5] if scale < 1 else [1 / 16] * 2, rel=1e-2)] * 8


@pytest.mark.parametrize("entries", [1, 1 << 23])
def test_the_distance_of_label_vectors_is_the_mean_squared_distance_of_the_labels(monkeypatch, entries):
    monkeypatch.setattr(posteriors, "_ENTRIES", entries)
    x, u, queries = draw(20, 4), draw(20, 3, 2), draw(6, 4, 1)
    assert Posterior(x, u, 7, 0.5).label_vectors(queries[:0]).shape == (0, 4)
    vectors = Posterior(x, u, 7, 0.5).label_vectors(queries).double()
    asked = as_query(vectors.float()).double()
    for a in range(6):
        first = loop_weights(x, queries[a], 7, 0.5)
        for b in range(6):
            second = loop_weights(x, queries[b], 7, 0.5)
            expected = sum(
                w * v * float((u[i] - u[j]).square().sum()) for i, w in first.items() for j, v in second.items()
            )
            found = float((asked[a] - vectors[b]).square().sum() + vectors[a, -1].square())
            assert found == pytest.approx(expected, rel=1e-4)


# -- coordinates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [30, 700])
def test_coordinates_of_vectors_have_the_label_distances(count):
    labels = VectorLabels(draw(count, 3))
    coordinates = Coordinates.fit(labels)
    u = coordinates.of(labels.pairwise(range(count), coordinates.landmarks))
    assert u.shape == (count, 3)
    assert torch.allclose(torch.cdist(u, u), labels.pairwise().double(), atol=1e-4)


@pytest.mark.parametrize("name", ["tags", "captions", "poses", "segmentation", "matrix", "weighted", "geo"])
def test_coordinates_follow_the_label_distances_of_every_kind(name, tmp_path):
    labels = SPACES[name](tmp_path)
    coordinates = Coordinates.fit(labels)
    u = coordinates.of(labels.filled(range(len(labels)), coordinates.landmarks))
    pairs = torch.triu_indices(len(labels), len(labels), 1)
    both = torch.stack((torch.cdist(u, u)[pairs[0], pairs[1]], labels.filled().double()[pairs[0], pairs[1]]))
    assert float(torch.corrcoef(both)[0, 1]) > 0.8


def test_equal_labels_have_no_coordinates_and_equal_vectors():
    labels = NumberLabels(torch.ones(9))
    coordinates = Coordinates.fit(labels)
    u = coordinates.of(labels.pairwise(range(9), coordinates.landmarks))
    assert bool((Posterior(draw(9, 3), u, 4, 0.5).label_vectors(draw(4, 3, 1)) == 0).all())


# -- the choice --------------------------------------------------------------------------------------------------------


def energy(x, gap, asked, truth, k, scale, excluded):
    """The mean energy score; `gap`: the distance of two labels by their rows, `truth`: rows of the labels asked for."""
    scores = []
    for q, row in enumerate(truth):
        w = loop_weights(x, asked[q], k, scale, excluded[q])
        inside = sum(a * b * gap(i, j) for i, a in w.items() for j, b in w.items())
        scores.append(sum(a * gap(i, row) for i, a in w.items()) - inside / 2)
    return fmean(scores)


@pytest.mark.parametrize("with_val", [True, False])
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_k_and_scale_have_the_least_energy_score(kind, with_val):
    values = draw(44, 1, 3)
    x = torch.cat((values, 0.4 * draw(44, 3, 4)), 1)
    ids = (values[:, 0] > 0).long() + (values[:, 0] > 0.7).long()
    labels = values if kind == "numbers" else ids
    n = 30 if with_val else 44
    groups = torch.arange(44) // 2
    val = (x[30:], labels[30:]) if with_val else None
    found = Posterior.fit(x[:n], labels[:n], val, groups[:n])

    def gap(i, j):
        return abs(float(values[i, 0] - values[j, 0])) if kind == "numbers" else float(ids[i] != ids[j])

    truth = range(30, 44) if with_val else range(44)
    excluded = [[j for j in range(n) if not with_val and groups[j] == groups[i]] for i in truth]
    spread = float((x[:n] - x[:n].mean(0)).square().sum(1).mean().sqrt())
    most = n if with_val else n - 2
    scores = {
        (k, share * spread): energy(x[:n], gap, x[list(truth)], truth, k, share * spread, excluded)
        for k in KS
        if k <= most
        for share in SCALES
    }
    assert (found.k, found.scale) == pytest.approx(min(scores, key=scores.get))


def test_copies_and_few_items_have_a_posterior():
    x = torch.zeros(3, 2).double()
    found = Posterior.fit(x, draw(3, 1), None)
    assert found.label_vectors(x).isfinite().all()
    found = Posterior.fit(draw(3, 2), ClassLabels(["a", "b", "a"]).class_ids, None, torch.zeros(3))
    assert found.weights(draw(4, 2)).weights.isfinite().all()
