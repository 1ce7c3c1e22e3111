"""What every data set that is drawn from a seed keeps to."""

import pickle

import numpy as np
import pytest
from PIL import Image
from support.refusals import refuses

from contml.data import Pixels
from contml.labels import PoseLabels, SegmentationLabels
from contml.tasks.captions.drawn_scenes import synthetic as scenes
from contml.tasks.classes.drawn_beetles import synthetic as beetles
from contml.tasks.layout.drawn_rooms import synthetic as rooms
from contml.tasks.pose.drawn_persons import synthetic as people
from contml.tasks.scalar.drawn_gauges import synthetic as gauges

SIZES = {"train": 40, "val": 6, "test": 10, "queries": 2, "size": 16}
BEETLES = {"classes": 8, "per_class": 4, "val_classes": 4, "val_per_class": 3, "test_classes": 5, "test_per_class": 2}
#: A data set, its small options, and the option of which more draws more training items.
DRAWN = {
    "people": (people, SIZES, "train"),
    "rooms": (rooms, SIZES, "train"),
    "scenes": (scenes, {**SIZES, "dim": 5}, "train"),
    "gauges": (gauges, SIZES, "train"),
    "beetles": (beetles, {**BEETLES, "size": 16}, "classes"),
}


@pytest.fixture(scope="module", params=DRAWN)
def drawn(request):
    """A function of changed options that draws the data set, its small options, and its task."""
    make, options, more = DRAWN[request.param]

    def draw(**changes):
        return make(**{**options, **changes})

    return draw, {**options, "more": more}, draw()


def pixels(split):
    return np.stack([split.image(row) for row in range(len(split))])


def label_facts(split):
    """What the labels of a split are, and what is written of them."""
    return split.labels.fingerprint(), [split.labels.text(row) for row in range(len(split))]


def test_sizes_queries_and_labels(drawn):
    draw, options, task = drawn
    sizes = [options.get(name) for name in ("train", "val", "test")]
    assert [len(split) for split in task.splits.values()] == (sizes if sizes[0] else [32, 12, 10])
    assert len({name for split in task.splits.values() for name in split.names}) == sum(map(len, task.splits.values()))
    for split in task.splits.values():
        assert all(isinstance(image, Pixels) for image in split.images)
        assert (pixels(split).shape, pixels(split).dtype) == ((len(split), 16, 16, 3), np.uint8)
        assert (split.excluded, split.stamp(0)) == ({}, None)
    assert (task.train.queries, task.train.gallery) == (None, None)
    if "queries" in options:
        assert len(task.test.queries) == 2
        assert sorted([*task.test.queries.tolist(), *task.test.gallery.tolist()]) == [*range(10)]
        assert draw(queries=0).test.queries is None


def test_the_seed_determines_every_item(drawn):
    draw, _, task = drawn
    again, other = draw(), draw(seed=1)
    for part, split in task.splits.items():
        assert (pixels(again.splits[part]) == pixels(split)).all()
        assert label_facts(again.splits[part]) == label_facts(split)
        assert (pixels(other.splits[part]) != pixels(split)).any((1, 2, 3)).all()
        assert label_facts(other.splits[part]) != label_facts(split)


def test_more_items_begin_with_the_same_and_change_no_other_split(drawn):
    draw, options, task = drawn
    more = draw(**{options["more"]: options[options["more"]] + 3})
    assert (pixels(more.train)[: len(task.train)] == pixels(task.train)).all()
    assert (pixels(more.test) == pixels(task.test)).all()
    val = "val" if "val" in options else "val_classes"
    more = draw(**{val: options[val] + 1})
    for part in ("train", "test"):
        assert (pixels(more.splits[part]) == pixels(task.splits[part])).all()
        assert label_facts(more.splits[part]) == label_facts(task.splits[part])


def test_an_item_is_the_same_at_every_size(drawn):
    draw, _, _ = drawn
    task = draw(size=64)
    here = pixels(task.train).astype(float)
    for size in (32, 128):
        other = draw(size=size).train
        in_pixels = isinstance(other.labels, PoseLabels | SegmentationLabels)
        assert in_pixels or other.labels.digests() == task.train.labels.digests()
        pictures = [Image.fromarray(image).resize((64, 64), Image.Resampling.BOX) for image in pixels(other)]
        there = np.stack([np.asarray(picture, float) for picture in pictures])
        assert np.abs(there - here).mean((1, 2, 3)).max() < 20, "but for noise and edges"
        assert np.abs(there[1:] - here[:-1]).mean() > 30


def test_worker_processes_can_receive_a_split(drawn):
    copy = pickle.loads(pickle.dumps(drawn[2].test))
    assert copy.name(1) == drawn[2].test.name(1)
    for size in (40, 200):
        assert copy.draw(1, size).tobytes() == drawn[2].test.draw(1, size).tobytes()
        assert copy.draw(1, size).size == (size, size)


def test_wrong_options(drawn):
    draw, options, _ = drawn
    sizes = {"train": 2, "queries": 9} if "train" in options else {"classes": 1, "test_classes": 0, "per_class": 1}
    for name, value in {"seed": -1, "size": 4, **sizes}.items():
        with refuses(name, got=str(value)):
            draw(**{name: value})


def test_validation_beetles_are_of_other_genera():
    task = beetles(classes=8, per_class=2, val_classes=8, val_per_class=2, test_classes=8, test_per_class=2, size=12)
    genera = [{name.split()[0] for name in split.labels.colours().classes} for split in task.splits.values()]
    assert [len(split) for split in task.splits.values()] == [16, 16, 16]
    assert len(set.union(*genera)) == sum(map(len, genera)), "two genera each"
