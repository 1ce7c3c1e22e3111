"""Two small runs of drawn people on the same data, what the page shows of them, and a browser."""

from __future__ import annotations

import shutil
from typing import NamedTuple

import pytest
from support.miniature import TINY

from contml.experiment import load, train
from contml.explore import explore_runs


class Runs(NamedTuple):
    first: object  # their folders
    second: object


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = [train(load("pose/synthetic", [*TINY, *more]), folder / "runs") for more in ([], ["optimizer.lr=0.01"])]
    return Runs(*(run.folder for run in made))


@pytest.fixture(scope="session")
def explored(runs):
    return explore_runs(runs)


@pytest.fixture
def copied(runs, tmp_path):
    """A copy of the first run, to change."""
    return shutil.copytree(runs.first, tmp_path / "copied")
