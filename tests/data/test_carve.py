"""A validation split drawn from the training split: what stays together, and what a subset of a split keeps."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from support.images import noise
from support.label_spaces import SPACES
from support.refusals import refused

from contml.data import Pixels, Split, Task
from contml.data.carve import with_validation
from contml.data.split import View, query_split
from contml.labels import ClassLabels, NumberLabels


def draw_row(picture, row, size):
    """A picture whose colour is its row."""
    return Image.new("RGB", (size, size), (row, 0, 0))


def explain_rows(pair, pictures, size):
    """A picture whose colour is its two rows."""
    return [("both", Image.new("RGB", (size, size), (*pair, 0)))]


def split_of(labels, start=0):
    images = [Pixels(pixels) for pixels in noise(len(labels), 4, 4, seed=start)]
    names, view = [f"{start + row}.png" for row in range(len(labels))], View(draw_row, explainer=explain_rows)
    return Split(images, names, labels, excluded={"without a label": 3}, view=view)


def classes(numbers):
    return ClassLabels([f"class {number}" for number in numbers])


def carved(task, **options):
    return with_validation(task, list(task.train.names), **{"share": 0.25, **options})


def zero_shot():
    return Task(split_of(classes(range(20))[torch.arange(200) % 20].as_root()), split_of(classes([20, 21] * 4), 500))


def test_classes_stay_together_if_the_test_classes_are_unseen():
    task = zero_shot()
    found = carved(task)
    names = [{split.labels.names[i] for i in split.labels.class_ids.tolist()} for split in (found.train, found.val)]
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) == 20
    assert 2 <= len(names[1]) <= 10
    assert len(found.train) + len(found.val) == 200
    for split in (found.train, found.val):  # numbered anew, for proxies
        assert split.labels.class_ids.unique().tolist() == [*range(len(split.labels.names))]
    assert found.test.images is task.test.images
    assert found.train.excluded == {"without a label": 3}
    assert found.val.excluded == {}


def test_items_are_drawn_if_a_test_class_is_in_training():
    found = carved(replace(zero_shot(), test=split_of(classes([3, 21] * 4), 500)))
    assert len({*found.val.labels.names} & {*found.train.labels.names}) > 15
    assert 30 <= len(found.val) <= 70


@pytest.mark.parametrize("labels", [NumberLabels(torch.arange(100.0)), classes(range(100))])
def test_groups_are_not_divided(labels):
    groups = [f"person {row % 25}" for row in range(100)]
    test = split_of(labels[:9].as_root(), 500)
    found = carved(Task(split_of(labels), test, val_groups=groups))
    of_name = dict(zip(found.train.names, found.val_groups, strict=True))
    assert of_name == {name: groups[int(name[:-4])] for name in found.train.names}
    assert not {*found.val_groups} & {groups[int(name[:-4])] for name in found.val.names}
    assert len(found.val) % 4 == 0


def test_graded_labels_are_drawn_by_item_and_another_item_moves_none():
    test = replace(split_of(NumberLabels(torch.arange(9.0)), 500), recall_at=[1, 3])
    whole = Task(split_of(NumberLabels(torch.arange(100.0))), test)
    found = carved(whole)
    assert 12 <= len(found.val) <= 40
    assert sorted([*found.train.names, *found.val.names]) == sorted(f"{row}.png" for row in range(100))
    assert found.val.recall_at == [1, 3]  # evaluated as the test split is
    assert found.val.places == found.test.places == min(found.val.available, found.test.available)
    assert {*carved(whole, seed=1).val.names} != {*found.val.names}
    order = np.random.default_rng(0).permutation(100)[:90].tolist()
    after = {*carved(replace(whole, train=whole.train.subset(order))).val.names}
    assert after == {*found.val.names} & {whole.train.names[row] for row in order}


def test_a_validation_split_of_the_data_is_kept():
    task = zero_shot()
    given = replace(task, val=split_of(classes([30, 31] * 3), 700))
    places = min(given.val.available, given.test.available)
    found = carved(given)
    assert (found.val.names, found.val.places, found.test.places) == (given.val.names, places, places)
    alone = Task(task.train, None, given.val)
    assert carved(alone).val.places == alone.val.available
    assert (alone.evaluated, alone.evaluated_name) == (given.val, "val")
    refused(lambda: Task(task.train, None), "task", got="neither")


def test_a_large_validation_split_has_drawn_queries(monkeypatch):
    monkeypatch.setattr("contml.data.carve._MANY", 20)
    monkeypatch.setattr("contml.data.carve._QUERIES", 7)
    labels, test = NumberLabels(torch.arange(200.0)), split_of(NumberLabels(torch.arange(9.0)), 500)
    val = carved(Task(split_of(labels), test)).val
    assert len(val.queries) == 7
    assert sorted([*val.queries.tolist(), *val.gallery.tolist()]) == [*range(len(val))]
    # Without some training items, the queries are the same.
    again = carved(Task(split_of(labels).subset(range(20, 200)), test)).val
    kept = {val.names[row] for row in val.queries.tolist()} & {*again.names}
    assert kept <= {again.names[row] for row in again.queries.tolist()}
    assert carved(zero_shot()).val.queries is None


@pytest.mark.parametrize(("task", "got"), [
    (Task(split_of(classes([0, 1, 2] * 5)), split_of(classes([7, 8, 9]), 500)), "3 groups of"),
    (Task(split_of(NumberLabels([1, 2, 3])), split_of(NumberLabels([4]), 500), val_groups=["a"] * 3), "1 groups of"),
])  # fmt: skip
def test_too_few_items(task, got):
    refused(lambda: carved(task), "validation split", got=got, allowed="at least", hint="training.select=none")


# -- subsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
def test_a_subset_has_the_labels_images_and_drawings_of_its_rows(name, tmp_path):
    labels = SPACES[name](tmp_path)
    split = split_of(labels)
    rows = [11, 3, 17, 4, 0]
    part = split.subset(rows)
    assert torch.equal(part.labels.pairwise(), labels.pairwise(rows, rows))
    assert part.labels.root is part.labels
    assert part.labels.rows.tolist() == [*range(5)]
    assert part.labels.digests() == [labels.digests()[row] for row in rows]
    again = part.subset([4, 1])  # composes
    assert torch.equal(again.labels.pairwise(), labels.pairwise([0, 3], [0, 3]))
    for found, expected in ((part, rows), (again, [0, 3])):
        assert list(found.names) == [split.names[row] for row in expected]
        assert [found.labels.text(row) for row in range(len(found))] == [labels.text(row) for row in expected]
        for place, row in enumerate(expected):
            assert np.array_equal(found.image(place), split.image(row))
            assert found.draw(place, 2).getpixel((0, 0)) == (row, 0, 0)
        assert found.explain(0, 1, 2)[0][1].getpixel((0, 0)) == (expected[0], expected[1], 0)
    pickled = pickle.loads(pickle.dumps(again.view))
    assert pickled.renderer(Image.new("RGB", (2, 2)), pickled.row(1), 2).getpixel((0, 0)) == (3, 0, 0)


@pytest.mark.parametrize("rows", [[6, 0, 1, 8], [5, 4, 1]])
def test_queries_gallery_and_groups_of_a_subset(rows):
    queries, gallery = query_split([1, 5, 6], 9)
    split = replace(
        split_of(NumberLabels(torch.arange(9.0))), queries=queries, gallery=gallery, groups=torch.arange(9) // 3
    )
    part = split.subset(rows)
    assert [rows[row] for row in part.queries.tolist()] == [row for row in rows if row in (1, 5, 6)]
    assert [rows[row] for row in part.gallery.tolist()] == [row for row in rows if row not in (1, 5, 6)]
    assert part.groups.tolist() == [row // 3 for row in rows]
    assert split.subset(range(9)) is split
    reordered = split.subset([*range(9)][::-1])
    assert {reordered.names[row] for row in reordered.queries.tolist()} == {"1.png", "5.png", "6.png"}
