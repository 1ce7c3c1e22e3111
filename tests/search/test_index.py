"""The index of vectors: exact results with ties, changes, metadata."""

import json
import os
import threading

import faiss
import numpy as np
import pytest
import torch
from pyarrow import parquet
from support.refusals import refuses

from contml._support import progress
from contml.search import Index, index as index_module, segments


def vectors(count, dim=8, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


def names(count, start=0):
    return [f"i{number:05d}" for number in range(start, start + count)]


def made(tmp_path, x, **options):
    index = Index.create(tmp_path / "index", x.shape[1])
    index.add(names(len(x)), x, **options)
    return index


def brute_force(x, rows, queries, k):
    """The k nearest of some rows by subtraction in float64, ties by row."""
    squared = np.square(queries[:, None].astype(np.float64) - x[rows].astype(np.float64)).sum(2)
    order = np.lexsort((np.broadcast_to(rows, squared.shape), squared))[:, :k]
    return rows[order], np.sqrt(np.take_along_axis(squared, order, 1))


def check_exact(index, x, rows, queries, k):
    found = index.search(queries, k)
    expected, distances = brute_force(x, rows, queries, k)
    assert found.ids.tolist() == [[f"i{row:05d}" for row in each] for each in expected]
    assert np.allclose(found.distances, distances, rtol=1e-6)


@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("grid", [False, True], ids=["normal", "ties"])
def test_a_search_is_exact_with_ties_by_order(tmp_path, grid, offset):
    x = vectors(400)
    x = (np.round(x) if grid else x) + np.float32(offset)
    x[200:260] = x[:60]
    index = made(tmp_path, x)
    check_exact(Index.open(index.path), x, np.arange(400), x[::7], 12)
    index.remove(names(30, 5))
    rows = np.delete(np.arange(400), slice(5, 35))
    for _ in range(2):
        check_exact(index, x, rows, x[:20], 12)
        check_exact(Index.open(index.path), x, rows, x[:20], 500)
        index.compact()
    assert index.search(torch.ones(1, 8), 1).metadata is None
    assert index.search(np.zeros((0, 8)), 5).ids.shape == (0, 5)
    assert Index.create(tmp_path / "empty", 8).search(x[:2], 5).ids.shape == (2, 0)
    assert len(index) == 370
    assert index.ids == [f"i{row:05d}" for row in rows]
    assert np.array_equal(index.embeddings(["i00040", "i00003"]), x[[40, 3]])


@pytest.mark.parametrize(("dim", "offset"), [(4, 1e4), (64, 1e3)])
def test_a_search_is_exact_where_products_round(tmp_path, monkeypatch, dim, offset):
    """FAISS multiplies matrices, whatever its version does with so few queries."""
    monkeypatch.setattr(faiss.cvar, "distance_compute_blas_threshold", 1)
    x = np.float32(offset) + np.float32(1e-3) * np.round(vectors(300, dim) * 3)
    check_exact(made(tmp_path, x), x, np.arange(300), x[:40], 5)


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_an_item_that_is_added_after_a_removal_has_a_row_of_its_own(tmp_path, is_opened_again):
    x = vectors(7)
    index = made(tmp_path, x[:5], sources=[f"source {n}" for n in range(5)])
    index.remove(["i00001", "i00002"])
    index = Index.open(index.path) if is_opened_again else index
    index.add(["i00001", "new"], x[5:], [{"n": 5}, {"n": 6}], ["source 5", "source 6"])
    assert [*index.removed] == ["i00002"]
    for each in (index, Index.open(index.path)):
        assert np.array_equal(each.embeddings(["new", "i00001"]), x[[6, 5]])
        assert each.sources(["new", "i00001", "i00004"]) == ["source 6", "source 5", "source 4"]
        assert each.metadata(["new"]) == [{"n": 6}]


# -- changes -----------------------------------------------------------------------------------------------------------


def test_removed_items_are_known_and_can_be_added_again(tmp_path):
    x = vectors(10)
    index = made(tmp_path, x, sources=[f"source {n}" for n in range(10)])
    assert index.remove(["i00003", "i00004"]) == (2, 0)
    assert Index.open(index.path).remove(["i00003", "i00005"]) == (1, 1)
    index.compact()
    index = Index.open(index.path)
    assert index.remove(["i00004"]) == (0, 1)
    assert index.removed == {f"i0000{n}": f"source {n}" for n in (3, 4, 5)}
    with refuses("ids", got="'other' is not in the index"):
        index.remove(["i00001", "other"])
    assert "i00001" in index
    index.add(["i00003"], x[3:4])
    assert [*index.removed] == ["i00004", "i00005"]
    assert index.search(x[3:4], 1).ids.tolist() == [["i00003"]]
    assert index.remove(["i00003"]) == (1, 0)
    assert len(Index.open(index.path)) == 7
    assert index.sources(["i00009"]) == ["source 9"]
    index.add(["a/1", "a/2", "ab"], x[:3])
    assert (index.remove(["a"]), index.remove(["a"])) == ((2, 0), (0, 2))  # a folder
    assert "ab" in index


def test_metadata_has_a_type_per_key_which_is_widened_once(tmp_path, capsys):
    progress.note.cache_clear()
    index = Index.create(tmp_path / "index", 2)
    index.add(["a", "b"], np.zeros((2, 2)), [{"year": 2020, "id": "A", "fine": True}, None])
    assert index.columns == {"year": "int", "id": "text", "fine": "bool"}
    index.add(["c"], np.zeros((1, 2)), [{"year": 2020.5, "id": None, "n": np.int64(3)}])
    index.add(["d"], np.zeros((1, 2)), [{"year": 2021, "id": 7, "big": 2**60}])
    index.add(["e"], np.zeros((1, 2)), [{"fine": "yes"}])
    assert index.columns == {"year": "float", "id": "text", "fine": "text", "n": "int", "big": "text"}
    expected = [{"year": 2020.0, "id": "A", "fine": "True"}, {}, {"year": 2020.5, "n": 3}]
    expected += [{"year": 2021.0, "id": "7", "big": str(2**60)}, {"fine": "yes"}]
    for _ in range(2):
        index = Index.open(index.path)
        assert index.metadata([*"abcde"]) == expected
        assert index.search(np.zeros((1, 2)), 5).metadata == [expected]
        index.compact()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("metadata 'year' was int, and is float for all items from now on")


def test_other_tools_read_the_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "ROWS", 4)
    x = vectors(10, 3)
    index = made(tmp_path, x, metadata=[{"year": n} for n in range(10)], sources=[f"{n}" for n in range(10)])
    files = sorted(index.path.glob("segment-*.parquet"))
    assert [parquet.read_metadata(file).num_rows for file in files] == [4, 4, 2]
    table = parquet.read_table(files)
    assert table.column_names == ["id", "vector", "source", "year"]
    assert table["id"].to_pylist() == names(10)
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), x)
    assert table["year"].to_pylist() == [*range(10)]


