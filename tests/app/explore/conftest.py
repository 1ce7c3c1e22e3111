"""Two small runs of drawn people with other weights on the same data, what the page shows of them, and a browser."""

from __future__ import annotations

import shutil
from typing import NamedTuple

import pytest

from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import evaluate_run
from contml.app.explore import explore_runs
from contml.runs import Run


class Runs(NamedTuple):
    first: object  # their folders
    second: object


@pytest.fixture(scope="session")
def runs(tiny_run, tmp_path_factory):
    second = Run(shutil.copytree(tiny_run, tmp_path_factory.mktemp("runs") / "second"))
    weights = second.checkpoints / "best.safetensors"
    tensors, values = load_tensors(weights)
    save_tensors(weights, {**tensors, "head.weight": tensors["head.weight"].roll(1, 1)}, **values)
    evaluate_run(second.folder)
    return Runs(tiny_run, second.folder)


@pytest.fixture(scope="session")
def explored(runs):
    return explore_runs(runs)


@pytest.fixture
def copied(runs, tmp_path):
    """A copy of the first run, to change."""
    return shutil.copytree(runs.first, tmp_path / "copied")
