"""Approximate nearest neighbours: what NN-descent finds, what it reports, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml import ClassLabels, DateLabels, GeoLabels, MatrixLabels, PoseLabels, VectorLabels
from contml.distances.descent import interval
from contml.labels import CaptionLabels, PairLabels, SegmentationLabels
from contml.labels.binarized import NearestLabels
from contml.sampling import DenseSampler


@pytest.fixture(autouse=True)
def few_items(monkeypatch):
    """A search of few items is not refused: it would be too slow for tests of many."""
    monkeypatch.setattr("contml.labels.base._FEWEST", 2)


def places(items, seed=0):
    random = np.random.default_rng(seed)
    return GeoLabels(random.uniform((-60, -180), (70, 180), (items, 2)))


def poses(items):
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(items, 3, generator=random, dtype=torch.float64)
    return PoseLabels(torch.tanh(hidden @ torch.randn(3, 28, generator=random, dtype=torch.float64)).view(items, 14, 2))


@pytest.mark.parametrize("labels", [places(1500), poses(1500)], ids=["places", "squared poses"])
def test_most_of_the_nearest_are_found_with_their_exact_distances(labels):
    found, exact = labels.nearest(5, approximate=True), labels.nearest(5)
    assert (found.distances <= exact.distances[:, -1:]).float().mean() > 0.98
    pairs = torch.stack([labels.pairwise([row], found.rows[row])[0] for row in range(0, 1500, 100)])
    assert torch.allclose(pairs, found.distances[::100], rtol=1e-6)
    assert not (found.rows == torch.arange(1500)[:, None]).any()
    assert all(len(set(row)) == 5 for row in found.rows.tolist())
    assert (found.distances.diff(dim=1) >= 0).all()


def test_the_recall_is_that_of_the_sampled_rows():
    labels = places(900)
    found = labels.nearest(4, approximate=True)
    assert found.sampled_rows == 900  # all, so the recall is that of the result
    exact = labels.nearest(4).distances[:, -1:]
    assert found.recall == pytest.approx((found.distances <= exact).double().mean().item())
    assert (found.recall_low, found.recall_high) == interval(found.recall, 900)
    assert found.compared > 0
    assert f"recall {found.recall:.3f}" in found.description


def test_a_poor_search_has_a_poor_recall(monkeypatch):
    monkeypatch.setattr("contml.distances.descent._TREES", 1)
    monkeypatch.setattr("contml.distances.descent._LEAF", 16)
    monkeypatch.setattr("contml.distances.descent._ROUNDS", 0)
    found = places(1200).nearest(6, approximate=True)
    assert found.recall_low < found.recall < 0.9
    assert found.compared < 0.1


def test_the_interval_is_that_of_wilson():
    low, high = interval(0.9, 100)
    assert (low, high) == (pytest.approx(0.8256, abs=1e-4), pytest.approx(0.9448, abs=1e-4))
    assert interval(1.0, 1000)[0] == pytest.approx(0.99617, abs=1e-5)  # all of a sample is not all
    assert interval(1.0, 1000)[1] == 1.0


def test_a_seed_gives_one_result():
    labels = places(700)
    first, again = (labels.nearest(3, approximate=True, seed=4) for _ in range(2))
    assert torch.equal(first.rows, again.rows)
    assert first[2:] == again[2:]
    assert labels.nearest(3, approximate=True, seed=5).compared != first.compared


@pytest.mark.parametrize("items", [2, 3, 21, 129, 300])
def test_few_items_and_equal_items(items):
    equal = GeoLabels(np.zeros((items, 2)))
    found = equal.nearest(min(items - 1, 30), approximate=True)
    assert (found.distances == 0).all()
    assert found.recall == 1
    assert all(len(set(row)) == len(row) for row in found.rows.tolist())
    few = places(items)
    assert torch.equal(few.nearest(1, approximate=True).rows, few.nearest(1).rows)


def test_label_maps_and_a_matrix():
    maps = torch.randint(0, 3, (200, 8, 8), generator=torch.Generator().manual_seed(0))
    for labels in (SegmentationLabels(maps, 3, side=None), MatrixLabels(places(200).pairwise())):
        assert labels.nearest(3, approximate=True).recall > 0.95


def test_the_cache_keeps_exact_and_approximate_results_apart(tmp_path, monkeypatch):
    labels = places(400)
    exact, found = labels.nearest(3, cache=tmp_path), labels.nearest(3, approximate=True, cache=tmp_path)
    other = labels.nearest(3, approximate=True, cache=tmp_path, seed=1)
    files = [*tmp_path.iterdir()]
    assert len(files) == 3
    with monkeypatch.context() as patched:
        patched.setattr("contml.labels.base.descend", None)  # it is not called again
        again = labels.nearest(3, approximate=True, cache=tmp_path)
        assert torch.equal(again.rows, found.rows)
        assert again[2:] == found[2:]
        assert labels.nearest(3, approximate=True, cache=tmp_path, seed=1)[2:] == other[2:]
        assert torch.equal(labels.nearest(3, cache=tmp_path).rows, exact.rows)
    for file in files:
        file.write_bytes(file.read_bytes()[:-9])
    assert torch.equal(labels.nearest(3, approximate=True, cache=tmp_path).rows, found.rows)


@pytest.mark.parametrize(
    ("labels", "got"),
    [
        (VectorLabels(torch.rand(9)), "VectorLabels"),
        (VectorLabels(torch.rand(9, 4)), "VectorLabels"),
        (DateLabels([f"2020-01-{day:02d}" for day in range(1, 10)]), "DateLabels"),
        (ClassLabels([1, 2, 3, 1]), "classes"),
        (PairLabels([[0, 1], [1, 2]], [1.0, 2.0], 4), "no label distance"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_labels_without_a_use_for_it_are_refused(labels, got):
    with refuses("approximate", got, hint="omit approximate"):
        labels.nearest(1, approximate=True)


def test_captions_have_an_exact_search_of_their_own():
    words = {"dog": [1.0, 0.0], "cat": [0.0, 1.0], "bird": [1.0, 1.0]}
    labels = CaptionLabels([["dog"], ["cat"], ["bird"]], vectors=words)
    with refuses("approximate", "CaptionLabels", hint="omit approximate"):
        labels.nearest(1, approximate=True)


def test_few_items_are_refused(monkeypatch):
    monkeypatch.setattr("contml.labels.base._FEWEST", 5_000)
    with refuses("approximate", "200 items", "at least 5,000", hint="omit approximate"):
        DenseSampler(30, 5, 5, approximate=True, labels=places(200))


def test_some_rows_and_clusters_are_refused():
    for options in ({"rows": [0, 1]}, {"among": [0, 1, 2]}):
        with refuses("approximate", "with rows or among", hint="as_root"):
            places(9).nearest(1, approximate=True, **options)
    with refuses("approximate", "local"):
        places(9).nearest(1, approximate=True, cluster="local", cache="c")
    with refuses("k", "9", "1 to 8"):
        places(9).nearest(9, approximate=True)


def test_sampler_and_binarized_labels_say_the_recall(capsys):
    labels = places(200)
    sampler = DenseSampler(30, 5, 5, approximate=True, labels=labels)
    assert sampler.neighbours.shape == (200, 5)
    assert "approximate nearest neighbours: recall" in capsys.readouterr().err
    binary = NearestLabels(7, approximate=True, space=labels)
    assert (binary.pairwise() == 0).sum(1).tolist() == [8] * 200
