"""Damaged files of an index are one line that names it, or have the results of the whole one; never a wrong result."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib

import numpy as np
import pytest
from support.damage import mutations
from support.refusals import refuses

from contml import InputError
from contml.retrieval import Index, index as index_module, index_structure

COUNT, DIM = 330, 4
VECTORS = np.random.default_rng(0).standard_normal((COUNT, DIM)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_structures(monkeypatch):
    monkeypatch.setattr(index_structure, "FEWEST", 300)
    monkeypatch.setattr(index_module, "FEWEST", 300)


@pytest.fixture
def folder(tmp_path):
    with Index.create(tmp_path / "x", DIM, "hnsw", run="abc") as index:
        for start in range(0, COUNT, 110):
            rows = range(start, start + 110)
            index.add([f"item {row}" for row in rows], VECTORS[start : start + 110], [{"row": row} for row in rows])
        index.build()
        index.remove(["item 7", "item 200"])
    return tmp_path / "x"


def everything(folder):
    """All that a user can ask of an index."""
    with Index.open(folder) as index:
        found = index.search(VECTORS[:7], COUNT)
        return (
            (index.ids, sorted(index.removed_ids), index.model, index.kind, index.dim),
            (found.ids.tolist(), found.distances.tolist(), found.metadata, index.search(VECTORS[:30], 3).ids.tolist()),
        )


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("index.sqlite", 150), ("vectors-*.f32", 60), ("structure-*.safetensors", 60)],
)
def test_damaged_files(folder, pattern, count):
    check_damage(folder, pattern, count, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize(
    ("pattern", "count"), [("index.sqlite", 1000), ("vectors-*.f32", 200), ("structure-*.safetensors", 300)]
)
def test_many_damaged_files(folder, pattern, count, seed):
    check_damage(folder, pattern, count, seed)


def check_damage(folder, pattern, count, seed):
    (path,) = folder.glob(pattern)
    whole, expected = path.read_bytes(), everything(folder)
    refused = 0
    for damaged in mutations(whole, count, seed):
        path.write_bytes(damaged)
        try:
            assert everything(folder) == expected
        except InputError as error:
            assert str(folder) in error.subject  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
        path.write_bytes(whole)
    assert refused > count / 4
    assert everything(folder) == expected


@pytest.mark.parametrize("kind", ["ids", "positions", "metadata", "vectors", "removed", "state", "missing", "count"])
def test_a_change_that_sqlite_does_not_notice(folder, kind):
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.execute(
        {
            "ids": "UPDATE items SET id = 'item 999' WHERE position = 5",
            "positions": "UPDATE items SET position = 7 WHERE position = 5",
            "metadata": "UPDATE items SET metadata = '{\"row\": 6}' WHERE position = 5",
            "vectors": "UPDATE chunks SET crc = crc + 1 WHERE start = 110",
            "removed": "UPDATE removed SET id = 'item 8' WHERE number = 1",
            "state": "UPDATE state SET content = replace(content, 'abc', 'abd')",
            "missing": "DELETE FROM items WHERE position = 5",
            "count": "DELETE FROM chunks WHERE start = 220",
        }[kind]
    )
    connection.commit()
    connection.close()
    with refuses(str(folder), "damaged"):
        everything(folder)


def test_a_change_while_it_is_open(folder):
    with Index.open(folder) as index:
        index.search(VECTORS[:1], 3)
        connection = sqlite3.connect(folder / "index.sqlite")
        connection.execute("UPDATE items SET id = 'item 999' WHERE position = 5")
        connection.execute("UPDATE state SET format = format")
        connection.commit()
        connection.close()
        with refuses(str(folder), "damaged"):
            index.search(VECTORS[5:6], 3)


@pytest.mark.parametrize("missing", ["vectors", "items", "chunks", "removed", "state"])
def test_a_part_is_missing(folder, missing):
    if missing == "vectors":
        next(folder.glob("vectors-*")).unlink()
    else:
        connection = sqlite3.connect(folder / "index.sqlite")
        connection.execute(f"DROP TABLE {missing}")
        connection.close()
    with refuses(str(folder)):
        Index.open(folder)


def test_files_of_another_index(folder, tmp_path):
    with Index.create(tmp_path / "y", DIM, "hnsw") as other:
        other.add([f"item {row}" for row in range(COUNT)], VECTORS[::-1])
        other.build()
    for pattern in ("vectors-*", "structure-*"):
        shutil.copytree(folder, tmp_path / pattern[:6])
        (source,), (target,) = (tmp_path / "y").glob(pattern), (tmp_path / pattern[:6]).glob(pattern)
        shutil.copy(source, target)
        with refuses(str(tmp_path / pattern[:6])):
            everything(tmp_path / pattern[:6])


def test_an_index_of_a_later_format(folder):
    connection = sqlite3.connect(folder / "index.sqlite")
    (content,) = connection.execute("SELECT content FROM state").fetchone()
    connection.execute("UPDATE state SET format = 2, crc = ?", (zlib.crc32(f"2 {content}".encode()),))
    connection.commit()
    connection.close()
    with refuses(str(folder), "format 2", "must be 1"):
        Index.open(folder)


def test_a_journal_of_a_killed_writer_is_rolled_back(folder):
    expected = everything(folder)
    connection = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")  # so that it writes to the file before the end
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM items")
    connection.execute("CREATE TABLE more (a)")
    connection.execute("INSERT INTO more SELECT zeroblob(100000)")
    copied = folder.parent / "killed"
    shutil.copytree(folder, copied)
    connection.close()
    assert (copied / "index.sqlite-journal").stat().st_size
    assert (copied / "index.sqlite").read_bytes() != (folder / "index.sqlite").read_bytes()
    assert everything(copied) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", "null", '{"structure": null}', '{"structure": {}, "dim": 4}', '{"structure": 3}']
)
def test_a_state_of_another_form(folder, text):
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.execute("UPDATE state SET content = ?, crc = ?", (text, zlib.crc32(f"1 {text}".encode())))
    connection.commit()
    connection.close()
    with refuses(str(folder), "damaged"):
        Index.open(folder)


#: Wrong values for each argument of `add`.
IDS = [
    None,
    3,
    [None],
    [3],
    [b"a"],
    ["a", "a"],
    [""],
    ["\ud800"],
    ["item 1"],
    ["a", "b", "c"],
    {"a": 1, "b": 2, "c": 3},
    [["a"]],
]
EMBEDDINGS = [
    *(None, "a", b"a", 3, [], [[]], [[1]], [["a"] * 4], np.zeros((1, 3)), np.zeros((1, 5)), np.zeros((2, 4))),
    *(np.zeros(4), np.zeros((1, 4, 1)), np.zeros((1, 4), complex), np.zeros((1, 4), bool), np.zeros((1, 4), object)),
    *(np.full((1, 4), bad) for bad in (np.nan, np.inf, -np.inf, 1e19, -1e30, 1e300)),
    *(np.array([["1", "2", "3", "4"]]), np.zeros((1, 4), "M8[s]"), {"a": 1}, object(), [[None] * 4], [[{}] * 4]),
]
METADATA = [3, "a", [3], ["a"], [[1]], [{1: 2}], [{"a": {1}}], [{"a": np.nan}], [{"a": b"b"}], [{}, {}], [], object()]


def test_each_wrong_argument_with_each_other(folder):
    good = [["new"]], [np.ones((1, 4))], [None, [None], [{"a": 1}]]
    expected, tried = everything(folder), 0
    with Index.open(folder) as index:
        for ids in [*IDS, *good[0]]:
            for embeddings in [*EMBEDDINGS, *good[1]]:
                for metadata in [*METADATA, *good[2]]:
                    if ids in good[0] and any(embeddings is each for each in good[1]) and metadata in good[2]:
                        continue
                    tried += 1
                    with pytest.raises(InputError) as caught:
                        index.add(ids, embeddings, metadata)
                    assert "\n" not in str(caught.value)
    assert tried > 1000
    assert everything(folder) == expected


@pytest.mark.parametrize("bad", [None, 3, "a", [3], [None], [[]], {"a"}, ["none"], ["item 7"], ["item 1", "item 1"]])
def test_wrong_ids_to_remove(folder, bad):
    with Index.open(folder) as index:
        with refuses("ids"):
            index.remove(bad)
        assert len(index) == COUNT - 2


def test_the_state_says_what_the_test_thinks(folder):
    """The tests above change tables by name."""
    connection = sqlite3.connect(folder / "index.sqlite")
    (content,) = connection.execute("SELECT content FROM state").fetchone()
    state = json.loads(content)
    assert (state["count"], state["live"], state["removed"], state["structure"]["count"]) == (330, 328, 2, 330)
    assert connection.execute("SELECT start, count FROM chunks").fetchall() == [(0, 110), (110, 110), (220, 110)]
