"""Drawn gauges: reproducible, labelled by the number they show, and split as other synthetic data sets are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml.data import Split
from contml.tasks._readers.splits import FIRST_TEST
from contml.tasks.scalar import TASKS
from contml.tasks.scalar.drawn_gauges import HIGHEST, _paint, draw_gauge, synthetic
from contml.testing import check_label_space

SMALL = {"train": 30, "val": 8, "test": 20, "queries": 5, "size": 24}


@pytest.fixture(scope="module")
def task():
    return synthetic(**SMALL)


def test_sizes_labels_and_queries(task):
    assert TASKS["synthetic"] is synthetic
    for split, count, queries in ((task.train, 30, None), (task.val, 8, 2), (task.test, 20, 5)):
        assert isinstance(split, Split)
        assert len(split) == count
        assert (None if split.queries is None else len(split.queries)) == queries
        values = split.labels.values[:, 0]
        assert float(values.min()) >= 0
        assert float(values.max()) <= HIGHEST
        expected = (values[:, None] - values).abs()
        torch.testing.assert_close(split.labels.pairwise(), expected.float())
        check_label_space(split.labels)
        assert split.image(0).shape == (24, 24, 3)
        assert split.image(0).dtype == np.uint8
    assert synthetic(**{**SMALL, "queries": 0}).test.queries is None


def test_the_seed_determines_every_gauge(task):
    again, other = synthetic(**SMALL), synthetic(**SMALL, seed=1)
    for name in ("train", "val", "test"):
        first = task.splits[name]
        assert all((first.image(row) == again.splits[name].image(row)).all() for row in range(len(first)))
        assert first.labels.fingerprint() == again.splits[name].labels.fingerprint()
        assert first.labels.fingerprint() != other.splits[name].labels.fingerprint()
    fewer = synthetic(**{**SMALL, "train": 10})
    assert (fewer.train.image(9) == task.train.image(9)).all()
    assert (fewer.test.image(3) == task.test.image(3)).all()
    values = [set(split.labels.values[:, 0].tolist()) for split in task.splits.values()]
    assert not values[0] & values[1]
    assert not values[0] & values[2]


def test_a_gauge_is_the_same_at_any_size():
    (large, value), (small, same) = draw_gauge(3, 7, 96), draw_gauge(3, 7, 24)
    assert value == same
    shrunk = large.reshape(24, 4, 24, 4, 3).mean((1, 3))
    assert np.abs(shrunk - small).mean() < 14  # but for noise and the rounding of outlines
    assert np.abs(shrunk - draw_gauge(3, 8, 24)[0]).mean() > 20


def test_the_needle_follows_the_number():
    """Of two pictures that differ only in the number, the pixels that change are those of the needle, at its end."""

    def painted(share):
        return _paint(np.random.default_rng(5), share, 96).astype(int)

    shares = (0.0, 0.3, 0.6, 1.0)
    pictures = {share: painted(share) for share in shares}
    for a in shares:
        assert (pictures[a] == painted(a)).all()
        for b in shares:
            changed = (np.abs(pictures[a] - pictures[b]) > 40).any(-1).mean()
            assert changed == 0 if a == b else 0.002 < changed < 0.1


def test_numbers_are_spread_evenly():
    values = [draw_gauge(0, index, 16)[1] for index in range(300)]
    counts = np.histogram(values, 5, (0, HIGHEST))[0]
    assert counts.min() > 35


def test_the_number_is_written_under_the_picture(task):
    assert task.test.labels.text(0) == f"{float(task.test.labels.values[0, 0]):.4g}"
    assert task.test.draw(0, 200).size == (200, 200)
    assert np.ptp(np.asarray(task.test.draw(0, 200))[170:], axis=(0, 1)).min() > 100, "ink on paper"
    assert pickle.loads(pickle.dumps(task.test)).name(0) == task.test.name(0) == f"gauge {FIRST_TEST}"


@pytest.mark.parametrize(
    ("options", "subject", "allowed"),
    [
        ({"train": 2}, "train", "3"),
        ({"test": 0}, "test", "3"),
        ({"size": 8}, "size", "16"),
        ({"queries": 19}, "queries", "18"),
        ({"queries": -1}, "queries", "0"),
        ({"seed": -1}, "seed", "0"),
    ],
)
def test_bad_options_are_refused(options, subject, allowed):
    with refuses(subject, allowed=allowed):
        synthetic(**{**SMALL, **options})
