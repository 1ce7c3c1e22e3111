"""Nearest neighbours: every backend gives what streaming gives; the cache is never stale, resumes, and tells damage."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.paths import ROOT
from support.strategies import label_vectors

from contml import InputError
from contml._support import progress
from contml._support.progress import progress_bar
from contml.distances import nearest_vectors, vectors
from contml.distances.cache import fingerprint
from contml.labels import (
    LABELS,
    ClassLabels,
    LabelSpace,
    NearestLabels,
    PoseLabels,
    PrecomputedLabels,
    SegmentationLabels,
    TagLabels,
    ThresholdLabels,
    VectorLabels,
    WeightedLabels,
    nearest,
)
from contml.sampling import DenseSampler

cache = sys.modules["contml.distances.cache"]


def streamed(space, k, rows=None, among=None):
    """By streaming, whatever else the space can do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(space), "_nearest", LabelSpace._nearest)
        return nearest(space, k, rows, among=among)


def same(a, b):
    return torch.equal(a.rows, b.rows) and torch.equal(a.distances, b.distances)


def raises(message, make):
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value) == message


def by_products(queries, gallery):
    """What runs on a GPU, here on the CPU."""
    return vectors._products(gallery)


# ---------------------------------------------------------------------------------------------------------------------
# vectors


