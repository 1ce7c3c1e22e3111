"""What the page searches by label with: when it is there, and why it is not."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from support.explored import numbers as drawn_numbers, poses, searchable
from support.label_spaces import SPACES

from contml._support.tensors import load_tensors, save_tensors
from contml.app.explore import explore_runs, write_page
from contml.app.explore.label_search import can_search, training_items
from contml.contracts import Measure
from contml.labels import DateLabels, NumberLabels, PoseLabels
from contml.search import load


def labels_of(folder):
    text = (folder / "labels.js").read_text(encoding="ascii")
    assert text.startswith("const LABELS = ")
    return json.loads(text.removeprefix("const LABELS = ").rstrip().rstrip(";"))


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def test_poses_single_numbers_and_dates_are_searched_by(tmp_path):
    found = {name for name, make in SPACES.items() if can_search(make(tmp_path))}
    assert found == {"poses", "poses, normalized", "numbers", "dates", "dates, years"}


def test_the_file_has_training_items_and_the_labels_of_the_page(explored, runs, tmp_path):
    write_page(tmp_path / "page", explored)
    data = labels_of(tmp_path / "page")
    labels = explored.split.labels
    assert np.allclose(numbers(data["items"]["values"], "<f4").reshape(24, 14, 2), labels.joints, rtol=1e-6)
    assert data["items"]["visible"] is None
    assert data["gallery"] == explored.gallery.tolist()
    assert [tuple(limb) for limb in data["skeleton"]] == list(labels.skeleton)
    assert data["joints"] == list(labels.part_names)
    for folder, view, written in zip(runs, explored.views, data["views"], strict=True):
        labelled = load(folder).labelled
        vectors = labelled.posterior.label_vectors(view.embeddings)
        assert np.array_equal(numbers(written["items"], "<f4").reshape(vectors.shape), vectors)
        assert np.array_equal(numbers(written["offsets"], "<f8"), labelled.coordinates.offsets)
        shape = labelled.coordinates.projection.shape
        assert np.array_equal(numbers(written["projection"], "<f8").reshape(shape), labelled.coordinates.projection)
        assert np.allclose(numbers(written["values"], "<f4").reshape(40, 14, 2), labelled.labels.joints, rtol=1e-6)
    write_page(tmp_path / "page", explored)  # the same page


def in_unit(measure):
    labels = NumberLabels([1.0, 2, 3])
    labels.measure = measure
    return labels


@pytest.mark.parametrize(("labels", "printed"), [
    (NumberLabels([1.0, 2, 3], unit="years"), {"factor": 1.0, "ratio": False, "after": " years"}),
    (in_unit(Measure("", 250.0)), {"factor": 250.0, "ratio": False, "after": ""}),
    (DateLabels(["2020-01-01", "2021-01-01", "2022-01-01"], scale=7), {"factor": 7.0, "ratio": False}),
])  # fmt: skip
def test_numbers_are_printed_in_their_unit(labels, printed, tmp_path):
    write_page(tmp_path / "page", searchable(labels, labels, k=1))
    data = labels_of(tmp_path / "page")
    assert {name: data["printed"][name] for name in printed} == printed
    assert numbers(data["items"]["values"], "<f8").tolist() == labels.values[:, 0].tolist()
    assert (data["low"], data["high"]) == (float(labels.values.min()), float(labels.values.max()))


def test_why_a_page_does_not_search_is_said(explored, copied):
    labels, embeddings = explored.split.labels, [view.embeddings for view in explored.views[:1]]
    (labelled, _) = explored.labelled
    assert training_items([lambda: labelled], labels, embeddings) == ([labelled], [])
    assert training_items([lambda: labelled], SPACES["tags"](None), embeddings) == ([], [])
    found, (note,) = training_items([lambda: labelled], labels, embeddings, limit=10_000)
    assert (found, note) == ([], "No search by pose: its data have 0 MB, more than 0 MB.")
    found, (note,) = training_items([lambda: labelled], PoseLabels(torch.rand(24, 9, 2)), embeddings)
    assert (found, note.startswith("No search by pose: ")) == ([], True)
    # a run from before there were labels, and a damaged file
    (copied / "labels.safetensors").rename(copied / "other")
    shown = explore_runs([copied])
    assert shown.labelled == []
    assert "'contml evaluate' adds them" in shown.notes[-1]
    (copied / "labels.safetensors").write_bytes((copied / "other").read_bytes()[:-1])
    assert "labels.safetensors: damaged" in explore_runs([copied]).notes[-1]


def test_a_sample_of_training_items_is_said(explored, copied):
    path = copied / "labels.safetensors"
    tensors, values = load_tensors(path)
    values.pop("crc32", None)
    save_tensors(path, tensors, record={**values["record"], "total": 50})
    assert "40 of 50 training items, drawn at random (seed 0)" in explore_runs([copied]).notes[-1]


PROGRAM = """
const atob = (text) => Buffer.from(text, "base64").toString("latin1");
%s
const DATA = {errorK: 2}, N = %d, VIEWS = [{byEmbedding: {rows: [[1, 2, 3, 4]]}}];
%s
startLabels();
const found = %s.map(([values, visible]) => {
  const asked = {values: Float64Array.from(values), visible: Uint8Array.from(visible)};
  return {place: [...placeOf(LABELS.views[0], asked).target], ...answersTo(asked)[0]};
});
console.log(JSON.stringify(found));
"""


def dates(count, seed):
    days = np.random.default_rng(seed).choice(4000, count, replace=False)
    return DateLabels(np.datetime64("2015-01-01") + days, scale=365.25)


LABELS = {
    "poses": poses,
    "poses, some joints hidden": lambda count, seed: poses(count, seed, hidden=True),
    "poses, normalized": lambda count, seed: poses(count, seed, hidden=True, normalize=True),
    "poses, in space": lambda count, seed: poses(count, seed, axes=3),
    "numbers": drawn_numbers,
    "numbers, with a scale": lambda count, seed: drawn_numbers(count, seed, Measure("USD", 12345.0)),
    "numbers with ties": lambda count, seed: NumberLabels(drawn_numbers(count, seed).values[:, 0].round()),
    "dates": dates,
}


def nearest(distances, gallery):
    """The four nearest items of a gallery, and their distances."""
    best = distances.argsort(stable=True)[:4]
    return gallery[best].tolist(), distances[best]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("name", LABELS)
def test_the_page_computes_what_python_does(name, tmp_path):
    """The functions of the page without a browser; `test_label_search_browser.py` has the page itself."""
    train, items, others = (LABELS[name](count, seed) for count, seed in ((40, 0), (21, 1), (6, 2)))
    explored = searchable(train, items)
    page = write_page(tmp_path / "page", explored).parent
    text = (Path(__file__).parents[3] / "contml/app/explore/page.html").read_text(encoding="utf-8")
    functions = text[text.index("const FRAME = 240;") : text.index("function searchWithLabel(")]
    start = text[text.index("function startLabels() {") : text.index('  $("own-label").hidden')] + "}"
    data = (page / "labels.js").read_text(encoding="ascii")
    (labelled,), (view,), gallery = explored.labelled, explored.views, explored.gallery
    asked = [(values.tolist(), [1]) for values in getattr(others, "values", ())]
    if isinstance(others, PoseLabels):
        asked = [*zip(others.joints.flatten(1).tolist(), others.visible.int().tolist(), strict=True)]
    (tmp_path / "page.js").write_text(PROGRAM % (data, len(items), functions + start, json.dumps(asked)), "utf-8")
    done = subprocess.run(["node", tmp_path / "page.js"], capture_output=True, text=True, check=True)
    for row, found in enumerate(json.loads(done.stdout)):
        wanted = labelled.query(others.plain(row)).vector
        assert np.allclose(found["place"], wanted[:-1], atol=1e-4)
        gaps = labelled.posterior.label_vectors(view.embeddings[gallery]) - wanted
        rows, distances = nearest(gaps.double().norm(dim=1), gallery)
        assert found["near"]["rows"] == rows
        assert np.allclose(found["near"]["distances"], distances, rtol=1e-4, atol=1e-6)
        joined = items.joined(labelled.labels.item(others.plain(row)))
        rows, distances = nearest(joined.pairwise([len(items)], gallery.tolist())[0], gallery)
        assert found["best"]["rows"] == rows
        assert np.allclose(found["best"]["labels"], [items.measure.of(each) for each in distances.tolist()], rtol=1e-5)
        assert np.allclose(found["means"][1], items.measure.of(float(distances[:2].mean())), rtol=1e-5)
