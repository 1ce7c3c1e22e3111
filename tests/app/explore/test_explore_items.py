"""What the page shows equals loops over single pairs, and its errors are those of the evaluation."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from support.refusals import refuses
from support.retrieval import evaluate

from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import load_run, read_evaluation
from contml.app.explore import explore_index, explore_runs
from contml.app.report.embedding_map import main_direction
from contml.data.identity import DataRecord
from contml.labels import ClassLabels, MultiHotLabels, NumberLabels, VectorLabels
from contml.search import Index


def pairwise(view, split):
    """Squared embedding distances in float64, and label distances, by loops."""
    x, n = view.embeddings.double().numpy(), len(split)
    embedding = np.array([[((x[i] - x[j]) ** 2).sum() for j in range(n)] for i in range(n)])
    return embedding, split.labels.pairwise().numpy()


def nearest(distances, row, gallery, k):
    return sorted((g for g in gallery if g != row), key=lambda g: (distances[row, g], g))[:k]


def test_neighbours_equal_brute_force(explored):
    split = explored.split
    assert len(split) == 24
    gallery = explored.gallery.tolist()
    assert gallery == [row for row in range(24) if row not in split.queries.tolist()]
    assert len(explored.views) == 2
    for view in explored.views:
        embedding, label = pairwise(view, split)
        for row in range(24):
            for found, by in ((view.by_embedding, embedding), (view.by_label, label)):
                wanted = nearest(by, row, gallery, 10)
                assert found.rows[row].tolist() == wanted
                assert np.allclose(found.distances[row], np.sqrt(embedding[row, wanted]), rtol=1e-12)
                assert np.array_equal(found.label_distances[row], label[row, wanted])


def test_errors_are_those_of_the_evaluation(explored, runs):
    for view, folder in zip(explored.views, runs, strict=True):
        evaluation = read_evaluation(load_run(folder)[1]).evaluation
        assert explored.error_k == int(evaluation.headline.partition("@")[2])
        model, oracle = view.means[explored.split.queries].mean(0).tolist()
        assert model == pytest.approx(evaluation.main.model, rel=1e-9)
        assert oracle == pytest.approx(evaluation.main.oracle, rel=1e-6)
        asked = set(explored.split.queries.tolist())
        embedding, label = pairwise(view, explored.split)
        for row in range(24):
            if row not in asked:
                assert math.isnan(view.errors[row])
                continue
            places = [nearest(by, row, explored.gallery.tolist(), explored.error_k) for by in (embedding, label)]
            means = [label[row, place].astype(np.float64).mean() for place in places]
            assert float(view.errors[row]) == pytest.approx(means[0] - means[1], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("classes", [False, True])
def test_label_distance_at_k_is_an_expectation(classes):
    """All items at one place: each order is equally likely."""
    ids = torch.tensor([0, 0, 1, 1, 1, 2] * 4)
    labels = ClassLabels(ids) if classes else NumberLabels(ids.double())
    evaluation, ranking = evaluate(torch.zeros(24, 3), labels, clusters=False)
    distances = labels.pairwise().double()
    expected = distances.sum(1) / 23
    assert torch.allclose(ranking.label_distance_at_k[:, 0], expected, rtol=1e-12)
    curve = evaluation.curves["label_distance"].at(2)  # a tenth of 23
    assert ranking.label_distance_at_k.mean(0).tolist() == pytest.approx([curve.model, curve.oracle], rel=1e-9)
    assert ranking.label_distance_at_k[:, 1].tolist() == [0.0] * 24


def test_the_map_is_the_same_again(explored, runs):
    again = explore_runs([runs.first])
    assert np.array_equal(again.views[0].points, explored.views[0].points)
    assert torch.equal(again.views[0].by_embedding.rows, explored.views[0].by_embedding.rows)
    assert explored.split.view.renderer is not None
    assert set(explored.texts) == {""}
    assert explored.notes == []


def test_of_many_items_a_sample_is_shown(runs):
    first, second = (explore_runs([runs.first], items=8) for _ in range(2))
    assert first.split.names == second.split.names
    assert len(first.split) == 8
    assert len(first.split.queries) == 4  # at most half
    assert "8 of 24 items" in first.notes[0]
    assert "principal components" in first.notes[1]  # t-SNE needs ten
    assert bool(torch.isin(first.views[0].by_embedding.rows, first.gallery).all())


def test_images_that_could_not_be_read_are_left_out(copied):
    path = copied / "embeddings" / "test.safetensors"
    tensors, facts = load_tensors(path)
    save_tensors(path, {**tensors, "missing": torch.tensor([0, 9])}, names=facts["names"], config=facts["config"])
    found = explore_runs([copied])
    assert len(found.split) == 22
    assert facts["names"][0] not in found.split.names
    assert found.notes[0] == "2 images could not be read."


def test_runs_that_cannot_be_explored(runs, copied, tmp_path):
    with refuses("nowhere", "no such run folder"):
        explore_runs([tmp_path / "nowhere"])
    other = shutil.copytree(runs.first, tmp_path / "other")
    changed = pytest.MonkeyPatch()
    changed.setattr(DataRecord, "same_items", lambda record, other, split: False)
    with changed.context(), refuses(str(other), f"other items or labels than {copied}"):
        explore_runs([copied, other])
    changed.undo()
    (other / "embeddings" / "test.safetensors").unlink()
    with refuses("test.safetensors", "no embeddings", hint="contml evaluate"):
        explore_runs([other])
    (copied / "evaluation.json").unlink()
    with refuses("copied", "not evaluated yet", hint="contml evaluate"):
        explore_runs([copied])


def test_the_main_direction_orders_the_labels():
    values = np.random.default_rng(0).normal(size=(300, 1)) ** 3  # a few far labels
    plane = VectorLabels(np.hstack([values, 0 * values]))
    colour = main_direction(plane).values.numpy()
    assert colour.min() == 0
    assert colour.max() == 1
    places = np.argsort(np.argsort(values[:, 0])) / 299
    assert min(abs(colour - places).max(), abs(1 - colour - places).max()) < 1e-9  # either end may be 0
    equal = main_direction(MultiHotLabels(torch.ones(5, 3))).values
    assert equal.tolist() == [0.5] * 5


# -- an index ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path):
    embeddings = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    embeddings[7] = embeddings[3]
    made = Index.create(tmp_path / "photos.index", 4, {"run": str(tmp_path / "run")})
    metadata = []
    for row in range(30):
        Image.new("RGB", (30, 20), (8 * row, 0, 0)).save(tmp_path / f"{row}.png")
        metadata.append({"file": str(tmp_path / f"{row}.png"), "colour": f"<b>{row}"})
    made.add([f"{row}.png" for row in range(30)], embeddings, metadata)
    made.remove(["5.png"])
    return made


def test_an_index(index, tmp_path):
    found = explore_index(tmp_path / "photos.index")
    names = [f"{row}.png" for row in range(30) if row != 5]
    assert found.split.names == names
    assert found.metadata[0] == {"colour": "<b>0"}
    assert found.colours is None
    (view,) = found.views
    assert view.model == tmp_path / "run"
    assert view.by_label is None
    assert view.errors is None
    assert np.array_equal(view.embeddings, index.embeddings(names))
    x = view.embeddings.double().numpy()
    for row in range(29):
        squared = ((x - x[row]) ** 2).sum(1)
        wanted = sorted((g for g in range(29) if g != row), key=lambda g: (squared[g], g))[:10]
        assert view.by_embedding.rows[row].tolist() == wanted
        assert np.allclose(view.by_embedding.distances[row], np.sqrt(squared[wanted]), rtol=1e-12)
    assert len(explore_index(tmp_path / "photos.index", items=12).split) == 12


def test_an_index_that_cannot_be_explored(tmp_path):
    with refuses("nowhere"):
        explore_index(tmp_path / "nowhere")
    numbers = Index.create(tmp_path / "numbers.index", 2)
    with refuses("numbers.index", "0 images", "at least 2"):
        explore_index(tmp_path / "numbers.index")
    numbers.add(["a", "b"], np.eye(2))
    with refuses("numbers.index", "'a' has no image file", hint="contml index"):
        explore_index(tmp_path / "numbers.index")
