"""An index of embeddings finds what a slow loop finds, whatever was added, removed, compacted and reopened."""

from __future__ import annotations

import math
import threading

import faiss.contrib.torch_utils  # noqa: F401  pytorch-metric-learning imports it: FAISS then takes plain arrays only
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from safetensors.numpy import load_file
from support.refusals import refuses

from contml._support.files import locked
from contml.retrieval import Index, index as index_module, index_shards, index_structure
from contml.retrieval.index_store import Store
from contml.retrieval.index_structure import FLAT_ITEMS, HNSW_ITEMS, Searcher, kind_for

STRUCTURES = ("hnsw", "ivf_pq", "int8", "binary")
KINDS = ("flat", *STRUCTURES)


@pytest.fixture(autouse=True)
def small_structures(monkeypatch):
    """Structures of few items, built in several parts."""
    few(monkeypatch.setattr)


def few(set_value):
    set_value(index_structure, "FEWEST", 300)
    set_value(index_module, "FEWEST", 300)
    set_value(index_structure, "PART", 200)


def slow_search(items, query, k):
    """The k nearest of `{id: vector}` by the definition, ties in order of insertion: ids and distances."""
    found = []
    for place, (name, vector) in enumerate(items.items()):
        pairs = zip(np.float32(query).tolist(), np.float32(vector).tolist(), strict=True)
        total = math.fsum((a - b) ** 2 for a, b in pairs)
        found.append((total, place, name))
    found.sort()
    return [name for _, _, name in found[:k]], [math.sqrt(total) for total, _, _ in found[:k]]


def check(index, items, queries, k):
    """The index finds what the slow loop finds."""
    found = index.search(np.asarray(queries, np.float32), k)
    assert found.ids.shape == found.distances.shape == (len(queries), min(k, len(items)))
    assert found.distances.dtype == np.float32
    for row, query in enumerate(queries):
        names, distances = slow_search(items, query, k)
        assert found.ids[row].tolist() == names
        np.testing.assert_allclose(found.distances[row], distances, rtol=3e-7)