@settings(max_examples=60, deadline=None)
@given(values=label_vectors(max_size=30), squared=st.booleans(), products=st.booleans(), data=st.data())
def test_vectors_as_streaming_gives_them(values, squared, products, data):
    space = VectorLabels(values, squared=squared)
    n = len(space)
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=6))
    among = data.draw(st.sets(st.integers(0, n - 1), min_size=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_SPARE", data.draw(st.sampled_from([0, 3, 32])))
        patch.setattr(vectors, "_COLUMNS", 5)
        if products:
            patch.setattr(vectors, "_faiss", vectors._products)
        k = data.draw(st.integers(1, n - 1))
        assert same(nearest(space, k, memory=data.draw(st.sampled_from([1, 1 << 28]))), streamed(space, k))
        k = data.draw(st.integers(1, len(among) - 1))
        found = nearest(space, k, rows, among=sorted(among))
        assert same(found, streamed(space, k, rows, sorted(among)))
        assert set(found.rows.flatten().tolist()) <= among


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("values", ["grid", "clusters", "offset", "tiny", "huge", "one far away", "all the same"])
def test_awkward_vectors(values, products, monkeypatch):
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
        monkeypatch.setattr(vectors, "_faiss", vectors._products)
    for squared in (True, False):
        exact = (x[:, None] - x[None]).square().sum(2)
        expected = (exact if squared else exact.sqrt()).float().fill_diagonal_(torch.inf)
        found = nearest(VectorLabels(x, squared=squared), 20)
        values_, rows = expected.sort(dim=1, stable=True)
        assert torch.equal(found.rows, rows[:, :20])
        assert torch.equal(found.distances, values_[:, :20])


def test_only_what_rounding_could_hide_is_compared_with_all(monkeypatch):
    compared = []
    whole = vectors._whole
    monkeypatch.setattr(vectors, "_whole", lambda *a: compared.append(1) or whole(*a))
    generator = torch.Generator().manual_seed(0)
    for dim in (1, 28, 256):
        nearest(VectorLabels(torch.randn(2000, dim, generator=generator)), 10, range(200))
        assert len(compared) <= 2
    nearest(VectorLabels(torch.randint(0, 3, (2000,), generator=generator)), 10, range(200))
    assert len(compared) >= 200


def test_distances_and_order_of_nearest_vectors():
    x = torch.tensor([[0.0], [3.0], [3.0], [-1.0]])
    found = nearest_vectors(x[:1], x, 3, itself=torch.tensor([0]))
    assert found.positions.tolist() == [[3, 1, 2]]
    assert found.values.tolist() == [[1, 9, 9]]
    assert found.values.dtype == torch.float64
    assert nearest_vectors(x[:1], x, 2, order=lambda d: d.clamp(min=9)).positions.tolist() == [[0, 1]]
    assert nearest_vectors(x[:0], x, 2).positions.shape == (0, 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_vectors_on_a_gpu():
    space = VectorLabels(torch.randn(5000, 8, generator=torch.Generator().manual_seed(0)))
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        found = nearest(space.to("cuda"), 30)
        assert torch.equal(found.rows.cpu(), nearest(space, 30).rows)


def test_a_space_that_searches_by_itself_is_held_to_the_rules(tmp_path):
    class Own(VectorLabels):
        def _nearest(self, k, rows, among, memory, progress):
            assert among.tolist() == [0, 1, 2]
            return torch.full((len(rows), k), torch.nan), among[:k].expand(len(rows), k)

    for options in ({}, {"cache": tmp_path}):
        with pytest.raises(InputError, match="a label distance is nan"):
            nearest(Own([1.0, 2.0, 3.0]), 1, among=[2, 0, 1, 1], **options)
        raises(
            "k is 3, but there are 2 items to choose neighbours from; k must be 1 to 2",
            lambda options=options: nearest(Own([1.0, 2.0, 3.0]), 3, among=[2, 0, 1, 1], **options),
        )
    assert not list(tmp_path.glob("*.safetensors"))


def test_progress_counts_rows():
    for space in (VectorLabels(torch.arange(700.0)), ClassLabels(list(range(700)))):
        told = []
        nearest(space, 2, progress=told.append, memory=1 << 20)
        assert told == sorted(told)
        assert told[-1] == 700
        assert len(told) > 1


class Clock:
    """Time that passes by a given number of seconds whenever it is asked for."""

    def __init__(self, step):
        self.now, self.step = 1000.0, step

    def monotonic(self):
        self.now += self.step
        return self.now


def test_a_long_search_tells_how_far_it_is_when_piped(capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(6.0))
    with progress_bar(60, "neighbours") as tell:
        for finished in range(10, 61, 10):
            tell(finished)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "neighbours: 40 of 60, 0.2 min left\n"  # 24 seconds later, so 12 to go
        "neighbours: all 60 after 0.6 min\n"
    )


def test_the_time_left_is_told_by_what_was_not_in_the_cache(capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(30.0))
    with progress_bar(1000, "rows") as tell:
        for finished in (900, 901, 902):
            tell(finished)
    assert [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "0.1 min left",
        "49.5 min left",
        "49.0 min left",
    ]


@pytest.mark.parametrize("piped", [True, False])
def test_a_short_search_shows_nothing(capsys, monkeypatch, piped):
    if not piped:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with progress_bar(700) as tell:
        nearest(VectorLabels(torch.arange(700.0)), 2, progress=tell)
    assert capsys.readouterr() == ("", "")


def test_a_long_search_has_a_bar_at_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(progress, "time", Clock(6.0))
    with progress_bar(60, "neighbours") as tell:
        for finished in range(10, 61, 10):
            tell(finished)
    out, err = capsys.readouterr()
    assert out == ""
    assert "neighbours" in err
    assert "60/60" in err
    assert "min left" not in err


def test_a_search_that_fails_ends_its_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(progress, "time", Clock(6.0))

    def search(tell):
        tell(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), progress_bar(60) as tell:
        search(tell)
    assert capsys.readouterr().err.endswith("\x1b[?25h"), "the cursor is back"


# ---------------------------------------------------------------------------------------------------------------------
# the cache


class Counted(LabelSpace):
    """Numbers on a line that count how many rows are asked for; may give up after some."""

    asked = 0
    limit = None

    def __init__(self, values, power=1):
        super().__init__(values=torch.tensor(values, dtype=torch.float64))
        self.power = power

    def distances(self, x, y):
        if Counted.limit is not None and Counted.asked + len(x) > Counted.limit:
            raise KeyboardInterrupt
        Counted.asked += len(x)
        return (x.values[:, None] - y.values).abs() ** self.power


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Counted, "asked", 0)
    monkeypatch.setattr(Counted, "limit", None)
    monkeypatch.setattr(cache, "_ROWS", 10)


def line(n=35, **options):
    return Counted([float(i * i % 17) for i in range(n)], **options)


def test_a_cache_is_read_and_not_computed_again(tmp_path):
    expected = nearest(line(), 3)
    Counted.asked = 0
    for folder in (tmp_path / "a" / "b", str(tmp_path / "a" / "b")):
        told = []
        assert same(nearest(line(), 3, cache=folder, progress=told.append), expected)
        assert Counted.asked == 35
        assert told[-1] == 35
    assert [p.suffix for p in (tmp_path / "a" / "b").iterdir()] == [".safetensors"]


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path):
    expected = nearest(line(), 3)
    Counted.asked, Counted.limit = 0, 25
    with pytest.raises(KeyboardInterrupt):
        nearest(line(), 3, cache=tmp_path)
    assert Counted.asked == 20
    Counted.limit = None
    told = []
    found = nearest(line(), 3, cache=tmp_path, memory=1000, progress=told.append)
    assert same(found, expected)
    assert Counted.asked == 35
    assert told[:2] == [10, 20]
    assert told == sorted(told)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_change_of_anything_is_another_key(tmp_path):
    def found(space, k=3, **options):
        before = Counted.asked
        result = nearest(space, k, cache=tmp_path, **options)
        assert same(result, nearest(space, k, **options))
        return Counted.asked - before

    assert found(line()) == 70  # once for the cache, once to compare
    changed = line()
    changed.values[20] += 1e-9
    assert found(changed) == 70
    assert found(line(power=2)) == 70
    assert found(line()[range(34)]) == 68
    assert found(line(), k=4) == 70
    assert found(line(), rows=[3, 1]) == 4
    assert found(line(), rows=[1, 3]) == 4
    assert found(line(), among=range(20)) == 70
    named = line()
    named.unit = "apples"  # words do not change a distance
    assert found(named) == 35
    assert len(list(tmp_path.iterdir())) == 8


