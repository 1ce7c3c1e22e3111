"""Drawn data sets are kept on disk, by all that the items depend on."""

import os

import numpy as np
import pytest

from contml.data import drawings, drawn
from contml.tasks.classes.drawn_beetles import synthetic as beetles
from contml.tasks.layout.drawn_rooms import synthetic as rooms

_DRAWN: list[tuple[int, int, int]] = []


def _draw(seed, number, size):
    _DRAWN.append((seed, number, size))
    return np.random.default_rng([seed, number]).integers(0, 256, (size, size, 3), np.uint8), np.array(number / 2)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The folder of the cache, empty, that also keeps what takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(drawings, "_LEAST_SECONDS", -1.0)
    _DRAWN.clear()
    return tmp_path / "contml" / "drawn"


def test_items_are_drawn_once_for_each_seed_numbers_and_size(cache, monkeypatch):
    first = drawn(_draw, 0, range(5), 8, "things")
    assert [(0, n, 8) for n in range(5)] == _DRAWN
    assert first[0].shape == (5, 8, 8, 3)
    assert first[1].tolist()[1] == 0.5
    again = drawn(_draw, 0, range(5), 8, "things")
    assert len(_DRAWN) == 5
    for a, b in zip(first, again, strict=True):
        assert a.dtype == b.dtype
        assert b.flags.writeable
        np.testing.assert_array_equal(a, b)
    for seed, numbers, size in ((1, range(5), 8), (0, range(1, 6), 8), (0, range(5), 9)):
        _DRAWN.clear()
        drawn(_draw, seed, numbers, size, "things")
        assert len(_DRAWN) == 5
    _DRAWN.clear()
    monkeypatch.setattr(drawings, "version", lambda name: "0.0")  # another numpy may draw other items
    drawn(_draw, 0, range(5), 8, "things")
    assert len(_DRAWN) == 5


def test_another_source_draws_anew(cache, monkeypatch, tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    monkeypatch.setattr("inspect.getfile", lambda _: str(tmp_path / "a.py"))
    drawn(_draw, 0, range(3), 8, "things")
    (tmp_path / "b.py").write_text("y = 1")  # any file of the package
    drawn(_draw, 0, range(3), 8, "things")
    assert len(_DRAWN) == 6


def test_a_damaged_file_is_drawn_again(cache):
    first = drawn(_draw, 0, range(5), 8, "things")
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    np.testing.assert_array_equal(drawn(_draw, 0, range(5), 8, "things")[1], first[1])
    assert len(_DRAWN) == 10
    drawn(_draw, 0, range(5), 8, "things")
    assert len(_DRAWN) == 10  # it was repaired


def test_a_folder_that_cannot_be_written_is_no_error(cache):
    cache.parent.mkdir()
    cache.write_text("a file")
    assert len(drawn(_draw, 0, range(5), 8, "things")[0]) == 5


def test_sets_that_were_not_read_for_longest_are_removed(cache, monkeypatch):
    drawn(_draw, 0, range(5), 8, "things")
    (path,) = cache.iterdir()
    monkeypatch.setattr(drawings, "_MAX_BYTES", 2 * path.stat().st_size)
    os.utime(path, (1, 1))
    drawn(_draw, 1, range(5), 8, "things")
    drawn(_draw, 0, range(5), 8, "things")  # read: now the newest
    (other,) = set(cache.iterdir()) - {path}
    os.utime(other, (1, 1))
    drawn(_draw, 2, range(5), 8, "things")
    assert path.exists()
    assert not other.exists()
    assert len(list(cache.iterdir())) == 2


def test_what_is_drawn_at_once_is_not_kept(cache, monkeypatch):
    monkeypatch.setattr(drawings, "_LEAST_SECONDS", 0.5)
    drawn(_draw, 0, range(2), 8, "things")
    assert not cache.exists()


SMALL = {"train": 5, "val": 4, "test": 6, "queries": 2, "size": 16}
TASKS = {"rooms": lambda: rooms(**SMALL), "beetles": lambda: beetles(2, 3, 2, 3, 2, 3, 16)}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_read_from_the_cache_is_the_task_that_was_drawn(cache, monkeypatch, name):
    first = TASKS[name]()
    assert set(cache.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(drawings, "progress_bar", None)  # nothing is drawn
        again = TASKS[name]()
    for split, same in zip(first.splits.values(), again.splits.values(), strict=True):
        assert list(split.names) == list(same.names)
        assert split.labels.digests() == same.labels.digests()
        for row in range(len(split)):
            np.testing.assert_array_equal(np.asarray(split.image(row)), np.asarray(same.image(row)))
