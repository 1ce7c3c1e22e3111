"""The record of a run's data: written, read, compared with the data of today."""

from dataclasses import replace

import pytest
import torch
from support.images import noise
from support.label_spaces import SPACES
from support.refusals import refused, refuses

from contml.data import Pixels, Split, Task, identity
from contml.data.identity import DataRecord, item_names, with_recorded_items
from contml.data.split import query_split
from contml.labels import NumberLabels


def split_of(items, folder="", **options):
    """A split of items by name, each with a number as its label."""
    images, labels = [Pixels(pixels) for pixels in noise(len(items), 4, 4)], NumberLabels([*map(float, items.values())])
    return Split(images, [folder + name for name in items], labels, **options)


TRAIN = {"a": 1, "b": 2, "c": 3, "d": 4}
TEST = {"v": 5, "w": 6, "x": 7}


def record_of(train=TRAIN, test=TEST, val=None, **options):
    return DataRecord.of(Task(split_of(train), split_of(test), None if val is None else split_of(val), **options))


def test_saved_and_loaded(tmp_path):
    record = record_of({"a": 1, "ü \udcff/b": 2})
    path = tmp_path / "data.safetensors"
    record.save(path)
    assert DataRecord.load(path) == record
    assert DataRecord.load(path).changes(record) == []
    first = path.read_bytes()
    record.save(path)
    assert path.read_bytes() == first  # no time in it


@pytest.mark.parametrize("spoil", [lambda content: content[:20], lambda content: content[:-12] + bytes(12)])
def test_a_damaged_record_is_refused(tmp_path, spoil):
    path = tmp_path / "data.safetensors"
    record_of().save(path)
    path.write_bytes(spoil(path.read_bytes()))
    refused(lambda: DataRecord.load(path), str(path), got="cannot be read")


def changes(train=TRAIN, test=TEST, **options):
    return record_of().changes(record_of(train, test, **options))


def test_changes_are_counted_by_split():
    assert changes(dict(reversed(TRAIN.items())), dict(reversed(TEST.items()))) == []
    assert changes({**TRAIN, "e": 9, "f": 9}) == ["training items: 2 added (e)"]
    assert changes(test={"v": 5}) == ["test items: 2 removed (w)"]
    assert changes(test={**TEST, "w": 1}) == ["test items: 1 with another label (w)"]
    assert changes({"a": 1, "b": 2, "c": 3, "z": 4}) == ["training items: 1 added (z), 1 removed (d)"]
    moved = changes({"a": 1, "b": 2, "c": 3}, {**TEST, "d": 4})
    assert moved == ["training items: 1 moved to another split (d)", "test items: 1 moved from another split (d)"]
    assert changes({**TRAIN, "a": 2, "b": 1})[0] == "training items: 2 with another label (a)"
    assert changes(val={"n": 1, "o": 2}) == ["validation items: 2 added (n)"]
    assert changes({**TRAIN, **{str(number): 0 for number in range(1200)}}) == ["training items: 1,200 added (0)"]


def test_other_queries_are_a_change():
    def record(queries):
        rows = query_split(queries, 4)
        return DataRecord.of(Task(split_of(TRAIN), split_of(TRAIN, queries=rows[0], gallery=rows[1])))

    assert record([0, 1]).changes(record([1, 0])) == []
    assert record([0, 1]).changes(record([0, 2])) == ["test items: 2 moved between queries and gallery (b)"]
    assert record([0, 1]).changes(record([])) == ["test items: 2 moved between queries and gallery (a)"]


@pytest.mark.parametrize(("folder", "root"), [
    ("own/", "own"), ("own/", "own/../own"), ("./own/", "own"), ("/data/own/", "/data/own"), ("../own/", "../own"),
    ("", "."),
])  # fmt: skip
def test_names_are_those_below_the_root(folder, root):
    items = {"a.png": 1, "b/c.png": 2, "own/d.png": 3}
    assert item_names(split_of(items, folder), root) == [*items]


def test_a_folder_is_no_prefix_of_another():
    assert item_names(split_of({"a": 1}, "own2/"), "own") == ["own2/a"]


def test_items_that_share_a_name_are_numbered():
    twice = replace(split_of(TEST), names=["a", "b", "a"])
    assert item_names(twice) == ["a", "b", "a (2)"]
    record = DataRecord.of(Task(twice, twice))  # names may be those of other splits
    assert record.changes(DataRecord.of(Task(twice, twice.subset([0, 1])))) == ["test items: 1 removed (a (2))"]
    assert record.changes(DataRecord.of(Task(twice, twice.subset([2, 1])))) == [
        "test items: 1 removed (a (2)), 1 with another label (a)"
    ]
    assert DataRecord.of(Task(twice, twice.subset([0, 1]))).changes(record) == ["test items: 1 added (a (2))"]


def test_recorded_items_are_restored_in_their_order():
    rows = query_split([1], 3)
    task = Task(split_of(TRAIN), split_of(TEST, queries=rows[0], gallery=rows[1]), val_groups=["p", "q", "r", "s"])
    record = DataRecord.of(task)
    test = task.test.subset([2, 1, 0])
    found = with_recorded_items(Task(task.train.subset([3, 1, 2, 0]), test, val_groups=["s", "q", "r", "p"]), record)
    assert list(found.train.names) == [*TRAIN]
    assert found.val_groups == ["p", "q", "r", "s"]
    assert list(found.test.names) == [*TEST]
    assert found.test.queries.tolist() == [1]
    assert torch.equal(found.test.labels.pairwise(), task.test.labels.pairwise())
    assert DataRecord.of(found) == record


def test_added_items_are_omitted_and_removed_ones_are_gone():
    record = record_of()
    today = Task(split_of({"new": 0, "d": 4, "a": 1}), split_of({"x": 8, "other": 0, "v": 5}))
    found = with_recorded_items(today, record)
    assert list(found.train.names) == ["a", "d"]
    assert list(found.test.names) == ["v", "x"]
    assert found.test.labels.values[:, 0].tolist() == [5, 8]  # today's label
    with refuses("test items", got="none", hint="restore"):
        with_recorded_items(Task(split_of(TRAIN), split_of({"other": 0})), record)


@pytest.mark.parametrize("name", SPACES)
def test_labels_that_are_hashed_in_parts_have_the_same_hashes(name, monkeypatch, tmp_path):
    labels = SPACES[name](tmp_path)
    whole = [*labels.digests()]
    monkeypatch.setattr(identity, "_HASHED", 7)
    assert [*identity._hashes(labels)] == whole
    assert len(set(whole)) > 1
