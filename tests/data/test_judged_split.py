"""Splits of judged items: what is connected stays together, and no test judgment has a training item."""

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml.data import Pixels, Split, Task
from contml.data.carve import divide, with_judgments, with_validation
from contml.labels import RankingLabels, TripletLabels


def names_of(count):
    return [f"item {n}" for n in range(count)]


def separate(groups=40):
    """Groups of five items, each with three triplets of its own."""
    rows = [[5 * g + n, 5 * g + n + 1, 5 * g + n + 2] for g in range(groups) for n in range(3)]
    return TripletLabels(rows, [0] * len(rows), 5 * groups)


def connected(items=200, triplets=600, near=4, seed=0):
    """Triplets of items that are near each other on a ring: all are connected."""
    random = np.random.default_rng(seed)
    starts = random.integers(items, size=triplets)
    rows = [(start + random.choice(near + 1, 3, replace=False)) % items for start in starts]
    return TripletLabels(np.array(rows), random.integers(0, 2, triplets), items)


def split_of(labels):
    images = [Pixels(np.full((4, 4, 3), n % 250, np.uint8)) for n in range(len(labels))]
    return with_judgments(Split(images, names_of(len(labels)), labels), labels)


def test_a_split_by_item_keeps_connected_sets_whole():
    labels = separate()
    kept, drawn = divide(labels, names_of(200), 0.3, "item", 0, "test")
    assert kept.count + drawn.count == labels.count
    assert not (kept.used & drawn.used).any()
    assert 0.15 < drawn.count / labels.count < 0.45
    again = divide(labels, names_of(200), 0.3, "item", 0, "test")[1]
    other = divide(labels, names_of(200), 0.3, "item", 1, "test")[1]
    assert np.array_equal(again.triplets, drawn.triplets)
    assert not np.array_equal(other.triplets, drawn.triplets)


def test_where_all_items_are_connected_judgments_between_both_parts_are_left_out():
    labels = connected()
    kept, drawn = divide(labels, names_of(200), 0.2, "item", 0, "test")
    assert not (kept.used & drawn.used).any()
    assert drawn.used.sum() == pytest.approx(40, abs=6)
    left_out = labels.count - kept.count - drawn.count
    assert 0 < left_out < 0.1 * labels.count  # near items are in one part
    mask = np.isin(np.arange(200), np.random.default_rng(0).permutation(200)[:40])
    random_left_out = labels.count - labels.keep_items(mask).count - labels.keep_items(~mask).count
    assert left_out < random_left_out / 4


def test_a_split_by_judgment_has_each_judgment_in_one_part():
    labels = connected()
    kept, drawn = divide(labels, names_of(200), 0.2, "judgment", 0, "test")
    assert kept.count + drawn.count == labels.count
    assert 0.1 < drawn.count / labels.count < 0.3
    assert (kept.used & drawn.used).any()
    lists = RankingLabels([(q, i) for q in range(20) for i in range(20, 30)], np.arange(200) % 7, 30)
    kept, drawn = divide(lists, names_of(30), 0.3, "judgment", 0, "test")
    assert not set(kept.queries) & set(drawn.queries)
    assert kept.judged + drawn.judged == 200


def test_a_part_without_judgments_is_refused():
    labels = TripletLabels([[0, 1, 2], [0, 1, 3]], [0, 1], 4)
    with refuses("test split by item", got="2 judgments", hint="by judgment"):
        divide(labels, names_of(4), 0.3, "item", 0, "test")
    for by in ("item", "judgment"):
        with refuses(f"test split by {by}", got="one judgment"):
            divide(TripletLabels([[0, 1, 2]], [0], 3), names_of(3), 0.3, by, 0, "test")


@pytest.mark.parametrize("by", ["item", "judgment"])
def test_validation_is_drawn_as_the_test_split_was(by):
    labels = separate()
    kept, drawn = divide(labels, names_of(200), 0.3, by, 0, "test")
    whole = split_of(labels)
    task = Task(with_judgments(whole, kept), with_judgments(whole, drawn))
    carved = with_validation(task, task.train.names, share=0.25)
    assert len(carved.train.labels.triplets) + len(carved.val.labels.triplets) == kept.count
    assert bool(set(carved.train.names) & set(carved.val.names)) == (by == "judgment")


def test_judgments_that_validation_leaves_out_are_counted():
    labels = connected()
    whole = split_of(labels)
    kept, drawn = divide(labels, whole.names, 0.2, "item", 0, "test")
    task = Task(with_judgments(whole, kept, 7), with_judgments(whole, drawn))
    carved = with_validation(task, task.train.names, share=0.2)
    train, val = carved.train.labels, carved.val.labels
    assert train.left_out == 7 + kept.count - train.count - val.count > 7
    assert val.left_out == 0
    assert f"{train.left_out} left out" in train.facts()
    few = Task(split_of(TripletLabels([[0, 1, 2], [0, 1, 3]], [0, 1], 4)), task.test)
    with refuses("validation split by item", hint="training.val_share"):
        with_validation(few, few.train.names, share=0.3)


def test_a_subset_of_a_split_has_the_judgments_of_its_items():
    part = split_of(separate(4)).subset(torch.arange(5, 15))
    assert part.labels.triplets.tolist() == [[g + n, g + n + 1, g + n + 2] for g in (0, 5) for n in range(3)]
