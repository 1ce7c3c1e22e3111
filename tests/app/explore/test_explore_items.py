"""What the page shows equals loops over single pairs, and its errors are those of the evaluation."""

import math
import shutil

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import load_run, read_evaluation
from contml.app.explore import explore_runs
from contml.data.identity import DataRecord


def pairwise(view, split):
    """Squared embedding distances in float64, and label distances, by loops."""
    x, n = view.embeddings.double().numpy(), len(split)
    return np.array([[((x[i] - x[j]) ** 2).sum() for j in range(n)] for i in range(n)]), split.labels.pairwise().numpy()


def nearest(distances, row, gallery, k):
    return sorted((g for g in gallery if g != row), key=lambda g: (distances[row, g], g))[:k]


def test_neighbours_equal_brute_force(explored):
    split = explored.split
    assert len(split) == 24
    gallery = explored.gallery.tolist()
    assert (gallery, len(explored.views)) == ([row for row in range(24) if row not in split.queries.tolist()], 2)
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


def test_of_many_items_a_sample_is_shown(runs):
    first, second = (explore_runs([runs.first], items=8) for _ in range(2))
    assert (first.split.names, len(first.split)) == (second.split.names, 8)
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
    other = shutil.copytree(runs.first, tmp_path / "other")
    changed = pytest.MonkeyPatch()
    changed.setattr(DataRecord, "same_items", lambda record, other, split: False)
    with changed.context(), refuses(str(other), f"other items or labels than {copied}"):
        explore_runs([copied, other])
    changed.undo()
    (other / "embeddings" / "test.safetensors").unlink()
    with refuses("test.safetensors", "no embeddings", hint="contml evaluate"):
        explore_runs([other])