def test_label_vectors_are_searched_beside_embeddings(tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "ROWS", 4)
    x, y = vectors(10, 3), vectors(10, 5, seed=1)
    index = Index.create(tmp_path / "i", 3, label_dim=5)
    index.add(names(10), x, label_vectors=y)
    for each in (index, Index.open(tmp_path / "i")):
        for queries, known, by in ((x, x, "embedding"), (y, y, "labels")):
            found = each.search(queries, 4, by=by)
            distances = np.linalg.norm(queries[:, None].astype(float) - known, axis=2)
            assert found.ids.tolist() == [[names(10)[n] for n in row.argsort(kind="stable")[:4]] for row in distances]
    index.remove(names(10)[:3])
    index.compact()
    found = Index.open(tmp_path / "i").search(y[5:6], 7, by="labels")
    assert found.ids[0, 0] == names(10)[5]
    assert np.array_equal(index.embeddings(names(10)[3:]), x[3:])
    with refuses("label_vectors", "None", "must be numbers [N, 5]"):
        index.add(["new"], x[:1])
    with refuses("label_vectors", "shape [1, 3]", "must be [N, 5]"):
        index.add(["new"], x[:1], label_vectors=x[:1])
    with refuses("ids", "1 for 2 label_vectors"):
        index.add(["new"], x[:1], label_vectors=y[:2])
    with refuses("by", "label", "must be embedding or labels"):
        index.search(x, 1, by="label")
    (tmp_path / "j").mkdir()
    plain = made(tmp_path / "j", x)
    with refuses(str(plain.path), "an index without label vectors", hint="labels of training items"):
        plain.search(x, 1, by="labels")
    with refuses("label_vectors", "given", "must be omitted"):
        plain.add(["new"], x[:1], label_vectors=y[:1])
    manifest = plain.path / "manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**values, "format": 2}))
    with refuses(str(plain.path), "format 2", "must be 3", hint="make it again"):
        Index.open(plain.path)
    manifest.write_text(json.dumps({**values, "label_dim": 5}))
    with refuses(str(plain.path), "damaged"):
        Index.open(plain.path).search(y, 1, by="labels")


