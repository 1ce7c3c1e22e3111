"""A captioner from its config: trained, evaluated, reported, compared, resumed; with the network of another run."""

import json
import re
import shutil

import pytest
import torch
from support.captioning import SMALL_DECODERS, TINY, without
from support.miniature import assert_equal
from support.refusals import refuses

from contml.app import experiment
from contml.app.experiment import evaluate_run, load, report_run, train
from contml.app.trials.compare import compare
from contml.runs import Run
from contml.training import load_weights


@pytest.fixture(scope="module")
def runs(captioners):
    """A run of each decoder."""
    return {name: Run(captioners(name)) for name in SMALL_DECODERS}


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_a_run_has_captions_and_a_report(runs, name):
    run = runs[name]
    captions = json.loads(run.captions("test").read_text())
    assert [set(entry) for entry in captions] == [{"image", "caption", "cider_d"}] * 16
    assert len({entry["image"] for entry in captions}) == 16
    result = experiment.read_evaluation(run)
    assert result.evaluation.main.model == pytest.approx(sum(entry["cider_d"] for entry in captions) / 16)
    page = (run.folder / "report.html").read_text()
    assert "CIDEr-D is" in page
    assert run.folder.name in page
    assert str(run.folder) not in page  # a page can be shared
    assert page.count('class="sample"') == 8
    rows = [row for row in run.rows() if row["event"] == "evaluation"]
    assert ([row["epoch"] for row in rows], {row["metric"] for row in rows}) == ([0, 2, 4], {"cider_d"})


def body(run):
    """The report of a run without its header and the date of the page, which are those of the command."""
    page = (run.folder / "report.html").read_text().split("</header>")[1]
    page, dates = re.subn("<dt>Report</dt><dd>.*?</dd>", "", page)
    assert dates == 1
    return page


def test_evaluate_and_report_give_the_same_again(runs, tmp_path):
    run = Run(shutil.copytree(runs["attention"].folder, tmp_path / "run"))
    before = run.evaluation().read_text(), run.captions("test").read_text()
    page = body(run)
    evaluate_run(run.folder)
    assert run.captions("test").read_text() == before[1]
    assert json.loads(run.evaluation().read_text()) == json.loads(before[0])
    report_run(run.folder)
    assert (body(run), evaluate_run(run.folder, checkpoint="last").checkpoint) == (page, "last")
    assert run.captions("test", "last").exists()


def test_runs_of_captioners_are_compared(runs):
    comparison = compare([run.folder for run in runs.values()])
    assert comparison.tables[0].metrics == ("bleu@1", "bleu@4", "cider_d", "cider", "rouge_l")


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_the_network_of_a_run_is_taken(runs, tmp_path):
    first = [each for each in TINY if not each.startswith(("captioner", "decoder", "step"))]
    first += ["sampler.anchors_per_batch=2", "sampler.neighbours=2"]
    embedding = train(load("captions/synthetic", first), tmp_path)
    changes = [f"backbone={embedding.folder}", *TINY[:6], "captioner.frozen=true", "training.epochs=2"]
    changes += ["step.embedding_epochs=0", "step.cross_entropy_epochs=null", "loss=null", "sampler.batch_size=10"]
    run = train(load("captioning/synthetic", [*TINY, *changes]), tmp_path)
    weights = load_weights(embedding.checkpoints / "best.safetensors")[0]
    found = load_weights(run.checkpoints / "last.safetensors")[0]
    for name, value in weights.items():
        assert torch.equal(found[f"network.{name}"], value), name
    again = load("captioning/synthetic", [*TINY, *changes, f"backbone={run.folder}"])  # that of a captioner
    assert_equal(again.build_network(again.build_task()).state_dict(), weights)
    with refuses(str(tmp_path / "nothing"), got="no such run folder"):
        load("captioning/synthetic", [f"backbone={tmp_path / 'nothing'}"])
    unfinished = Run(tmp_path / "unfinished")
    unfinished.folder.mkdir()
    unfinished.config.write_text(embedding.config.read_text())
    with refuses(f"backbone={unfinished.folder}", got="no best.safetensors"):
        load("captioning/synthetic", [f"backbone={unfinished.folder}"])


def test_a_config_without_a_captioner_needs_a_loss():
    changes = ["captioner=null", "decoder=null", "step=embedding", "loss=null"]
    with refuses("loss", "missing"):
        load("captioning/synthetic", [*without(changes), *changes])