def clustered(count, dim=16, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((count // 20 + 1, dim))
    x = (centers[rng.integers(len(centers), size=count)] + 0.3 * rng.standard_normal((count, dim))).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def filled(path, vectors, kind="flat", **options):
    index = Index.create(path, vectors.shape[1], kind, **options)
    index.add([str(row) for row in range(len(vectors))], vectors)
    return index


# -- exact search ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.data())
def test_flat_equals_the_slow_loop_at_ties(tmp_path_factory, data):
    count, dim = data.draw(st.integers(0, 90)), data.draw(st.integers(1, 4))
    numbers = st.integers(-2, 2).map(float)  # so that many distances are equal
    rows = data.draw(st.lists(st.lists(numbers, min_size=dim, max_size=dim), min_size=count, max_size=count))
    queries = data.draw(st.lists(st.lists(numbers, min_size=dim, max_size=dim), min_size=1, max_size=3))
    gone = data.draw(st.sets(st.integers(0, count - 1))) if count else set()
    with Index.create(tmp_path_factory.mktemp("i") / "x", dim, "flat") as index:
        index.add([f"n{row}" for row in range(count)], np.array(rows, np.float32).reshape(count, dim))
        index.remove([f"n{row}" for row in gone])
        items = {f"n{row}": vector for row, vector in enumerate(rows) if row not in gone}
        check(index, items, queries, data.draw(st.integers(1, 100)))


@pytest.mark.parametrize("queries", [1, 40])  # FAISS takes differences for few queries, products for many
@pytest.mark.parametrize(
    "case", ["offset", "copies", "large", "tiny", "one dimension", "zeros", "mixed scales", "nearly equal"]
)
def test_flat_is_exact_where_float32_products_are_not(tmp_path, case, queries):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 8))
    x = {
        "offset": 1000 + 1e-2 * x,
        "copies": np.repeat(x[:2], 100, 0),
        "large": 1e17 * x,
        "tiny": 1e-30 * x,
        "one dimension": x[:, :1],
        "zeros": 0 * x,
        "mixed scales": x * 10.0 ** rng.integers(-20, 15, (200, 1)),
        "nearly equal": 1 + 1e-7 * np.round(3 * x),
    }[case].astype(np.float32)
    index = filled(tmp_path / "x", x)
    items = {str(row): vector for row, vector in enumerate(x)}
    check(index, items, x[:queries] if case != "offset" else x[:queries] + np.float32(1e-3), 7)
    gone = [str(row) for row in range(0, 200, 3)]
    index.remove(gone)
    check(index, {name: vector for name, vector in items.items() if name not in gone}, x[:queries], 7)


def test_the_scan_is_only_for_queries_that_rounding_could_change(tmp_path, monkeypatch):
    scanned = []
    scan = Searcher._scan
    monkeypatch.setattr(Searcher, "_scan", lambda *given: scanned.append(1) or scan(*given))
    x = clustered(500)
    filled(tmp_path / "x", x).search(x[:50], 10)
    assert not scanned
    filled(tmp_path / "y", np.repeat(x[:2], 100, 0)).search(x[:50], 10)
    assert len(scanned) == 50


def test_unit_vectors_are_ranked_as_by_cosine(tmp_path):
    x = clustered(300)
    found = filled(tmp_path / "x", x).search(x[:20], 300)
    cosines = x[:20].astype(np.float64) @ x.T.astype(np.float64)
    for row in range(20):
        assert (np.diff(cosines[row, found.ids[row].astype(int)]) < 1e-7).all()


# -- structures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("dim", [16, 7])
def test_a_structure_finds_nearly_all_and_its_distances_are_exact(tmp_path, kind, dim):
    x = clustered(900, dim)
    index = filled(tmp_path / "x", x, kind)
    assert (index.unbuilt, index.structure) == (900, "flat")
    steps = []
    index.build(steps.append)
    assert steps == [200, 400, 600, 800, 900]
    assert (index.unbuilt, index.structure) == (0, kind)
    assert len(list((tmp_path / "x").glob("structure-*"))) == 1
    queries = clustered(60, dim, seed=0)
    found = index.search(queries, 10)
    exact = filled(tmp_path / "y", x).search(queries, 10)
    assert np.mean([len({*a} & {*b}) for a, b in zip(found.ids, exact.ids, strict=True)]) > 9
    for row, query in enumerate(queries):
        names, distances = slow_search({name: x[int(name)] for name in found.ids[row]}, query, 10)
        np.testing.assert_allclose(found.distances[row], distances, rtol=3e-7)
        assert sorted(found.ids[row]) == sorted(names)
    assert index.recall(50) > 0.9


@pytest.mark.parametrize("kind", STRUCTURES)
def test_k_is_filled_when_everything_near_the_query_was_removed(tmp_path, kind):
    x = clustered(900)
    index = filled(tmp_path / "x", x, kind)
    index.build()
    near = index.search(x[:1], 800).ids[0].tolist()
    assert len(set(near)) == 800
    index.remove(near)
    items = {str(row): vector for row, vector in enumerate(x) if str(row) not in near}
    for k in (5, 100, 101):
        found = index.search(x[:1], k)
        assert found.ids.shape == (1, min(k, 100))
        assert set(found.ids[0]) <= items.keys()
    check(index, items, x[:3], 100)


@pytest.mark.parametrize("kind", STRUCTURES)
def test_items_that_are_not_in_the_structure_yet_are_found(tmp_path, kind):
    x = clustered(500)
    index = filled(tmp_path / "x", x, kind)
    index.build()
    more = clustered(50, seed=9)
    index.add([f"new {row}" for row in range(50)], more)
    assert index.unbuilt == 50
    assert index.search(more, 1).ids[:, 0].tolist() == [f"new {row}" for row in range(50)]
    index.build()
    assert index.unbuilt == 0
    found = index.search(more, 1)
    assert np.mean(found.ids[:, 0] == [f"new {row}" for row in range(50)]) > 0.9


@pytest.mark.parametrize("kind", ["ivf_pq", "binary"])
def test_it_is_trained_again_when_there_are_twice_as_many_items(tmp_path, kind):
    x = clustered(1300)
    index = filled(tmp_path / "x", x[:500], kind)
    for count, trained in ((500, 500), (900, 500), (1300, 1300)):
        index.add([str(row) for row in range(len(index), count)], x[len(index) : count])
        index.build()
        structure = Store(tmp_path / "x").content().state.structure
        assert (structure.count, structure.trained) == (count, trained)
        assert index.recall(50) > 0.9


def codes_of(index):
    """The arrays in the file of a structure."""
    (file,) = index.path.glob("structure-*")
    return load_file(file)


def test_int8_codes_by_the_definition_and_their_memory(tmp_path):
    x = clustered(700, 13)
    x[:, 4] = 0.25  # a number that is the same for all
    index = filled(tmp_path / "x", x, "int8")
    index.build()
    arrays = codes_of(index)
    low, width = arrays["ranges"]
    np.testing.assert_array_equal(low, x.min(0))
    assert (low + width >= x.max(0)).all()
    np.testing.assert_allclose(width, x.max(0) - x.min(0), rtol=1e-6)
    share = np.divide(x - low, width, out=np.zeros_like(x), where=width > 0)
    assert np.abs(arrays["codes"] - np.minimum(np.floor(255 * share), 255)).max() <= 1
    assert arrays["codes"].shape == x.shape
    assert index.bytes_per_item == pytest.approx(13, abs=0.6)  # and the ranges, once
    assert "13 bytes per item in memory" in index.search_text
    assert filled(tmp_path / "y", x).bytes_per_item == 4 * 13


@pytest.mark.parametrize("grown", ["outside", "inside"])
def test_int8_ranges_are_those_of_all_items(tmp_path, grown):
    """Fitted to the first items, numbers of later ones would be cut off."""
    x = clustered(400)
    index = filled(tmp_path / "x", x, "int8")
    index.build()
    more = clustered(60, seed=5)
    more = 30 * more if grown == "outside" else np.clip(more, x.min(0), x.max(0))
    index.add([f"more {row}" for row in range(60)], more)
    index.build()
    state = index._store.content().state.structure
    assert (state.count, state.trained) == (460, 460 if grown == "outside" else 400)
    low, width = codes_of(index)["ranges"]
    assert (low <= more.min(0)).all()
    assert (low + width >= more.max(0)).all()
    assert index.search(more, 1).ids[:, 0].tolist() == [f"more {row}" for row in range(60)]


@pytest.mark.parametrize("dim", [3, 7, 8, 20])
def test_binary_codes_are_centred_and_padded(tmp_path, dim):
    """Of features that are all positive, the signs are all the same; lengths need not be multiples of 8."""
    x = np.abs(clustered(700, dim)) + 1
    index = filled(tmp_path / "x", x, "binary")
    index.build()
    arrays = codes_of(index)
    np.testing.assert_allclose(arrays["mean"], x.mean(0, dtype=np.float64), rtol=1e-6)
    bits = np.unpackbits(arrays["codes"], axis=1)
    np.testing.assert_array_equal(bits[:, :dim], x > arrays["mean"])
    assert not bits[:, dim:].any()
    assert 0.2 < bits[:, :dim].mean() < 0.8
    assert arrays["codes"].shape == (700, -(-dim // 8))


def test_binary_codes_of_equal_items_find_what_they_say(tmp_path):
    """More items with one code than candidates: which are compared is arbitrary, and the recall is measured."""
    x = np.concatenate([np.ones((500, 4)), -np.ones((300, 4))]).astype(np.float32)
    x += 1e-3 * np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    index = filled(tmp_path / "x", x, "binary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_structure, "CODE_RERANKED", (5,))
        index.build()
    assert index.found < 0.5
    assert index.recall(sample=200) == pytest.approx(index.found, abs=0.1)
    assert index.search_text.endswith("kind flat finds all")


def test_auto_chooses_by_the_number_of_items(tmp_path, monkeypatch):
    assert [kind_for("auto", n) for n in (0, FLAT_ITEMS, FLAT_ITEMS + 1, HNSW_ITEMS, HNSW_ITEMS + 1)] == [
        *("flat", "flat", "hnsw", "hnsw", "ivf_pq")
    ]
    assert [kind_for(kind, 10**9) for kind in KINDS] == [*KINDS]
    monkeypatch.setattr(index_structure, "FLAT_ITEMS", 400)
    x = clustered(500)
    index = filled(tmp_path / "x", x[:400], "auto")
    index.build()
    assert index.structure == "flat"
    index.add([str(row) for row in range(400, 500)], x[400:])
    index.build()
    assert index.structure == "hnsw"
    index.remove([str(row) for row in range(100)])
    index.build()
    assert index.structure == "flat"
    assert not list((tmp_path / "x").glob("structure-*"))


@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_structure_without_its_file_compares_all_until_it_is_built(tmp_path, kind):
    x = clustered(500)
    filled(tmp_path / "x", x, kind).build()
    (file,) = (tmp_path / "x").glob("structure-*")
    file.unlink()
    with Index.open(tmp_path / "x") as index:
        check(index, {str(row): vector for row, vector in enumerate(x)}, x[:3], 9)
        index.compact()
        index.remove(["3"])
        index.compact()
        assert len(list((tmp_path / "x").glob("structure-*"))) == 1


def test_recall_is_the_share_of_the_true_nearest(tmp_path, monkeypatch):
    x = clustered(400)
    index = filled(tmp_path / "x", x)
    assert index.recall() == 1.0
    index = filled(tmp_path / "y", x, "hnsw")
    index.build()
    monkeypatch.setattr(Searcher, "_propose", lambda self, s, q, k: np.tile(np.arange(k + 30), (len(q), 1)))
    found = index.recall(sample=40, k=5, seed=3)
    chosen = np.sort(np.random.default_rng(3).choice(400, 40, replace=False))
    shares = []
    for row in chosen:
        d = ((x[row].astype(np.float64) - x.astype(np.float64)) ** 2).sum(1)
        d[row] = np.inf
        right = set(np.argsort(d, kind="stable")[:5].tolist())
        proposed = [p for p in np.argsort(d[:36], kind="stable").tolist() if p != row][:5]
        shares.append(len(right & set(proposed)) / 5)
    assert found == pytest.approx(np.mean(shares))
    assert math.isnan(filled(tmp_path / "z", x[:1]).recall())


def random_vectors(count, dim=32):
    return np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize(
    ("shares", "chosen"), [((0.3, 0.6, 0.96, 0.99), 2), ((0.97, 0.5), 0), ((0.3, 0.9, 0.8, 0.7), 1)], ids=str
)
def test_a_structure_is_searched_no_wider_than_its_recall_asks_for(tmp_path, kind, shares, chosen, monkeypatch):
    index = filled(tmp_path / "x", random_vectors(900), kind)
    assert index.found == 1.0  # all are compared
    settings, tried = [], []
    with monkeypatch.context() as patch:
        patch.setattr(index_structure, "PROBES", (1, 2))
        patch.setattr(index_structure, "RERANKED", (2, 4))
        real = index_structure._settings
        patch.setattr(index_structure, "_settings", lambda *args: settings.extend(real(*args)[:4]) or settings)
        share = iter(shares)
        patch.setattr(index_structure, "share_found", lambda searcher, *_: tried.append(searcher) or next(share, 0.1))
        index.build()
    file = index._store.content().state.structure
    expected = settings[min(chosen, len(settings) - 1)]
    assert (file.breadth, file.candidates) == (expected.breadth, expected.candidates)
    assert file.recall == index.found == shares[chosen]
    assert [searcher.structure.file for searcher in tried] == settings[: len(tried)]
    assert f"finds {shares[chosen]:.1%}" in index.search_text
    width = file.breadth if kind in ("hnsw", "ivf_pq") else file.candidates
    assert index.search_text.startswith(f"{kind}, {width} ")
    with Index.open(tmp_path / "x") as again:
        assert again._current().searcher.structure.file == file


def test_a_structure_finds_what_it_says(tmp_path):
    index = filled(tmp_path / "x", random_vectors(1500, 8), "ivf_pq")
    index.build()
    assert 0.3 < index.found < 1
    assert index.recall(sample=1500) == pytest.approx(index.found, abs=0.05)


@pytest.mark.parametrize("kind", ["hnsw", "ivf_pq"])
def test_auto_compares_all_items_where_no_structure_finds_enough(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(index_structure, "FLAT_ITEMS", 350)
    monkeypatch.setattr(index_structure, "HNSW_ITEMS", 350 if kind == "ivf_pq" else 10_000)
    for module in (index_structure, index_module):
        monkeypatch.setattr(module, "RECALL", 1.1)
    x = random_vectors(1700)
    index = filled(tmp_path / "x", x[:800], "auto")
    index.build()
    assert (index.structure, index.unbuilt, index.found) == ("flat", 0, 1.0)
    assert "no structure finds" in index.search_text
    assert not list((tmp_path / "x").glob("structure-*"))
    grown = []
    for module, name in ((index_module, "grow"), (index_shards, "merge_codes")):
        original = getattr(index_structure, name)
        monkeypatch.setattr(module, name, lambda *args, original=original: grown.append(args) or original(*args))
    index.add([f"more {row}" for row in range(700)], x[800:1500])
    index.build()
    assert not grown  # not tried again before there are twice as many
    for module in (index_structure, index_module):
        monkeypatch.setattr(module, "RECALL", 0.3)
    index.add([f"last {row}" for row in range(200)], x[1500:])
    index.build()
    assert len(grown) == 1
    assert (index.structure, index.unbuilt) == (kind, 0)
    chosen = filled(tmp_path / "y", x[:800], kind)
    for module in (index_structure, index_module):
        monkeypatch.setattr(module, "RECALL", 1.1)
    chosen.build()
    assert chosen.structure == kind  # as it was asked for
    assert chosen.search_text.endswith("kind flat finds all")


def test_a_build_that_was_killed_before_the_measurement_is_measured(tmp_path, monkeypatch):
    index = filled(tmp_path / "x", random_vectors(700), "hnsw")
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "tuned", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            index.build()
    assert index.found is None
    assert "finds" not in index.search_text
    assert index.search(random_vectors(3), 5).ids.shape == (3, 5)
    index.build()
    assert index.found >= 0.95
    (path,) = (tmp_path / "x").glob("structure-*")
    before = path.stat().st_mtime_ns
    index.build()
    assert path.stat().st_mtime_ns == before


# -- changes -----------------------------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Any order of changes: the index holds what a dict holds, in its order, and removed items never come back."""

    @initialize(kind=st.sampled_from([*KINDS, "auto"]))
    def create(self, kind):
        self.rng = np.random.default_rng(0)
        self.folder = self.base.mktemp("index") / "x"
        self.index, self.items, self.number, self.gone = Index.create(self.folder, 3, kind), {}, 0, set()

    @rule(count=st.integers(0, 5) | st.integers(100, 150), described=st.booleans())
    def add(self, count, described):
        names = [f"n{self.number + place}" for place in range(count)]
        self.number += count
        self.put(names, described)

    def put(self, names, described):
        vectors = self.rng.integers(-3, 4, (len(names), 3)).astype(np.float32)
        about = [{"name": name} if described else None for name in names]
        self.index.add(names, vectors, about)
        self.items |= {name: (vectors[row], about[row] or {}) for row, name in enumerate(names)}

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def add_again(self, data):
        name = data.draw(st.sampled_from(sorted(self.gone)))
        self.gone.remove(name)
        self.put([name], True)

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def remove(self, data):
        names = data.draw(st.lists(st.sampled_from(sorted(self.items)), unique=True, max_size=20))
        self.index.remove(names)
        self.gone |= set(names)
        for name in names:
            del self.items[name]

    @rule()
    def build(self):
        self.index.build()

    @rule()
    def compact(self):
        self.index.compact()

    @rule()
    def reopen(self):
        self.index.close()
        self.index = Index.open(self.folder)

    @rule()
    def change_by_another(self):
        with Index.open(self.folder) as other:
            other.add([f"n{self.number}"], np.zeros((1, 3), np.float32))
        self.items[f"n{self.number}"] = np.zeros(3, np.float32), {}
        self.number += 1

    @invariant()
    def holds_what_the_dict_holds(self):
        assert len(self.index) == len(self.items)
        assert self.index.ids == list(self.items)
        assert self.index.removed_ids == self.gone
        vectors = {name: vector for name, (vector, _) in self.items.items()}
        check(self.index, vectors, [[0, 1, 2]], len(self.items) + 1)
        found = self.index.search(np.array([[0, 1, 2]], np.float32), len(self.items) + 1)
        if found.metadata is None:
            assert not any(about for _, about in self.items.values())
        else:
            assert found.metadata[0] == [self.items[name][1] for name in found.ids[0]]

    def teardown(self):
        self.index.close()


def test_any_order_of_changes(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(index_structure, "FLAT_ITEMS", 350)
    AnyOrder.base = tmp_path_factory
    AnyOrder.TestCase.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
    AnyOrder.TestCase("runTest").debug()


def test_an_item_that_is_added_again_is_new(tmp_path):
    index = filled(tmp_path / "x", np.zeros((3, 2), np.float32))
    index.remove(["0"])
    index.add(["0"], np.zeros((1, 2)), [{"new": True}])
    found = index.search(np.zeros((1, 2)), 3)
    assert found.ids.tolist() == [["1", "2", "0"]]
    assert found.metadata == [[{}, {}, {"new": True}]]
    assert index.metadata(["0", "2"]) == [{"new": True}, {}]


def test_compaction_frees_the_disk(tmp_path):
    x = clustered(1000)
    index = filled(tmp_path / "x", x)
    index.remove([str(row) for row in range(900)])
    (before,) = (tmp_path / "x").glob("vectors-*")
    assert before.stat().st_size == 1000 * 16 * 4
    index.compact()
    (after,) = (tmp_path / "x").glob("vectors-*")
    assert after.read_bytes() == x[900:].tobytes()
    index.compact()
    assert [*(tmp_path / "x").glob("vectors-*")] == [after]
    index.remove([str(row) for row in range(900, 1000)])
    index.compact()
    assert index.search(x[:2], 5).ids.shape == (2, 0)
    index.add(["again"], x[:1])
    assert Index.open(tmp_path / "x").search(x[:2], 5).ids.tolist() == [["again"], ["again"]]


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (lambda index: index.add(["new", "1"], np.zeros((2, 2))), "ids"),
        (lambda index: index.add(["new", "new"], np.zeros((2, 2))), "ids"),
        (lambda index: index.add(["new", ""], np.zeros((2, 2))), "ids"),
        (lambda index: index.add(["new", 3], np.zeros((2, 2))), "ids"),
        (lambda index: index.add(["new", "\udc80"], np.zeros((2, 2))), "ids"),
        (lambda index: index.add("new", np.zeros((3, 2))), "ids"),
        (lambda index: index.add(["new"], np.zeros((2, 2))), "ids"),
        (lambda index: index.add(["new"], np.zeros((1, 3))), "embeddings"),
        (lambda index: index.add(["new"], np.zeros(2)), "embeddings"),
        (lambda index: index.add(["new"], [["a", "b"]]), "embeddings"),
        (lambda index: index.add(["new"], [[1, 2], [3]]), "embeddings"),
        (lambda index: index.add(["new"], [[1j, 2]]), "embeddings"),
        (lambda index: index.add(["new"], [[True, False]]), "embeddings"),
        (lambda index: index.add(["new"], [[1, np.nan]]), "embeddings"),
        (lambda index: index.add(["new"], [[1, np.inf]]), "embeddings"),
        (lambda index: index.add(["new"], [[1, 1e300]]), "embeddings"),
        (lambda index: index.add(["new"], [[1, 2e18]]), "embeddings"),
        (lambda index: index.add(["new"], None), "embeddings"),
        (lambda index: index.add(["new"], np.zeros((1, 2)), [{}, {}]), "metadata"),
        (lambda index: index.add(["new"], np.zeros((1, 2)), [{"a": object()}]), "metadata"),
        (lambda index: index.add(["new"], np.zeros((1, 2)), [{"a": float("nan")}]), "metadata"),
        (lambda index: index.add(["new"], np.zeros((1, 2)), [{3: 1}]), "metadata"),
        (lambda index: index.add(["new"], np.zeros((1, 2)), ["text"]), "metadata"),
        (lambda index: index.add(["new"], np.zeros((1, 2)), [{"a": "\udc80"}]), "metadata"),
        (lambda index: index.remove(["1", "none"]), "ids"),
        (lambda index: index.remove(["1", "1"]), "ids"),
        (lambda index: index.metadata(["none"]), "ids"),
        (lambda index: index.search(np.zeros((1, 2)), 0), "k"),
        (lambda index: index.search(np.zeros((1, 2)), 1.5), "k"),
        (lambda index: index.search(np.zeros((1, 3)), 1), "queries"),
        (lambda index: index.search(np.full((1, 2), np.nan), 1), "queries"),
        (lambda index: index.search(["a.jpg"], 1), "queries"),
        (lambda index: index.search(np.zeros(2), 1), "queries"),
        (lambda index: index.recall(0), "sample"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(tmp_path, change, subject):
    index = filled(tmp_path / "x", np.zeros((3, 2), np.float32))
    with refuses(subject):
        change(index)
    for each in (index, Index.open(tmp_path / "x")):
        assert each.ids == ["0", "1", "2"]
        assert each.removed_ids == set()
        assert len(each.search(np.zeros((1, 2)), 9).ids[0]) == 3


def test_what_an_index_takes_as_embeddings(tmp_path):
    index = Index.create(tmp_path / "x", 2)
    for place, given_as in enumerate(
        [
            torch.ones(1, 2, requires_grad=True),
            torch.ones(1, 2, dtype=torch.bfloat16),
            np.ones((1, 2), np.float16),
            np.ones((1, 4))[:, ::2],
            np.ones((1, 2), int),
            [[1, 1.0]],
        ]
    ):
        index.add([str(place)], given_as)
        assert index.search(torch.ones(1, 2), 9).distances.tolist() == [[0.0] * (place + 1)]
    index.add([], np.zeros((0, 2)))
    assert len(index) == 6
    assert index.search(np.zeros((0, 2)), 3).ids.shape == (0, 3)
    assert "0" in index
    assert "6" not in index
    assert repr(index) == f"Index({str(tmp_path / 'x')!r}, 6 items, dim=2, kind='auto')"


def test_create_and_open_refuse(tmp_path):
    Index.create(tmp_path / "x", 2)
    with refuses(str(tmp_path / "x"), "exists already"):
        Index.create(tmp_path / "x", 2)
    with refuses(str(tmp_path / "none"), "no such index"):
        Index.open(tmp_path / "none")
    with refuses(str(tmp_path), "not an index"):
        Index.open(tmp_path)
    for dim in (0, -1, 1.5, "2"):
        with refuses("dim", str(dim)):
            Index.create(tmp_path / "y", dim)
    with refuses("kind", "'tree'"):
        Index.create(tmp_path / "y", 2, "tree")
    (tmp_path / "file").touch()
    with refuses(str(tmp_path / "file/x"), "cannot be written"):
        Index.create(tmp_path / "file" / "x", 2)
    assert not (tmp_path / "y").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").touch()
    with refuses(str(tmp_path / "photos"), "exists already and is not empty"):
        Index.create(tmp_path / "photos", 2)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.png"]


def test_an_index_that_another_process_makes(tmp_path):
    folder = tmp_path / "x"
    with locked(folder, "busy", ""), refuses(str(folder), "another process is changing this index"):
        Index.create(folder, 2)
    Index.create(folder, 2).close()


class Doubler:
    embedding_dim = 2

    def __init__(self, identity="abc"):
        self.identity = identity

    def embed(self, images):
        return np.array([[2 * image, 0] for image in images], np.float32)


def test_images_are_embedded_by_the_model_that_is_given(tmp_path):
    index = Index.create(tmp_path / "x", 2, embedder=Doubler())
    index.add(["a", "b"], [[2, 0], [8, 0]])
    assert index.search([1, 4], 1).ids.tolist() == [["a"], ["b"]]
    assert Index.open(tmp_path / "x", Doubler()).search([1], 1).ids.tolist() == [["a"]]
    with refuses("model", f"not the model of {tmp_path / 'x'}", hint="another model"):
        Index.open(tmp_path / "x", Doubler("def"))
    assert Index.open(tmp_path / "x").model.identity == "abc"
    with refuses("model", "not the model"):
        Index.open(tmp_path / "x").model.check("")
    Index.create(tmp_path / "y", 3)
    with refuses("model", "2 numbers", "must be 3"):
        Index.open(tmp_path / "y", Doubler())


# -- several processes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_reader_sees_each_change_of_a_writer(tmp_path, kind):
    x = clustered(500)
    writer = filled(tmp_path / "x", x, kind)
    reader = Index.open(tmp_path / "x")
    writer.build()
    assert reader.structure == kind
    first = reader.search(x[:1], 3).ids[0].tolist()
    writer.remove(first)
    assert not set(reader.search(x[:1], 9).ids[0]) & set(first)
    writer.compact()
    assert reader.search(x[:1], 9).ids.tolist() == writer.search(x[:1], 9).ids.tolist()
    writer.add(["new"], x[:1], [{"a": 1}])
    found = reader.search(x[:1], 2)
    assert found.ids[0, 0] == "new"
    assert found.metadata[0] == [{"a": 1}, {}]
    assert reader.metadata(["new"]) == [{"a": 1}]


def test_metadata_of_an_item_that_is_removed_during_a_search_is_read_again(tmp_path, monkeypatch):
    writer = Index.create(tmp_path / "x", 2)
    writer.add(["a", "b"], [[0, 0], [1, 0]], [{"n": 1}, {"n": 2}])
    reader, nearest = Index.open(tmp_path / "x"), Searcher.nearest

    def slow(*given):
        found = nearest(*given)
        if "a" in writer:
            writer.remove(["a"])
            writer.compact()
        return found

    monkeypatch.setattr(Searcher, "nearest", slow)
    found = reader.search(np.zeros((1, 2)), 2)
    assert (found.ids.tolist(), found.metadata) == ([["b"]], [[{"n": 2}]])


def test_one_process_writes_at_a_time(tmp_path):
    one, two = filled(tmp_path / "x", clustered(9)), Index.open(tmp_path / "x")
    with one.lock():
        one.add(["a"], clustered(1))
        for change in (two.build, two.compact, lambda: two.remove(["0"]), lambda: two.add(["b"], clustered(1))):
            with refuses(str(tmp_path / "x"), "another process"):
                change()
        assert len(two.search(clustered(1), 99).ids[0]) == 10
    two.remove(["a"])
    assert one.ids == two.ids


def test_searching_writes_nothing(tmp_path):
    filled(tmp_path / "x", clustered(400), "hnsw").build()

    def files():
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "x").iterdir()}

    before = files()
    with Index.open(tmp_path / "x") as index:
        index.search(clustered(3), 5)
        index.recall(20)
    assert files() == before


def test_threads_search_while_one_changes(tmp_path):
    x = clustered(900)
    names = [str(row) for row in range(900)]
    about = [{"name": name} for name in names]
    index, failed, stop = Index.create(tmp_path / "x", 16, "hnsw"), [], threading.Event()
    index.add(names[:300], x[:300], about[:300])
    index.build()

    def search():
        try:
            while not stop.is_set():
                found = index.search(x[:5], 30)
                assert found.ids[:, 0].tolist() == names[:5]
                assert [[one["name"] for one in row] for row in found.metadata] == found.ids.tolist()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(300, 900, 50):
        part = slice(start, start + 50)
        index.add(names[part], x[part], about[part])
        index.remove(names[start - 200 : start - 170])
        index.compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