def test_a_fingerprint_is_of_content():
    vectors = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    spaces = [
        VectorLabels(vectors),
        VectorLabels(vectors, squared=False),
        VectorLabels(vectors.flip(0)),
        VectorLabels(vectors.flatten()),
        PoseLabels(vectors[None].expand(6, 6, 2)),
        ClassLabels([0, 1, 2]),
        ClassLabels([0, 1, 1]),
        TagLabels([["a"], ["b"]]),
        SegmentationLabels(np.zeros((2, 3, 3), dtype=np.uint8), 2),
        SegmentationLabels(np.zeros((2, 3, 3), dtype=np.uint8), 3),
        SegmentationLabels(np.zeros((2, 3, 3), dtype=np.uint8), 2, side=8),
        WeightedLabels({VectorLabels(vectors): 1.0}),
        WeightedLabels({VectorLabels(vectors): 2.0}),
        ThresholdLabels(1.0, space=VectorLabels(vectors)),
        ThresholdLabels(2.0, space=VectorLabels(vectors)),
        ThresholdLabels(1.0, space=VectorLabels(vectors.flip(0))),
        NearestLabels(1, space=VectorLabels(vectors)),
        NearestLabels(2, space=VectorLabels(vectors)),
        NearestLabels(2, space=VectorLabels(vectors))[[0, 1]],
    ]
    prints = [space.fingerprint() for space in spaces]
    assert len(set(prints)) == len(spaces)
    assert VectorLabels(vectors.clone(), unit="years").fingerprint() == prints[0]
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
        return PrecomputedLabels(tmp_path / "d.npy")

    d = VectorLabels(torch.arange(8.0)).pairwise().numpy()
    first = saved(d)
    key, part = first.fingerprint(), first[[0, 1, 2]].fingerprint()
    assert saved(d).fingerprint() == key != part
    assert saved(2 * d).fingerprint() != key


def test_a_space_of_unknown_content_is_not_cached(tmp_path):
    class Bare(Counted):
        def __init__(self, values):
            super().__init__(values)
            self.model = object()

    message = (
        "object among the labels or their options has no content to make a cache key of; "
        "leave cache out, or give the label space a fingerprint() of its own"
    )
    bare = Bare([1.0, 2.0])
    for space in (bare, bare[[0, 1]], ThresholdLabels(1.0, space=bare), WeightedLabels({bare: 2})):
        raises(message, lambda space=space: nearest(space, 1, cache=tmp_path))
        raises(message, lambda space=space: NearestLabels(1, tmp_path, space=space))
    odd = line()
    odd.model = object()
    raises(message, lambda: nearest(odd, 3, cache=tmp_path))
    assert not list(tmp_path.iterdir())
    assert Counted.asked == 0

    class Named(Bare):
        def fingerprint(self):
            return fingerprint(type(self), self.values)

    for space in (Named([1.0, 2.0]), ThresholdLabels(1.0, space=Named([1.0, 2.0]))):
        assert same(nearest(space, 1, cache=tmp_path), nearest(space, 1))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("size", [0, 5, 100, -1])
