"""A result of untrained weights says so, for every loss and kind of result, wherever the result is shown."""

import html
import json
from dataclasses import replace

import pytest
import torch
from support.captioning import SMALL_DECODERS, without
from support.choices import mostly_slow
from support.fake_runs import classes, poses
from support.miniature import Flat, fitted, small_trainer, squares
from support.runs import from_text, kill_at, without_reports

from contml import load as load_model
from contml.app.experiment import evaluate_run, load, read_evaluation, train
from contml.app.explore import explore_runs
from contml.evaluation import Evaluated
from contml.evaluation.evaluated import epoch_text
from contml.losses import LOSSES
from contml.runs import create
from contml.training import EmbeddingStep
from contml.training.checkpoint import load_weights

INITIAL = "untrained: these are the initial weights; "
NO_STEP = f"{INITIAL}no step changed the network: its gradient or its learning rate was always 0"
NOT_BETTER = f"{INITIAL}2 epochs of training did not improve the result on the validation split"
#: Changes with which a run ends with untrained weights, and the note. A step of 1e-30 rounds to none.
CAUSES = {
    "not better": (["optimizer.lr=1e-30"], NOT_BETTER),
    "learning rate 0": (["optimizer.lr=0"], NO_STEP),
    "last weights": (["optimizer.lr=0", "training.select=none"], NO_STEP),
    "no epochs": (["training.epochs=0"], f"{INITIAL}no epoch was trained"),
}


@pytest.mark.parametrize("name", mostly_slow(LOSSES, 6))
def test_every_loss_trains_the_network_or_not(tmp_path, name):
    """Also where the loss has parameters, which are trained all the same."""
    of_classes = LOSSES[name].requires in ("classes", "binary")
    for lr in (0.0, 0.01):
        made = from_text(tmp_path, of_classes, f"loss: {name}", f"optimizer.lr={lr}", "optimizer.loss_lr=0.1")
        trainer = made.build_trainer(made.build_task(), quiet=True)
        assert not trainer.trained
        trainer.train_step(next(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)))
        trainer.images.close()
        assert trainer.trained == (lr > 0)


class Zero(torch.nn.Module):
    """A loss without a gradient."""

    requires = "any"

    def forward(self, embeddings, labels, *, anchors=None):
        return 0 * embeddings.sum()


def test_a_gradient_of_zero_is_no_training(tmp_path):
    run = create(tmp_path, "run")
    trainer = fitted(small_trainer(run, model=Flat(), loss=Zero(), val=squares(40, seed=2)))
    assert not trainer.trained
    # A training that goes on knows whether it has trained before.
    for before, after in ((EmbeddingStep(loss=Zero()), None), (None, EmbeddingStep(loss=Zero()))):
        run = create(tmp_path, "resumed")
        kill_at(small_trainer(run, model=Flat(), step=before), 1, 0)
        rest = small_trainer(run, model=Flat(), step=after)
        rest.resume()
        assert rest.trained == (before is None)
        rest.fit()
        assert rest.trained


def test_weights_that_were_saved_within_the_first_epoch_are_trained(tmp_path):
    run = create(tmp_path, "run")
    kill_at(small_trainer(run, model=Flat(), batches=4, checkpoint_minutes=0.0), 0, 1)
    assert load_weights(run.checkpoints / "last.safetensors")[1]["epoch"] == 0.25
    assert epoch_text([0.25]) == "0.25"
    assert not Evaluated(poses(0.4), "test", "last", 0.25, 0).untrained


@pytest.mark.parametrize(("found", "note"), [
    (Evaluated(poses(0.4), "test", "best", 0, 2), NOT_BETTER),
    (Evaluated(poses(0.4), "test", "best", 0, 1), NOT_BETTER.replace("2 epochs", "1 epoch")),
    (Evaluated(classes(0.4), "val", "best", 1, 2, trained=False), NO_STEP),
    (Evaluated(classes(0.4), "test", "last", 2, 2, trained=False), NO_STEP),
    (Evaluated(classes(0.4), "test", "last", 0, 0), f"{INITIAL}no epoch was trained"),
    (Evaluated(classes(0.4), "test", "last", 2, 2), ""), (Evaluated(classes(0.4), "test", "best", 1, 2), ""),
])  # fmt: skip
def test_one_property_decides(found, note):
    assert found.untrained == note
    assert found.notes == ([note] if note else [])
    assert (", untrained" in found.description) == bool(note)
    values = json.loads(json.dumps(found.to_dict()))
    assert values["notes"] == found.notes
    assert Evaluated.from_dict(values) == found


def test_other_results_that_are_none():
    nothing = Evaluated(poses(float("nan")), "test", "last", 2, 2)
    assert nothing.notes == ["mean label distance@10 is not a number: it is defined for no query"]
    one = Evaluated(replace(poses(0.4), queries=1), "test", "last", 2, 2)
    assert one.notes == ["the result is that of a single query"]
    for epoch in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="epoch"):
            Evaluated.from_dict({**one.to_dict(), "epoch": epoch})


@pytest.fixture(scope="module", params=mostly_slow(["graded", "classes", "captions"], 1))
def kind(request):
    return request.param


def made(folder, kind, *changes):
    if kind == "captions":
        head = [each.replace("optimizer.lr", "optimizer.head_lr") for each in changes if "optimizer.lr" in each]
        changes = [
            SMALL_DECODERS["lstm"], "training.epochs=2", "model.freeze_batch_norm=true", "step.embedding_epochs=0",
            *head, *changes,
        ]  # fmt: skip
        return load("captioning/synthetic", [*without(["step=", "training.epochs=2"]), "loss=null", *changes])
    changes = ["model.freeze_batch_norm=true", *changes]
    return from_text(folder, kind == "classes", f"loss: {'log_ratio' if kind == 'graded' else 'contrastive'}", *changes)


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.usefixtures("no_reports")
def test_every_kind_of_result_says_so(tmp_path, kind, cause):
    changes, note = CAUSES[cause]
    run = train(made(tmp_path, kind, *changes), tmp_path / "runs")
    result = read_evaluation(run)
    assert result.untrained == note
    assert evaluate_run(run.folder, trust=True).to_dict() == result.to_dict()


@pytest.fixture(scope="module")
def untrained(tmp_path_factory, kind):
    """A run with untrained weights, and its note."""
    folder = tmp_path_factory.mktemp("untrained")
    changes, note = CAUSES["not better"]
    return train(made(folder, kind, *changes), folder / "runs"), note


def test_it_is_said_by_every_command(contml, accepted, untrained, kind, tmp_path):
    run, note = untrained
    page = html.unescape((run.folder / "report.html").read_text())
    assert '<p class="result">Untrained weights. ' in page
    assert f"Note: {note}." in page
    for command in (["evaluate", run.folder], ["train", "--resume", run.folder]):  # the second one is finished
        with without_reports():
            status, out, err = contml(*command, "--trust")
        assert status == 0, err
        assert ", untrained" in out.splitlines()[0]
        assert f"note: {note}\n" in out
    assert json.loads(contml("evaluate", run.folder, "--trust", "--json")[1])["notes"][0] == note
    if kind != "captions":
        assert f"{run.name}: {note}." in explore_runs([run.folder], trust=True).notes
        out, _ = accepted("export", run.folder, "exported")
        assert "untrained weights" in out
        assert "untrained weights" in repr(load_model(tmp_path / "exported"))
