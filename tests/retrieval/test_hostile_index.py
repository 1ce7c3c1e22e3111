"""Index folders made by somebody else: checksums are right, and what they protect is not. Each is one line."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file
from support.refusals import refuses

from contml.cli import main
from contml.retrieval import Index, index as index_module, index_structure

COUNT, DIM = 420, 6
VECTORS = np.random.default_rng(0).standard_normal((COUNT, DIM)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_structures(monkeypatch):
    monkeypatch.setattr(index_structure, "FEWEST", 300)
    monkeypatch.setattr(index_module, "FEWEST", 300)


def make(folder, kind):
    with Index.create(folder, DIM, kind) as index:
        index.add([f"item {row}" for row in range(COUNT)], VECTORS, [{"row": row} for row in range(COUNT)])
        index.build()
    return folder


def state_of(folder):
    with sqlite3.connect(folder / "index.sqlite") as connection:
        return json.loads(connection.execute("SELECT content FROM state").fetchone()[0])


def put_state(folder, state):
    content = state if isinstance(state, str) else json.dumps(state)
    connection = sqlite3.connect(folder / "index.sqlite")
    crc = zlib.crc32(f"1 {content}".encode())
    connection.execute("UPDATE state SET content = ?, crc = ?", (content, crc))
    connection.commit()
    connection.close()


def replace_structure(folder, content, **changes):
    """Another file of the structure, named in the state with its size and checksum."""
    state = state_of(folder)
    (path,) = folder.glob("structure-*")
    path.write_bytes(content)
    state["structure"] |= {"size": len(content), "crc": zlib.crc32(content), **changes}
    put_state(folder, state)


def changed(folder, change):
    """The structure with changed arrays."""
    (path,) = folder.glob("structure-*")
    arrays = load_file(path)
    change(arrays)
    other = folder.parent / "other.safetensors"
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, other)
    replace_structure(folder, other.read_bytes())


def put(name, index, value):
    def change(arrays):
        arrays[name][index] = value

    return change


def swap(name, value):
    def change(arrays):
        arrays[name] = value(arrays[name])

    return change


def a_row_of_level_0_on_level_1(arrays):
    levels = arrays["levels"]
    row = int(np.flatnonzero(levels > 1)[0])
    starts = np.concatenate(([0], np.cumsum(32 + 16 * (levels.astype(int) - 1))))
    arrays["neighbors"][starts[row] + 32] = np.flatnonzero(levels == 1)[0]


GRAPHS = {
    "a neighbour beyond the rows": put("neighbors", 3, COUNT),
    "a neighbour far beyond the rows": put("neighbors", 3, 2**31 - 1),
    "a neighbour below -1": put("neighbors", 3, -2),
    "more levels than places": put("levels", 0, 3),
    "levels beyond the table": put("levels", 0, 2**31 - 1),
    "no level": put("levels", 0, 0),
    "an entry beyond the rows": put("entry", 0, COUNT),
    "an entry that is not on top": lambda arrays: arrays["entry"].fill(np.flatnonzero(arrays["levels"] == 1)[0]),
    "a neighbour that is not on the level": a_row_of_level_0_on_level_1,
    "neighbours cut short": swap("neighbors", lambda array: array[:-1]),
    "more rows": swap("levels", lambda array: np.append(array, np.int32(1))),
    "another type": swap("neighbors", lambda array: array.astype(np.int64)),
    "another shape": swap("levels", lambda array: array[:, None]),
    "a missing array": lambda arrays: arrays.pop("entry"),
    "another array": lambda arrays: arrays.update(code=np.zeros(3)),
}
CODES = {
    "a row beyond the rows": put("rows", 0, COUNT),
    "a row below 0": put("rows", 0, -1),
    "a row twice": lambda arrays: arrays["rows"].__setitem__(0, arrays["rows"][1]),
    "a list of a negative size": lambda arrays: arrays["sizes"].__setitem__(
        slice(0, 2), arrays["sizes"][:2] + np.array([-500, 500])
    ),
    "sizes that are too small": lambda arrays: arrays["sizes"].__setitem__(0, 0),
    "sizes that are too large": put("sizes", 0, 2**62),
    "centroids of another dimension": swap("centroids", lambda array: array[:, :-1]),
    "fewer centroids": swap("centroids", lambda array: array[:-1]),
    "a centroid that is not finite": put("centroids", (0, 0), np.nan),
    "codebooks of fewer values": swap("codebooks", lambda array: array[:, :100]),
    "codes of fewer bytes": swap("codes", lambda array: array[:, :-1]),
    "codes of another type": swap("codes", lambda array: array.astype(np.float32)),
}


INT8 = {
    "a range that is not finite": put("ranges", (0, 0), np.inf),
    "a width below 0": put("ranges", (1, 0), -1),
    "a range of fewer numbers": swap("ranges", lambda array: array[:, :-1]),
    "fewer int8 codes": swap("codes", lambda array: array[:-1]),
    "int8 codes of another type": swap("codes", lambda array: array.astype(np.int8)),
}
BINARY = {
    "a mean that is not finite": put("mean", 0, np.nan),
    "a mean of fewer numbers": swap("mean", lambda array: array[:-1]),
    "binary codes of more bytes": swap("codes", lambda array: np.pad(array, ((0, 0), (0, 1)))),
    "no mean": lambda arrays: arrays.pop("mean"),
}
CHANGES = {"hnsw": GRAPHS, "ivf_pq": CODES, "int8": INT8, "binary": BINARY}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in CHANGES.items() for name in names])
def test_structures_that_refer_to_what_is_not_there(tmp_path, kind, name):
    folder = make(tmp_path / "x", kind)
    changed(folder, CHANGES[kind][name])
    with Index.open(folder) as index:
        with refuses("structure-", got="not a structure of these 420 items", hint="build the index again"):
            index.search(VECTORS[:3], 5)
        with refuses("structure-", got="not a structure"), index.lock():
            index.add(["more"], VECTORS[:1])
            index.build()


@pytest.mark.parametrize("kind", CHANGES)
def test_the_same_arrays_are_the_same_structure(tmp_path, kind):
    folder = make(tmp_path / "x", kind)
    with Index.open(folder) as index:
        expected = index.search(VECTORS[:9], 7)
    changed(folder, lambda arrays: None)
    with Index.open(folder) as index:
        found = index.search(VECTORS[:9], 7)
        assert found.ids.tolist() == expected.ids.tolist()
        index.add(["more"], VECTORS[:1] + 1e-3)
        index.build()
        assert index.unbuilt == 0
        assert "more" in index.search(VECTORS[:1], 2).ids


def test_a_file_of_faiss_is_never_read(tmp_path, monkeypatch):
    import faiss

    def refuse(*_):
        raise AssertionError("read by FAISS")

    for kind in CHANGES:
        folder = make(tmp_path / kind, kind)
        vectors = faiss.IndexFlatL2(DIM)
        vectors.add(VECTORS)
        faiss.write_index(vectors, str(tmp_path / "flat.faiss"))
        replace_structure(folder, (tmp_path / "flat.faiss").read_bytes())
        with monkeypatch.context() as patch, Index.open(folder) as index:
            patch.setattr(faiss, "read_index", refuse)
            with refuses("structure-", got="damaged"):
                index.search(VECTORS[:3], 5)
    assert "read_index" not in Path(index_structure.__file__).read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "ivf_pq"},
        {"kind": "int8"},
        {"kind": "flat"},
        {"count": COUNT + 1},
        {"count": 300},
        {"count": -1},
        {"breadth": 10**9},
        {"breadth": 0},
        {"candidates": 10**6},
        {"number": 10**30},
        {"number": "../../x"},
    ],
    ids=str,
)
def test_a_state_that_does_not_fit_its_structure(tmp_path, changes):
    folder = make(tmp_path / "x", "hnsw")
    (path,) = folder.glob("structure-*")
    replace_structure(folder, path.read_bytes(), **changes)
    try:
        with Index.open(folder) as index:
            if index._current().searcher.structure is None:  # no such file: all items are compared
                assert "number" in changes
                return
    except Exception as error:
        assert type(error).__name__ == "InputError"  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        return
    raise AssertionError("the structure was taken")


@pytest.mark.parametrize("place", ["vectors", "norm"])
def test_vectors_that_are_not_finite(tmp_path, place):
    folder = make(tmp_path / "x", "flat")
    (path,) = folder.glob("vectors-*")
    if place == "vectors":
        vectors = VECTORS.copy()
        vectors[5, 2] = np.nan
        path.write_bytes(vectors.tobytes())
        connection = sqlite3.connect(folder / "index.sqlite")
        connection.execute("UPDATE chunks SET crc = ?", (zlib.crc32(vectors.tobytes()),))
        connection.commit()
        connection.close()
    else:
        put_state(folder, state_of(folder) | {"norm": 0.1})
    with refuses(str(folder), got="not finite, or too long"):
        Index.open(folder)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "change",
    [
        f"DROP TABLE items; CREATE VIEW items AS {ENDLESS} x AS position, 'a' AS id, 1 AS crc, NULL, NULL FROM n",
        f"DROP TABLE state; CREATE VIEW state AS {ENDLESS} 1 AS format, 'a' AS content, x AS crc FROM n",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END",
        "CREATE INDEX slow ON items (id)",
        "ALTER TABLE items ADD COLUMN more TEXT",
        "ALTER TABLE items ADD COLUMN more TEXT GENERATED ALWAYS AS (hex(zeroblob(100000000))) VIRTUAL",
        "DROP TABLE removed",
    ],
    ids=lambda change: change[:40],
)
def test_other_tables_are_refused_before_they_are_read(tmp_path, change):
    folder = make(tmp_path / "x", "flat")
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.executescript(change)
    connection.commit()
    connection.close()
    with refuses(str(folder), got="tables are not those of an index"):
        Index.open(folder)


@pytest.mark.parametrize(
    "text",
    [
        '["a"]', '"a"', "7", "null", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "{", "",
        '{"a": ' + "[" * 10_000 + "]" * 10_000 + "}", '{"a": ' + "1" * 5000 + "}",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_metadata_that_are_not_values_by_name(tmp_path, text):
    folder = make(tmp_path / "x", "flat")
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.execute("UPDATE items SET metadata = ?, metadata_crc = ?", (text, zlib.crc32(text.encode())))
    connection.commit()
    connection.close()
    with Index.open(folder) as index, refuses(str(folder), got="not JSON values by name"):
        index.search(VECTORS[:1], 3)


@pytest.mark.parametrize("values", ["x'00', NULL, 'a'", "'a', x'00', x'00'", "CAST(x'ff' AS TEXT), '', 'a'"])
def test_images_that_are_left_out_and_are_no_texts(tmp_path, values):
    folder = make(tmp_path / "x", "flat")
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.execute(f"INSERT INTO left_out VALUES ({values})")
    connection.commit()
    connection.close()
    with Index.open(folder) as index, refuses(str(folder)):
        assert index.left_out


@pytest.mark.parametrize("position", ["'a'", "-1", "420", "1e300", "x'00'"])
def test_a_removal_of_no_item(tmp_path, position):
    folder = make(tmp_path / "x", "flat")
    state = state_of(folder)
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.execute("DELETE FROM items WHERE position = 3")
    connection.execute(f"INSERT INTO removed VALUES (1, 0, {position}, 'item 3', 0)")
    value = connection.execute("SELECT position FROM removed").fetchone()[0]
    connection.execute("UPDATE removed SET crc = ?", (zlib.crc32(f"1 0 {value} item 3".encode()),))
    connection.commit()
    connection.close()
    put_state(folder, state | {"live": COUNT - 1, "removed": 1})
    with refuses(str(folder), got="removal 1"):
        Index.open(folder)


@pytest.mark.parametrize("place", ["hf://user/name", "hf:/user/name", "hf://user/name@main"])
def test_the_hub_is_asked_only_where_the_user_names_it(tmp_path, place, monkeypatch, capsys):
    folder = make(tmp_path / "x", "flat")
    put_state(folder, state_of(folder) | {"model": {"identity": "a", "run": place}})
    monkeypatch.setattr("contml.retrieval.hub.download", lambda *_: 1 / 0, raising=False)
    monkeypatch.setattr("socket.socket", lambda *_: 1 / 0)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    monkeypatch.setattr("sys.argv", ["contml", "search", str(folder), str(tmp_path / "a.png")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    address = place.replace("hf:/u", "hf://u")
    assert f"made with {address}, which is on the hub; name its model: --run {address}" in line
    with Index.open(folder) as index:
        assert index.model.folder is None


@pytest.mark.parametrize("run", ["a\0b", 7, ["a"], {"a": 1}, None, ""])
def test_a_place_of_the_model_that_is_none(tmp_path, run):
    folder = make(tmp_path / "x", "flat")
    put_state(folder, state_of(folder) | {"model": {"identity": "a", "run": run}})
    with Index.open(folder) as index:
        assert index.model.folder is None or not index.model.folder.exists()


@pytest.mark.parametrize(("changes", "problem"), [({"dim": 0}, "dim: Input should be"), ({"kind": "x"}, "kind: Input")])
def test_a_state_of_other_values_names_the_value(tmp_path, changes, problem):
    folder = make(tmp_path / "x", "flat")
    put_state(folder, {**state_of(folder), **changes})
    with refuses(str(folder), got=problem):
        Index.open(folder)


def test_an_index_is_not_made_among_other_files(tmp_path):
    (tmp_path / "photo.jpg").touch()
    with refuses(str(tmp_path), got="not empty"):
        Index.create(tmp_path, DIM)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.parametrize("norm", [1e300, -1])
def test_a_norm_that_no_vectors_have_is_refused(tmp_path, norm):
    folder = make(tmp_path / "x", "flat")
    put_state(folder, {**state_of(folder), "norm": norm})
    with refuses(str(folder), got="norm: Input should be"):
        Index.open(folder)
