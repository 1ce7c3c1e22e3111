"""Two small runs of drawn people on the same data, what the page shows of them, and a browser."""

from __future__ import annotations

import shutil
from typing import NamedTuple

import pytest
from support.miniature import TINY
from support.runs import without_reports

from contml.app.experiment import load, train
from contml.app.explore import explore_runs


class Runs(NamedTuple):
    first: object  # their folders
    second: object


@pytest.fixture(scope="session")
def runs(tiny_run, tmp_path_factory):
    with without_reports():
        second = train(load("pose/synthetic", [*TINY, "optimizer.lr=0.01"]), tmp_path_factory.mktemp("runs"))
    return Runs(tiny_run, second.folder)


@pytest.fixture(scope="session")
def explored(runs):
    return explore_runs(runs)


@pytest.fixture
def copied(runs, tmp_path):
    """A copy of the first run, to change."""
    return shutil.copytree(runs.first, tmp_path / "copied")
