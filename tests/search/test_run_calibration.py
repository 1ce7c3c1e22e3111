"""The calibration of a run: computed at its end and by `contml evaluate`, printed, in the report."""

import html
import json
import shutil
from dataclasses import replace

import pytest
import torch
from support.miniature import TINY
from support.paths import DATA_ROOT

import contml as library
from benchmarks.measure import FLICKR8K_PACK
from contml._support.text import number
from contml.app.experiment import OwnData, load, load_table, train
from contml.data import ImageFile
from contml.evaluation.results import QueryValues
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


def test_a_damaged_calibration_is_one_line(refused, trained, tmp_path):
    run = shutil.copytree(trained.run, tmp_path / "run")
    (run / "calibration.json").write_text("{}")
    assert "calibration.json: cannot be read" in refused("report", run)
    assert "calibration.json: cannot be read" in refused("export", run, "model")


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


def real(name):
    """Real labels and images, and a network that was hardly trained."""
    few = ["training.epochs=1", "sampler.batches=5", "images.workers=0"]
    small = ["model.backbone=small_cnn", "model.weights=none", "model.dim=16", "model.normalize=false"]
    small += ["model.freeze_batch_norm=false", "images.resize=36", "images.crop=32", *few]
    if name == "pose":
        return load("pose/synthetic", ["task.train=600", "task.val=300", "task.test=500", "task.queries=200", *few])
    pack = DATA_ROOT / {"rooms": "rooms_nyuv2", "captions": "flickr8k_1500", "houses": "houses_535"}[name]
    if not pack.is_dir():
        pytest.skip(f"no pack {pack.name}: set CONTML_DATA to its folder")
    if name == "rooms":
        return load("layout/nyuv2", [f"task.data={pack}/pairs.csv", "training.val_share=0.5", *small])
    if name == "captions":
        return load("captions/flickr8k", [f"task.root={pack}", *FLICKR8K_PACK, *small])
    groups = ["task.group=house", "task.exclude_group=true"]
    return load_table(OwnData(pack / "houses.csv", ["price_usd=number:log"]), "table/default", [*groups, *small])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # of gensim
@pytest.mark.parametrize("name", ["pose", "rooms", "captions", "houses"])
@pytest.mark.usefixtures("no_reports")
def test_the_interval_holds_on_test_pairs(tmp_path, name):
    """Two splits of a few hundred queries: the coverage of one calibration varies by about 2 points for each."""
    run = train(real(name), tmp_path)
    check = Calibration.read(run.calibration).check
    assert check.expected == 0.9
    assert 0.9 - 0.05 <= check.observed <= 0.9 + 0.06
    assert check.interval[0] <= check.observed <= check.interval[1]
    items = QueryValues.read(run.query_values("test")).items  # with which runs are compared
    assert (items is not None) == (name == "houses")
    if items is not None:
        assert len(torch.unique(items)) < len(items)
