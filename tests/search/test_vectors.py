"""Vectors of other models: files of any form, an index without a model, and a model that was trained on vectors."""

import json

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file
from support.refusals import refuses

from contml.app.experiment import load as load_experiment, train
from contml.data.features import read_features
from contml.search import Index, load

COUNT, DIM = 40, 6


def drawn(rows=COUNT, dim=DIM):
    return np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)


NAMES = [f"item {row}" for row in range(COUNT)]
WRITERS = {
    "v.npy": lambda path, x: np.save(path, x),
    "v.npz": lambda path, x: np.savez(path, ids=np.array(NAMES), embeddings=x),
    "numbers.npz": lambda path, x: np.savez(path, id=np.arange(COUNT), x=x),
    "only.npz": lambda path, x: np.savez(path, x=x),
    "v.parquet": lambda path, x: parquet.write_table(
        pyarrow.table({"path": NAMES, "price": np.arange(COUNT), "vector": list(x)}), path
    ),
    "only.parquet": lambda path, x: parquet.write_table(pyarrow.table({"x": list(x)}), path),
    "v.safetensors": lambda path, x: save_file({"x": torch.from_numpy(x)}, path),
    "half.safetensors": lambda path, x: save_file({"x": torch.from_numpy(x).bfloat16()}, path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_vectors_are_read(tmp_path, name):
    x = drawn()
    WRITERS[name](tmp_path / name, x)
    found = read_features(tmp_path / name)
    np.testing.assert_allclose(found.values, x, rtol=1e-2 if "half" in name else 0)
    expected = {"v.npz": NAMES, "v.parquet": NAMES, "numbers.npz": [*map(str, range(COUNT))]}.get(name)
    assert (None if found.names is None else [*found.names]) == expected


@pytest.mark.parametrize(("arrays", "words"), [
    ({"a": drawn(), "b": drawn()}, ("has a, b", "call its vectors features")),
    ({"names": np.array(NAMES)}, ("has no vectors", "features")),
    ({"x": drawn(), "p": np.array(NAMES), "q": np.array(NAMES)}, ("has p, q", "call its names names")),
    ({"x": drawn(), "ids": np.array(NAMES[:3])}, ("3 names for 40 vectors",)),
    ({"x": drawn() * np.nan}, ("not finite",)),
])  # fmt: skip
def test_files_that_do_not_say_which_are_the_vectors_are_refused(tmp_path, arrays, words):
    np.savez(tmp_path / "v.npz", **arrays)
    with refuses("v.npz", *words):
        read_features(tmp_path / "v.npz")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WRITERS["v.npz"]("v.npz", drawn())
    rows = [f"{name},{row},{'ab'[row % 2]}" for row, name in enumerate(NAMES)]
    (tmp_path / "t.csv").write_text("\n".join(["image,price,kind", *rows]))
    return tmp_path


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_an_index_of_vectors_finds_the_nearest_by_its_metric(folder, contml, metric):
    contml("index", "--vectors", "v.npz", "--out", "i", "--metric", metric, "--metadata", "t.csv")
    x = drawn().astype(np.float64)
    q = np.random.default_rng(1).normal(size=(2, DIM)).astype(np.float32)
    np.save("q.npy", q)
    found = json.loads(contml("search", "i", "item 3", "q.npy", "-k", 5, "--where", "kind = 'a'", "--json")[1])
    queries = np.concatenate((x[[3]], q))
    if metric == "cosine":
        x, queries = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, queries))
    distances = np.linalg.norm(queries[:, None] - x, axis=2)[:, ::2]
    assert [each["query"] for each in found] == ["item 3", "0", "1"]
    for each, row in zip(found, distances, strict=True):
        order = np.argsort(row)[:5]
        assert [hit["id"] for hit in each["found"]] == [NAMES[2 * place] for place in order]
        np.testing.assert_allclose([hit["distance"] for hit in each["found"]], row[order], atol=1e-6)
        assert each["by"] == metric
    status, _, err = contml("search", "i", "item 3", "--where", "price > 1e6")
    assert (status, err) == (0, "note: nothing in the index meets --where\n")


def test_vectors_are_added_once_and_changes_are_refused(folder, contml):
    def add(*more):
        return contml("index", "--vectors", "v.npz", "--out", "i", *more)

    assert f"{COUNT} vectors added" in add()[1]
    assert "0 vectors added" in add()[1]
    contml("index", "--out", "i", "--remove", "item 3")
    assert "stay out" in add()[1]
    assert len(Index.open("i")) == COUNT - 1
    changed = drawn()
    changed[[3, 5]] += 1
    WRITERS["v.npz"]("v.npz", changed)
    assert "--remove 'item 5'" in add()[2]
    contml("index", "--out", "i", "--remove", "item 5")
    assert "2 vectors added" in add()[1]
    np.testing.assert_allclose(
        Index.open("i").embeddings(["item 3"])[0], changed[3] / np.linalg.norm(changed[3]), atol=1e-6
    )


def test_a_model_of_vectors_takes_files_of_them(folder, contml):
    """`index`, `search`, `predict` and `embed` give what the model gives in Python."""
    options = ["task.data=t.csv", "task.image=image", "task.labels.price=number", "images.features=v.npz"]
    options += ["model.backbone=features", "model.weights=none", "training.epochs=0", "sampler.batch_size=8"]
    options += ["sampler.anchors_per_batch=1", "sampler.neighbours=2"]
    run = train(load_experiment("table/default", options), folder / "runs").folder
    model, x = load(run), drawn()
    contml("index", run, "v.npz", "--out", "i", "--metadata", "t.csv")
    np.testing.assert_allclose(Index.open("i").embeddings(NAMES), model.embed(x), atol=1e-6)
    found = json.loads(contml("search", "i", "v.npz", "-k", 1, "--json")[1])
    assert [each["found"][0]["id"] for each in found] == NAMES
    predicted = json.loads(contml("predict", run, "v.npz", "--json")[1])["predictions"]
    values = [answers["price"].value for answers in model.predict(x)]
    assert [each["answers"][0]["value"] for each in predicted] == pytest.approx(values)
    contml("embed", run, "v.npz", "--out", "e.npz")
    np.testing.assert_allclose(read_features(folder / "e.npz").values, model.embed(x), atol=1e-6)
    WRITERS["v.npz"]("v.npz", drawn() + 1)
    assert "of another vectors" in contml("embed", run, "v.npz", "--out", "e.npz")[2]
    np.save("short.npy", drawn(dim=3))
    (folder / "a.png").write_bytes(b"")
    for given, words in (("short.npy", "must be 6, as in training"), ("a.png", "give a file of vectors")):
        assert words in contml("index", run, given, "--out", "new")[2]
        assert words in contml("predict", run, given)[2]
    assert not (folder / "new").exists()
