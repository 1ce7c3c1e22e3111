"""The synthetic task of poses."""

import pickle

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml.data import Pixels, Task
from contml.tasks.pose.drawn_persons import synthetic


def test_synthetic_people_are_pixels_with_queries_first():
    task = synthetic(train=5, test=8, queries=3, size=20)
    assert isinstance(task, Task)
    assert (len(task.train), len(task.test)) == (5, 8)
    assert all(isinstance(image, Pixels) for image in task.train.images)
    assert task.train.image(0).shape == (20, 20, 3)
    assert task.train.stamp(0) is None
    assert (task.train.queries, task.train.gallery) == (None, None)
    assert (task.test.queries.tolist(), task.test.gallery.tolist()) == ([0, 1, 2], [3, 4, 5, 6, 7])
    larger = synthetic(train=9, test=8, queries=0, size=20)
    np.testing.assert_array_equal(larger.train.image(4), task.train.image(4))
    np.testing.assert_array_equal(larger.test.image(4), task.test.image(4))
    assert larger.test.queries is None


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"train": 2}, {"subject": "train", "got": "2", "allowed": "3"}),
        ({"size": 4}, {"subject": "size", "got": "4", "allowed": "8"}),
        ({"seed": -1}, {"subject": "seed", "got": "-1", "allowed": "0"}),
        ({"test": 6, "queries": 5}, {"subject": "queries", "got": "5", "allowed": "0 to 4"}),
    ],
)
def test_wrong_options_of_synthetic_people(options, fields):
    with refuses(**fields):
        synthetic(**options)


def test_worker_processes_can_receive_a_split():
    task = synthetic(train=4, test=5, queries=1, size=16)
    copy = pickle.loads(pickle.dumps(task.test))
    assert copy.draw(1, 40).tobytes() == task.test.draw(1, 40).tobytes()
    torch.testing.assert_close(copy.labels.pairwise(), task.test.labels.pairwise())
