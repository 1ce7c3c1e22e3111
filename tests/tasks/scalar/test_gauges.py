"""Drawn gauges: reproducible, labelled by the number they show, and split as other synthetic data sets are."""

import pickle

import numpy as np
import pytest

from contml.tasks._readers.splits import FIRST_TEST
from contml.tasks.scalar.drawn_gauges import HIGHEST, _paint, draw_gauge, synthetic

SMALL = {"train": 30, "val": 8, "test": 20, "queries": 5, "size": 24}


@pytest.fixture(scope="module")
def task():
    return synthetic(**SMALL)


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
    assert np.histogram(values, 5, (0, HIGHEST))[0].min() > 35


def test_the_number_is_written_under_the_picture(task):
    assert task.test.labels.text(0) == f"{float(task.test.labels.values[0, 0]):.4g}"
    assert task.test.draw(0, 200).size == (200, 200)
    assert np.ptp(np.asarray(task.test.draw(0, 200))[170:], axis=(0, 1)).min() > 100, "ink on paper"
    assert pickle.loads(pickle.dumps(task.test)).name(0) == task.test.name(0) == f"gauge {FIRST_TEST}"
