"""Nearest neighbours: every backend equals streaming; the cache is never stale, resumes, and repairs damaged files."""

import os
import re
import shutil
import sys
from contextlib import nullcontext
from random import Random

import numpy as np
import pytest
import torch
from fuzz.mutations import bytes_changed
from hypothesis import given, settings, strategies as st
from support.paths import ROOT
from support.refusals import refused, refuses
from support.strategies import label_vectors

from contml import labels as spaces_
from contml._support import progress
from contml._support.fingerprints import fingerprint
from contml._support.progress import progress_bar
from contml._support.tensors import load_tensors, save_tensors
from contml.distances import nearest as vectors, nearest_vectors
from contml.sampling import DenseSampler

cache = sys.modules["contml.labels.neighbours"]


def streamed(space, k, rows=None, among=None):
    """By streaming, even if the space has a faster search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(space), "_nearest", spaces_.LabelSpace._nearest)
        return spaces_.nearest(space, k, rows, among=among)


def same(a, b):
    return torch.equal(a.rows, b.rows) and torch.equal(a.distances, b.distances)


# ---------------------------------------------------------------------------------------------------------------------
# vectors


@settings(max_examples=60, deadline=None)
@given(values=label_vectors(max_size=30), products=st.booleans(), data=st.data())
def test_vectors_equal_streaming(values, products, data):
    space = spaces_.VectorLabels(values)
    n = len(space)
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=6))
    among = data.draw(st.sets(st.integers(0, n - 1), min_size=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_SPARE", data.draw(st.sampled_from([0, 3, 32])))
        patch.setattr(vectors, "_COLUMNS", 5)
        if products:
            patch.setattr(vectors, "_search_on_cpu", vectors._search_by_products)
        k = data.draw(st.integers(1, n - 1))
        assert same(spaces_.nearest(space, k, memory=data.draw(st.sampled_from([1, 1 << 28]))), streamed(space, k))
        k = data.draw(st.integers(1, len(among) - 1))
        found = spaces_.nearest(space, k, rows, among=sorted(among))
        assert same(found, streamed(space, k, rows, sorted(among)))
        assert set(found.rows.flatten().tolist()) <= among


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("values", ["grid", "clusters", "offset", "tiny", "huge", "one far away", "all the same"])
def test_difficult_vectors(values, products, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 3, generator=generator, dtype=torch.float64)
    x = {
        "grid": torch.randint(0, 4, (600, 3), generator=generator).double(),
        "clusters": x.round() * 30 + 1e-6 * x,
        "offset": x + 1e8,
        "tiny": x * 1e-18,
        "huge": x * 1e18,
        "one far away": torch.cat((x[:-1], 1e12 + x[-1:])),
        "all the same": x[:1].expand(600, 3),
    }[values]
    if products:
        monkeypatch.setattr(vectors, "_search_on_cpu", vectors._search_by_products)
    expected = (x[:, None] - x[None]).square().sum(2).sqrt().float().fill_diagonal_(torch.inf)
    found = spaces_.nearest(spaces_.VectorLabels(x), 20)
    values_, rows = expected.sort(dim=1, stable=True)
    assert torch.equal(found.rows, rows[:, :20])
    assert torch.equal(found.distances, values_[:, :20])


def test_only_where_rounding_could_hide_a_neighbour_all_are_compared(monkeypatch):
    compared = []
    whole = vectors._nearest_in_gallery
    monkeypatch.setattr(vectors, "_nearest_in_gallery", lambda *a: compared.append(1) or whole(*a))
    generator = torch.Generator().manual_seed(0)
    for dim in (2, 28, 256):
        spaces_.nearest(spaces_.VectorLabels(torch.randn(2000, dim, generator=generator)), 10, range(200))
        assert len(compared) <= 2
    spaces_.nearest(spaces_.VectorLabels(torch.randint(0, 3, (2000, 2), generator=generator)), 10, range(200))
    assert len(compared) >= 200


def test_distances_and_order_of_nearest_vectors():
    x = torch.tensor([[0.0], [3.0], [3.0], [-1.0]])
    found = nearest_vectors(x[:1], x, 3, self_index=torch.tensor([0]))
    assert (found.positions.tolist(), found.values.tolist()) == ([[3, 1, 2]], [[1, 9, 9]])
    assert found.values.dtype == torch.float64
    assert nearest_vectors(x[:1], x, 2, order=lambda d: d.clamp(min=9)).positions.tolist() == [[0, 1]]
    assert nearest_vectors(x[:0], x, 2).positions.shape == (0, 2)


NUMBERS = {
    "ties": st.integers(0, 3),
    "ages": st.integers(-5, 90),
    "real": st.floats(-10, 10),
    "offset": st.integers(0, 9).map(lambda n: 1e9 + n / 8),
    "equal after rounding": st.integers(0, 9).map(lambda n: n * 1e-24),  # the squares are 0 in float32
}


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from([*NUMBERS, "levels"]), data=st.data())
def test_numbers_are_found_by_sorting(kind, data):
    numbers = data.draw(st.lists(NUMBERS.get(kind, NUMBERS["ties"]), min_size=2, max_size=40))
    if kind == "levels":
        space = spaces_.OrdinalLabels(numbers, levels=range(4))
        exact = [[abs(a - b) / 3 for b in numbers] for a in numbers]
    else:
        space = spaces_.NumberLabels(numbers)
        exact = [[abs(a - b) for b in numbers] for a in numbers]
    among = data.draw(st.none() | st.sets(st.integers(0, len(numbers) - 1), min_size=2).map(sorted))
    columns = range(len(numbers)) if among is None else among
    k = data.draw(st.integers(1, len(columns) - 1))
    found = spaces_.nearest(space, k, among=among, memory=data.draw(st.sampled_from([1, 5000, 1 << 28])))
    for row, distances in enumerate(np.float32(exact)):
        expected = sorted((float(distances[column]), column) for column in columns if column != row)[:k]
        assert found.rows[row].tolist() == [column for _, column in expected]
        assert found.distances[row].tolist() == [distance for distance, _ in expected]


def test_a_search_of_numbers_needs_no_block_of_all_pairs(monkeypatch):
    monkeypatch.setattr(spaces_.VectorLabels, "pairwise", None)
    monkeypatch.setattr(spaces_.OrdinalLabels, "pairwise", None)
    widths = []
    kept = vectors._first
    monkeypatch.setattr(vectors, "_first", lambda d, *rest: widths.append(d.shape[1]) or kept(d, *rest))
    ages = torch.arange(3000) % 7
    for space in (spaces_.NumberLabels(ages), spaces_.NumberLabels(torch.ones(3000)), spaces_.OrdinalLabels(ages)):
        spaces_.nearest(space, 5)
    assert max(widths) <= 24


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_vectors_on_a_gpu():
    space = spaces_.VectorLabels(torch.randn(5000, 8, generator=torch.Generator().manual_seed(0)))
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        assert torch.equal(spaces_.nearest(space.to("cuda"), 30).rows.cpu(), spaces_.nearest(space, 30).rows)


def test_the_results_of_a_space_with_its_own_search_are_checked(tmp_path):
    class Own(spaces_.NumberLabels):
        def _nearest(self, k, rows, among, memory, progress):
            assert among.tolist() == [0, 1, 2]
            return torch.full((len(rows), k), torch.nan), among[:k].expand(len(rows), k)

    for options in ({}, {"cache": tmp_path}):
        with refuses("label distance", got="nan"):
            spaces_.nearest(Own([1.0, 2.0, 3.0]), 1, among=[2, 0, 1, 1], **options)
        with refuses("k"):  # there are 2 other items
            spaces_.nearest(Own([1.0, 2.0, 3.0]), 3, among=[2, 0, 1, 1], **options)
    assert not list(tmp_path.glob("*.safetensors"))


def test_progress_counts_rows():
    for space in (spaces_.VectorLabels(torch.arange(1400.0).view(700, 2)), spaces_.ClassLabels(list(range(700)))):
        reported = []
        spaces_.nearest(space, 2, progress=reported.append, memory=1 << 20)
        assert (reported, reported[-1]) == (sorted(reported), 700)
        assert len(reported) > 1


class Clock:
    """Time that passes by a given number of seconds whenever it is asked for."""

    def __init__(self, step):
        self.now, self.step = 1000.0, step

    def monotonic(self):
        self.now += self.step
        return self.now


def shown_by_a_long_search(capsys, monkeypatch):
    """What a search of 60 rows shows on stderr, one minute of it in steps of 6 seconds; stdout stays empty."""
    monkeypatch.setattr(progress, "time", Clock(6.0))
    with progress_bar(60, "neighbours") as report:
        for finished in range(10, 61, 10):
            report(finished)
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_long_search_prints_its_progress_when_piped(capsys, monkeypatch):
    err = shown_by_a_long_search(capsys, monkeypatch)
    # 24 seconds later, so 12 to go
    assert err == "neighbours: 40 of 60, 12 s left\nneighbours: all 60 after 36 s\n"


def test_the_time_left_is_estimated_without_cached_rows(capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(30.0))
    with progress_bar(1000, "rows") as report:
        for finished in (900, 901, 902):
            report(finished)
    left = [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()]
    assert left == ["3 s left", "49.5 min left", "49.0 min left"]


def test_a_long_search_has_a_bar_at_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    err = shown_by_a_long_search(capsys, monkeypatch)
    assert "neighbours" in err
    assert "60/60" in err
    assert " s left" not in err


# ---------------------------------------------------------------------------------------------------------------------
# the cache


class Counted(spaces_.LabelSpace):
    """Numbers on a line that count the rows whose distances are computed; interrupted beyond `limit`."""

    computed = 0
    limit = None

    def __init__(self, values, power=1):
        super().__init__(values=torch.tensor(values, dtype=torch.float64))
        self.power = power

    def distances(self, x, y):
        if Counted.limit is not None and Counted.computed + len(x) > Counted.limit:
            raise KeyboardInterrupt
        Counted.computed += len(x)
        return (x.values[:, None] - y.values).abs() ** self.power


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Counted, "computed", 0)
    monkeypatch.setattr(Counted, "limit", None)
    monkeypatch.setattr(cache, "_ROWS", 10)


def line(n=35, **options):
    return Counted([float(i * i % 17) for i in range(n)], **options)


def test_a_cache_is_read_and_not_computed_again(tmp_path):
    expected = spaces_.nearest(line(), 3)
    Counted.computed = 0
    for folder in (tmp_path / "a" / "b", str(tmp_path / "a" / "b")):
        reported = []
        assert same(spaces_.nearest(line(), 3, cache=folder, progress=reported.append), expected)
        assert (Counted.computed, reported[-1]) == (35, 35)
    assert len([*(tmp_path / "a" / "b").rglob("*.safetensors")]) == 4


def test_a_result_that_another_process_writes_meanwhile_is_kept(tmp_path, monkeypatch):
    expected = spaces_.nearest(line(), 3)
    read, stale = cache._SearchParts.load, []

    def load(*arguments):
        result = read(*arguments)
        if not stale:
            stale.append(result)
            spaces_.nearest(line(), 3, cache=tmp_path)  # by the other process
        return result

    Counted.computed = 0
    monkeypatch.setattr(cache._SearchParts, "load", load)
    assert same(spaces_.nearest(line(), 3, cache=tmp_path), expected)
    assert (stale, Counted.computed) == ([None], 35)


def test_an_interrupted_search_continues_where_it_stopped(tmp_path):
    expected = spaces_.nearest(line(), 3)
    Counted.computed, Counted.limit = 0, 25
    with pytest.raises(KeyboardInterrupt):
        spaces_.nearest(line(), 3, cache=tmp_path)
    assert Counted.computed == 20
    Counted.limit = None
    reported = []
    assert same(spaces_.nearest(line(), 3, cache=tmp_path, memory=1000, progress=reported.append), expected)
    assert (Counted.computed, reported, len(list(tmp_path.iterdir()))) == (35, [20, 30, 35], 1)


def test_a_change_of_anything_is_another_key(tmp_path):
    def found(space, k=3, **options):
        before = Counted.computed
        assert same(spaces_.nearest(space, k, cache=tmp_path, **options), spaces_.nearest(space, k, **options))
        return Counted.computed - before

    assert found(line()) == 70  # once for the cache, once to compare
    changed = line()
    changed.values[20] += 1e-9
    assert (found(changed), found(line(power=2)), found(line()[range(34)]), found(line(), k=4)) == (70, 70, 68, 70)
    assert (found(line(), rows=[3, 1]), found(line(), rows=[1, 3]), found(line(), among=range(20))) == (4, 4, 70)
    named = line()
    named.unit = "apples"  # words do not change a distance
    assert (found(named), len(list(tmp_path.iterdir()))) == (35, 8)


def test_a_fingerprint_depends_on_content_alone():
    vectors = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    spaces = [
        spaces_.VectorLabels(vectors),
        spaces_.TeacherLabels(vectors),
        spaces_.VectorLabels(vectors.flip(0)),
        spaces_.NumberLabels(vectors.flatten()),
        spaces_.PoseLabels(vectors[None].expand(6, 6, 2)),
        spaces_.ClassLabels([0, 1, 2]),
        spaces_.ClassLabels([0, 1, 1]),
        spaces_.TagLabels([["a"], ["b"]]),
        spaces_.SegmentationLabels(np.zeros((2, 3, 3), dtype=np.uint8), 2),
        spaces_.SegmentationLabels(np.zeros((2, 3, 3), dtype=np.uint8), 3),
        spaces_.SegmentationLabels(np.zeros((2, 3, 3), dtype=np.uint8), 2, side=8),
        spaces_.WeightedLabels({spaces_.VectorLabels(vectors): 1.0}),
        spaces_.WeightedLabels({spaces_.VectorLabels(vectors): 2.0}),
        spaces_.ThresholdLabels(spaces_.VectorLabels(vectors), 1.0),
        spaces_.ThresholdLabels(spaces_.VectorLabels(vectors), 2.0),
        spaces_.ThresholdLabels(spaces_.VectorLabels(vectors.flip(0)), 1.0),
        spaces_.NearestLabels(spaces_.VectorLabels(vectors), 1),
        spaces_.NearestLabels(spaces_.VectorLabels(vectors), 2),
        spaces_.NearestLabels(spaces_.VectorLabels(vectors), 2)[[0, 1]],
    ]
    prints = [space.fingerprint() for space in spaces]
    assert len(set(prints)) == len(spaces)
    assert spaces_.VectorLabels(vectors.clone(), unit="years").fingerprint() == prints[0]
    assert [space.to("cpu").fingerprint() for space in spaces] == prints
    assert fingerprint("a", "b") != fingerprint("ab")
    assert fingerprint([1], [2]) != fingerprint([1, 2])
    assert fingerprint(1) != fingerprint(True) != fingerprint(1.0)
    assert fingerprint({"x", "y", "z"}) == fingerprint({"z", "y", "x"})
    assert fingerprint(torch.tensor(1.5)) != fingerprint(torch.tensor([1.5]))
    assert fingerprint(torch.ones(2, dtype=torch.bfloat16)) != fingerprint(torch.zeros(2, dtype=torch.bfloat16))
    assert fingerprint(np.ones(2)) != fingerprint(np.ones(2, dtype=np.float32))


def test_a_precomputed_matrix_is_read_for_its_key(tmp_path):
    def saved(matrix):
        np.save(tmp_path / "d.npy", matrix)
        return spaces_.MatrixLabels(tmp_path / "d.npy")

    d = spaces_.NumberLabels(torch.arange(8.0)).pairwise().numpy()
    first = saved(d)
    key, part = first.fingerprint(), first[[0, 1, 2]].fingerprint()
    assert saved(d).fingerprint() == key != part
    assert saved(2 * d).fingerprint() != key


def test_a_space_of_unknown_content_is_not_cached(tmp_path):
    class Bare(Counted):
        def __init__(self, values):
            super().__init__(values)
            self.model = object()

    missing_key = {"subject": "cache", "got": "object", "hint": "fingerprint()"}
    bare = Bare([1.0, 2.0])
    for space in (bare, bare[[0, 1]], spaces_.ThresholdLabels(bare, 1.0), spaces_.WeightedLabels({bare: 2})):
        with refuses(**missing_key):
            spaces_.nearest(space, 1, cache=tmp_path)
        with refuses(**missing_key):
            spaces_.NearestLabels(space, 1, tmp_path)
    with_model = line()
    with_model.model = object()
    refused(lambda: spaces_.nearest(with_model, 3, cache=tmp_path), **missing_key)
    assert not list(tmp_path.iterdir())
    assert Counted.computed == 0

    class Named(Bare):
        def fingerprint(self):
            return fingerprint(type(self), self.values)

    for space in (Named([1.0, 2.0]), spaces_.ThresholdLabels(Named([1.0, 2.0]), 1.0)):
        assert same(spaces_.nearest(space, 1, cache=tmp_path), spaces_.nearest(space, 1))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("part", [False, True])
def test_a_damaged_file_is_computed_again(tmp_path, monkeypatch, part):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # takes most of the time
    monkeypatch.setattr(cache, "_ROWS", 10 if part else 100)
    expected = spaces_.nearest(line(), 3)

    Counted.computed, Counted.limit = 0, 15 if part else None
    with pytest.raises(KeyboardInterrupt) if part else nullcontext():
        spaces_.nearest(line(), 3, cache=tmp_path)
    Counted.limit = None
    (path,) = tmp_path.rglob("*.safetensors")
    whole, random = path.read_bytes(), Random(5)
    for _ in range(60):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_changed(whole, random))
        assert same(spaces_.nearest(line(), 3, cache=tmp_path), expected)
        shutil.rmtree(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("rows", 35), ("distances", float("nan"))])
def test_a_file_with_right_checksums_and_impossible_neighbours_is_computed_again(tmp_path, name, value):
    among = range(30)
    expected = spaces_.nearest(line(), 3, among=among, cache=tmp_path)
    path = min(tmp_path.rglob("*.safetensors"))
    tensors, values = load_tensors(path)
    tensors[name][1, 1] = value
    save_tensors(path, tensors, **values)
    assert same(spaces_.nearest(line(), 3, among=among, cache=tmp_path), expected)


def test_labels_and_samplers_of_the_next_run_read_the_cache(tmp_path):
    def computed_by(make):
        before = Counted.computed
        assert np.array_equal(make().neighbours, spaces_.nearest(line(), 3).rows)
        return Counted.computed - before - 35

    assert computed_by(lambda: spaces_.NearestLabels(line(), 3, tmp_path)) == 35
    assert computed_by(lambda: spaces_.NearestLabels(line(), 3, tmp_path)) == 0
    assert computed_by(lambda: DenseSampler(10, neighbours=3, cache=tmp_path, labels=line())) == 0
    assert computed_by(lambda: spaces_.NearestLabels(line(), 3)) == 35
    path = min(tmp_path.rglob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])
    assert computed_by(lambda: spaces_.NearestLabels(line(), 3, tmp_path)) == 10
    assert computed_by(lambda: spaces_.NearestLabels(line(), 3, tmp_path)) == 0


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("")
    with refuses(str(tmp_path / "file"), got="cannot be written"):
        spaces_.nearest(line(), 3, cache=tmp_path / "file")
    assert Counted.computed == 0  # refused before the search
    monkeypatch.setattr("contml._support.tensors.save_file", full)
    with refuses("000000000-000000010.safetensors", got="No space left on device"):
        spaces_.nearest(line(), 3, cache=tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# the table


def test_the_docs_name_every_label_space():
    lines = (ROOT / "docs" / "engine.md").read_text().splitlines()
    start = lines.index(next(line for line in lines if line.startswith("| label space (`LABELS`)")))
    named = [line.split("`")[1] for line in lines[start + 2 : lines.index("", start)]]
    assert sorted(named) == sorted(spaces_.LABELS)
    spaces, base = spaces_.LABELS.items(), spaces_.LabelSpace
    searching = {name for name, space in spaces if space._nearest is not base._nearest}
    searching |= {name for name, space in spaces if space._compared_by is not base._compared_by}
    second = [line.split("|")[1] for line in lines[lines.index("", start) :] if line.startswith("| `")]
    assert searching == {name for cell in second for name in re.findall("`(.+?)`", cell)}
