"""`contml export` of an index or of embeddings: Parquet, and Qdrant in its local mode."""

from __future__ import annotations

import gc
import json
import socket
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from support.refusals import refuses

from contml.data.features import read_features, write_features
from contml.retrieval import Index, vector_export
from contml.retrieval.vector_export import opened, to_parquet, to_qdrant

qdrant_client = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")


def vectors(count, dim=6, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim), np.float32)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """An index of 300 items, of which one was removed and every third has metadata."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vector_export, "_READ", 100)
    monkeypatch.setattr(vector_export, "_SENT", 30)
    ids = [f"{row}/ü.jpg" for row in range(300)]
    with Index.create("photos.index", 6) as index:
        index.add(ids, vectors(300), [None if row % 3 else {"id": row, "of": ["a", None]} for row in range(300)])
        index.remove([ids[7]])
    return Path("photos.index")


def export(place, collection="photos", source="photos.index", progress=lambda _: None):
    with opened(Path(source)) as items:
        to_qdrant(items, str(place), collection, progress)


def test_qdrant_finds_the_same_ids(photos):
    counts = []
    export("qdrant", progress=counts.append)
    assert counts[-1] == 299
    queries = vectors(40, seed=1)
    with Index.open(photos) as index:
        found = index.search(queries, 10)
    client = qdrant_client.QdrantClient(path="qdrant")
    for row, query in enumerate(queries):
        points = client.query_points("photos", query=query.tolist(), limit=10, with_vectors=True).points
        assert [point.payload["id"] for point in points] == found.ids[row].tolist()
        assert [point.payload["metadata"] for point in points] == found.metadata[row]
        np.testing.assert_allclose([point.score for point in points], found.distances[row], rtol=1e-5)
    assert client.count("photos").count == 299
    client.close()


def test_the_same_call_continues_and_another_collection_is_refused(photos):
    def stop(done):
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export("qdrant", progress=stop)
    export("qdrant")
    export("qdrant")
    client = qdrant_client.QdrantClient(path="qdrant")
    assert client.count("photos").count == 299
    client.close()
    with Index.open(photos) as index:
        index.add(["new"], vectors(1))
    with refuses("collection photos", "exists already", hint="choose another --collection"):
        export("qdrant")
    with Index.create("short.index", 3) as index:
        index.add(["a"], vectors(1, 3))
    with refuses("collection photos", "exists already, with vectors of 6 numbers"):
        export("qdrant", source="short.index")
    export("qdrant", "short", "short.index")


def test_parquet_of_an_index(photos):
    with opened(photos) as items:
        to_parquet(items, Path("photos.parquet"))
        before = Path("photos.parquet").read_bytes()
        to_parquet(items, Path("photos.parquet"))  # it is complete
    assert Path("photos.parquet").read_bytes() == before
    names, values = read_features(Path("photos.parquet"))
    table = parquet.read_table("photos.parquet")
    with Index.open(photos) as index:
        assert names == index.ids
        np.testing.assert_array_equal(values, index.embeddings(index.ids))
        assert [json.loads(text) for text in table["metadata"].to_pylist()] == index.metadata(index.ids)
        index.remove([names[0]])
    with opened(photos) as items, refuses("photos.parquet", "exists already"):
        to_parquet(items, Path("photos.parquet"))


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_a_file_of_embeddings(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    file = Path("features").with_suffix(suffix)
    names = [f"{row}.jpg" for row in range(50)]
    write_features(file, names, None, vectors(50))
    export("qdrant", "features", file)
    client = qdrant_client.QdrantClient(path="qdrant")
    points = client.query_points("features", query=vectors(50)[3].tolist(), limit=1).points
    assert points[0].payload == {"id": "3.jpg", "metadata": {}}
    client.close()
    with opened(file) as items:
        to_parquet(items, Path("copy.parquet"))
    assert read_features(Path("copy.parquet")).names == names
    write_features(file.with_stem("twice"), ["a", "b", "a"], None, vectors(3))
    with refuses(f"twice{suffix}", "vectors 0 and 2 have the same name, a"), opened(file.with_stem("twice")):
        pass
    np.save("no_names.npy", vectors(3))
    with refuses("no_names.npy", "has no names"), opened(Path("no_names.npy")):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_places_that_qdrant_does_not_accept(photos, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        place = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with refuses(place, "Qdrant does not accept it ([Errno 111] Connection refused)", hint="that the server runs"):
            export(place)
    with refuses("photos.index", "exists already and is not empty"):
        export("photos.index")
    client = qdrant_client.QdrantClient(path="busy")
    with refuses("busy", "already accessed by another instance", hint="end the process that uses it"):
        export("busy")
    client.close()
    gc.collect()  # Qdrant leaves the lock of a busy folder open
    monkeypatch.setattr(vector_export, "find_spec", lambda name: None)
    with refuses("--format qdrant", "qdrant-client is not installed", hint='pip install "contml[qdrant]"'):
        export("qdrant")


def test_commands(photos, contml):
    vectors_of = "299 vectors of 6 numbers, with ids and metadata\n"
    assert contml("export", "photos.index", "qdrant", "--format", "qdrant")[1] == (
        f"qdrant: collection photos, {vectors_of}"
    )
    assert contml("export", "photos.index", "photos.parquet")[1] == f"photos.parquet: {vectors_of}"
    Index.create("empty.index", 2).close()
    for arguments, message in (
        (["photos.index", "x"], "x: not a Parquet file; must end in .parquet; or write to Qdrant: --format qdrant"),
        (["photos.index", "x", "--format", "onnx"], "--format: onnx of photos.index; must be parquet or qdrant"),
        (["photos.index", "x.parquet", "--collection", "a"], "--collection: used without --format qdrant; omit it"),
        (["photos.index", "x.parquet", "--no-labels"], "--no-labels: used with photos.index; omit it"),
        (["runs/a", "x.parquet", "--format", "parquet"], "--format: parquet of runs/a; must be of an index"),
        (["runs/a", "x", "--collection", "a"], "--collection: used without --format qdrant; omit it"),
        (["missing.parquet", "x.parquet"], "missing.parquet: no such file"),
        (["photos.parquet", "photos.parquet"], "photos.parquet: exists already"),
        (["empty.index", "x.parquet"], "empty.index: has no items"),
    ):
        code, _, errors = contml("export", *arguments)
        assert (code, errors.startswith(f"contml: {message}"), errors.count("\n")) == (2, True, 1), errors
