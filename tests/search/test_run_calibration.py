"""The calibration of a run: computed at its end and by `contml evaluate`, printed, in the report."""

import html
import json
import shutil
from dataclasses import replace

import pytest
from support.miniature import TINY

import contml as library
from contml._support.text import number
from contml.app.experiment import load, train
from contml.data import ImageFile
from contml.runs import Run
from contml.search import Calibration


def test_a_training_reports_it_and_evaluate_gives_it_again(contml, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    saved = Calibration.read(Run(folder).calibration)
    assert (saved.kind, saved.level, saved.queries, saved.check.queries) == ("interval", 0.9, 16, 6)
    sentence = saved.sentence(library.load(folder).measure)
    assert f"mean width {number(saved.check.width)} px/joint" in sentence
    page = (folder / "report.html").read_text()
    assert f"<dt>Calibration</dt><dd>{html.escape(sentence)}</dd>" in page
    Run(folder).calibration.unlink()
    assert "interval holds" not in contml("report", folder)[1]
    assert "<dt>Calibration</dt>" not in (folder / "report.html").read_text()
    assert sentence in contml("evaluate", folder)[1]
    assert Calibration.read(Run(folder).calibration) == saved
    assert "interval" not in contml("evaluate", folder, "--checkpoint", "last")[1]
    assert json.loads(contml("evaluate", folder, "--json")[1])["split"] == "test"


def test_a_broken_validation_image_is_found_before_the_training(trained, tmp_path):
    """With select=none the validation split is read at the end, for the calibration."""
    experiment = load("pose/synthetic", [*TINY, "training.select=none"])
    task = experiment.read_task()
    (tmp_path / "broken.png").write_text("no image")
    files = [ImageFile(path) for path in [*sorted(trained.images.iterdir())[:15], tmp_path / "broken.png"]]
    task = replace(task, val=replace(task.val, images=files))
    with pytest.raises(library.InputError, match=r"cannot be decoded"):
        train(replace(experiment, task=task), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