def test_an_object_reads_the_index_as_it_was(tmp_path):
    x = vectors(20)
    index = made(tmp_path, x)
    before = Index.open(index.path)
    assert len(before) == 20
    index.remove(names(5))
    assert len(before) == 20
    assert before.search(x[:1], 1).ids.tolist() == [["i00000"]]
    unread = Index.open(index.path)
    index.remove(["i00007"])
    index.compact()  # the files that `unread` would read are gone
    assert unread.search(x[7:8], 20).ids.shape == (1, 14)
    assert before.search(x[:1], 1).ids.tolist() == [["i00000"]]


def test_threads_search_and_change(tmp_path):
    x = vectors(200)
    index, errors = made(tmp_path, x), []

    def search():
        try:
            for n in range(20):
                assert index.search(x[n : n + 1], 1).ids.tolist() == [[f"i{n:05d}"]]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    index.add(["new"], vectors(1, seed=5))
    index.remove(["i00100"])
    for thread in threads:
        thread.join()
    assert not errors


def test_what_a_killed_process_left_is_removed(tmp_path):
    index = made(tmp_path, vectors(5))
    (index.path / "segment-000002.parquet").write_bytes(b"half")
    (index.path / "removed-000009.parquet").write_bytes(b"")
    (index.path / "notes.txt").write_text("mine")
    index.add(["x"], vectors(1))
    found = {path.name for path in index.path.iterdir()} - {".lock"}
    assert found == {"manifest.json", "segment-000001.parquet", "segment-000002.parquet", "notes.txt"}
    assert Index.open(index.path).ids[-1] == "x"


def test_an_index_that_may_only_be_read_is_searched(tmp_path):
    index = made(tmp_path, vectors(5), metadata=[{"a": 1}] * 5)
    index.remove(["i00001"])
    (index.path / ".lock").unlink()
    for path in (*index.path.iterdir(), index.path):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        before = sorted(index.path.iterdir())
        assert Index.open(index.path).search(vectors(1), 9).ids.shape == (1, 4)
        assert sorted(index.path.iterdir()) == before
        if os.geteuid():
            with refuses(str(index.path)):
                index.add(["x"], vectors(1))
    finally:
        index.path.chmod(0o755)


@pytest.mark.parametrize(("ids", "x", "options", "subject", "got"), [
    (["a"], np.full((1, 8), 1e30), {}, "embeddings", "the numbers of row 0 have a norm above 1e+18"),
    (["a"], np.zeros((1, 7)), {}, "embeddings", "shape [1, 7]"),
    (["a"], np.zeros((2, 8)), {}, "ids", "1 for 2 embeddings"),
    (["a", "a"], np.zeros((2, 8)), {}, "ids", "'a' appears twice"),
    (["i00001"], np.zeros((1, 8)), {}, "ids", "'i00001' is in the index"),
    (["\ud800"], np.zeros((1, 8)), {}, "ids", "'\\ud800'"),
    (["a"], np.zeros((1, 8)), {"metadata": [{"x": [1]}]}, "metadata x", "[1]"),
    (["a"], np.zeros((1, 8)), {"metadata": [{1: "x"}]}, "metadata", "{1: 'x'}"),
    (["a"], np.zeros((1, 8)), {"metadata": []}, "metadata", "0 for 1 items"),
    (["a"], np.zeros((1, 8)), {"metadata": [{f"k{n}": 1 for n in range(300)}]}, "metadata", "300 keys"),
])  # fmt: skip
def test_bad_items_are_refused_and_nothing_is_added(tmp_path, ids, x, options, subject, got):
    index = made(tmp_path, vectors(3))
    before = {path.name: path.read_bytes() for path in index.path.iterdir()}
    with refuses(subject, got=got):
        index.add(ids, x, **options)
    assert {path.name: path.read_bytes() for path in index.path.iterdir()} == before


@pytest.mark.parametrize("k", [0, -1, 1.5, "3"])
def test_bad_arguments(tmp_path, k):
    index = made(tmp_path, vectors(3))
    with refuses("k"):
        index.search(vectors(1), k)
    with refuses("dim"):
        Index.create(tmp_path / "other", k)
    with refuses(str(index.path), got="exists already and is not empty"):
        Index.create(index.path, 8)


def test_columns_have_names_of_their_own():
    keys = ["id", "vector", "source", "row", "metadata.id", "metadata.metadata.id", "year", "file"]
    assert len({segments.column_name(key) for key in keys}) == len(keys)
    assert not {"id", "vector", "source", "row"} & {segments.column_name(key) for key in keys}