@pytest.mark.parametrize("part", [False, True])
def test_a_file_cut_short_is_told(tmp_path, size, part):
    if part:
        Counted.limit = 15
        with pytest.raises(KeyboardInterrupt):
            nearest(line(), 3, cache=tmp_path)
        Counted.limit = None
    else:
        nearest(line(), 3, cache=tmp_path)
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError) as error:
        nearest(line(), 3, cache=tmp_path)
    message = str(error.value)
    assert message.startswith(f"{path}: cut short or damaged (")
    assert message.endswith("); delete it, and it is computed again")
    assert "\n" not in message
    path.unlink()
    assert same(nearest(line(), 3, cache=tmp_path), nearest(line(), 3))


def test_a_file_of_another_search_is_told(tmp_path):
    nearest(line(), 3, cache=tmp_path)
    (three,) = tmp_path.iterdir()
    content = three.read_bytes()
    three.unlink()
    nearest(line(), 4, cache=tmp_path)
    (four,) = tmp_path.iterdir()
    four.write_bytes(content)
    raises(
        f"{four}: not the neighbours that its name promises; delete it, and it is computed again",
        lambda: nearest(line(), 4, cache=tmp_path),
    )


def test_labels_and_a_sampler_of_the_next_run_read_what_the_last_one_found(tmp_path):
    def asked(make):
        before = Counted.asked
        made = make()
        assert np.array_equal(made.neighbours, nearest(line(), 3).rows)
        return Counted.asked - before - 35

    assert asked(lambda: NearestLabels(3, tmp_path, space=line())) == 35
    assert asked(lambda: NearestLabels(3, tmp_path, space=line())) == 0
    assert asked(lambda: DenseSampler(10, neighbours=3, cache=tmp_path, labels=line())) == 0
    assert asked(lambda: NearestLabels(3, space=line())) == 35
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    for make in (
        lambda: NearestLabels(3, tmp_path, space=line()),
        lambda: DenseSampler(10, neighbours=3, cache=tmp_path, labels=line()),
    ):
        with pytest.raises(InputError) as error:
            make()
        assert str(error.value).startswith(f"{path}: cut short or damaged (")
        assert str(error.value).endswith("); delete it, and it is computed again")
        assert "\n" not in str(error.value)


def test_a_home_folder_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    nearest(line(), 3, cache="~/kept")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_neighbours_of_labels_as_zero_and_one_are_cached(tmp_path):
    for labels in (ThresholdLabels(20.0, space=line()), NearestLabels(4, space=line())):
        expected = nearest(labels, 3)
        assert same(nearest(labels, 3, cache=tmp_path), expected)
        before = Counted.asked
        assert same(nearest(labels, 3, cache=tmp_path), expected)
        assert Counted.asked == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write the cache .*/file: .*; give another folder"):
        nearest(line(), 3, cache=tmp_path / "file")
    assert Counted.asked == 0  # before the search, not after
    monkeypatch.setattr(cache, "save_file", full)
    with pytest.raises(InputError, match=r"cannot write the cache .*000000000.safetensors: .*; give another folder"):
        nearest(line(), 3, cache=tmp_path)


def test_two_processes_that_search_the_same(tmp_path, monkeypatch):
    expected = nearest(line(), 3)
    asked = Counted.distances

    def other_one_first(self, x, y):
        monkeypatch.setattr(Counted, "distances", asked)
        assert same(nearest(line(), 3, cache=tmp_path), expected)
        return asked(self, x, y)

    monkeypatch.setattr(Counted, "distances", other_one_first)
    assert same(nearest(line(), 3, cache=tmp_path), expected)
    assert len(list(tmp_path.iterdir())) == 1


def test_no_rows(tmp_path):
    assert nearest(line(), 3, [], cache=tmp_path).rows.shape == (0, 3)
    assert nearest(line(), 3, [], cache=tmp_path).rows.shape == (0, 3)
    assert nearest(VectorLabels(torch.arange(5.0)), 3, []).rows.shape == (0, 3)


# ---------------------------------------------------------------------------------------------------------------------
# the table


def test_the_docs_name_every_label_space():
    lines = (ROOT / "docs" / "engine.md").read_text().splitlines()
    start = lines.index(next(line for line in lines if line.startswith("| label space (`LABELS`)")))
    named = [line.split("`")[1] for line in lines[start + 2 : lines.index("", start)]]
    assert sorted(named) == sorted(LABELS)
    searching = {name for name, space in LABELS.items() if space._nearest is not LabelSpace._nearest}
    second = lines[lines.index("", start) :]
    assert searching == {line.split("`")[1] for line in second if line.startswith("| `")}
