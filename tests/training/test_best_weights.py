"""Selection: the validation split chooses the weights and stops training early; the test split chooses nothing."""

import json
import math
from dataclasses import replace

import pytest
import torch
from support.miniature import Flat, assert_equal, fitted, small_trainer, squares, weights
from support.refusals import refuses
from support.runs import Killed, assert_resumes, from_text, kill_at, of_two_processes, without_reports, without_speed

from contml.app.experiment import evaluate_run, read_evaluation, report_run, resume, train
from contml.evaluation import half_width
from contml.evaluation.results import Curve, Evaluation
from contml.labels import VectorLabels
from contml.runs import create
from contml.training import Training
from contml.training.checkpoint import load_weights
from contml.training.selection import BestWeights


def validation(seed=5, broken=()):
    """A validation split whose labels say nothing: its metric goes up and down."""
    split = squares(110, seed=seed, broken=broken)
    return replace(split, labels=VectorLabels(torch.rand(110, 2, generator=torch.Generator().manual_seed(seed))))


# -- what is best ------------------------------------------------------------------------------------------------------


def evaluations(values, better="lower"):
    name, k, kind = ("label_distance", 100, "graded") if better == "lower" else ("recall", 1, "classes")
    for epoch, value in enumerate(values):
        curve = Curve(name, better, [value] * k, [1.0] * k, [0.0] * k)
        queries = torch.full((4,), value, dtype=torch.float64) + torch.arange(4) * (1 + epoch)
        yield Evaluation("", 4, 4, {name: curve}, 0.0, kind=kind), queries, epoch


@pytest.mark.parametrize(("better", "values", "best", "since"), [
    ("lower", [3.0, 2.0, 2.5, 1.0], 3, 0),
    ("lower", [3.0, 2.0, 2.5, 2.0], 1, 2),  # of equal results the first
    ("lower", [1.0, 1.0, 1.0], 0, 2), ("higher", [0.1, 0.3, 0.2], 1, 1), ("higher", [0.1, 0.1, 0.2], 2, 0),
    ("lower", [math.nan, 2.0, 3.0], 1, 1), ("lower", [2.0, math.nan, 1.0], 2, 0),
    ("higher", [0.2, math.nan, math.nan], 0, 2),
])  # fmt: skip
def test_the_first_of_the_best_results_is_kept(better, values, best, since):
    kept = BestWeights(patience=2)
    found = [*evaluations(values, better)]
    for evaluation, queries, epoch in found:
        kept.update(evaluation, queries, epoch, {"w": torch.tensor(float(epoch))})
    assert (kept.epoch, kept.since, kept.weights["w"].item()) == (best, since, best)
    assert kept.stopped == (since == 2)
    summary = kept.summary()
    assert summary.metric == ("label_distance@10" if better == "lower" else "recall@1")
    assert summary.queries == 4
    assert summary.best == values[best]
    differences = found[best][1] - found[-1][1]
    assert summary.difference == pytest.approx(float(differences.mean()), nan_ok=True)
    interval = half_width(differences) if since else math.nan  # the best are the last
    assert summary.interval == (None if math.isnan(interval) else pytest.approx(interval))


def test_options():
    with refuses("patience", got="3", hint="select=val"):
        Training(select="none", patience=3)


# -- in training -------------------------------------------------------------------------------------------------------


def test_best_and_last_weights_and_metrics_are_kept(tmp_path):
    trainer = small_trainer(create(tmp_path, "run"), epochs=5, evaluate_every=2, val=validation())
    seen = {}
    update = trainer.best.update

    def remember(evaluation, ranking, epoch, state, *items, **options):
        seen[epoch] = {name: value.clone() for name, value in state.items()}
        return update(evaluation, ranking, epoch, state, *items, **options)

    trainer.best.update = remember
    trainer.fit()
    assert {path.stem for path in trainer.run.checkpoints.iterdir()} == {"best", "last", "state"}
    rows = [row for row in trainer.run.rows() if row["event"] == "evaluation"]
    assert [(row["epoch"], row["split"]) for row in rows] == [(epoch, "val") for epoch in (0, 2, 4, 5)]
    best = min(rows, key=lambda row: row["label_distance@10"])["epoch"]
    assert (trainer.best.epoch, trainer.best.value) == (best, min(row["label_distance@10"] for row in rows))
    found, saved = load_weights(trainer.run.checkpoints / "best.safetensors")
    assert saved["epoch"] == best
    assert_equal(found, seen[best])
    assert_equal(found, trainer.best.weights)
    last, saved = load_weights(trainer.run.checkpoints / "last.safetensors")
    assert saved["epoch"] == 5
    assert_equal(last, weights(trainer))


@pytest.mark.parametrize("options", [{"select": "none"}, {"select": "none", "val": validation()}, {}])
def test_without_a_validation_split_no_weights_are_best(tmp_path, options):
    trainer = fitted(small_trainer(create(tmp_path, "run"), epochs=1, **options))
    assert trainer.best is None
    assert {path.name for path in trainer.run.checkpoints.iterdir()} == {"last.safetensors", "state.safetensors"}
    assert {row["split"] for row in trainer.run.rows() if row["event"] == "evaluation"} == {"test"}
    again = small_trainer(trainer.run, epochs=1, **options)
    again.resume()
    assert again.finished


def stopping(run=None, **options):
    return small_trainer(run, epochs=9, batches=3, patience=2, val=validation(), **options)


@pytest.mark.slow
def test_it_stops_early_and_resumes_bit_for_bit(tmp_path):
    def make(run):
        return stopping(run, checkpoint_minutes=0.0)

    whole = assert_resumes(make, tmp_path, *(divmod(step, 3) for step in range(15)))
    stop = whole.epoch
    assert 5 <= stop < 8  # the kills are before it, and some epochs are omitted
    assert whole.best.epoch == stop - 2
    assert whole.finished
    rows, expected = without_speed(whole.run), weights(whole)
    assert [row["epoch"] for row in rows if row["event"] == "stop"] == [stop]
    assert rows[-1]["event"] == "stop"
    again = make(whole.run)
    again.resume()
    assert again.finished
    again.fit()
    assert without_speed(whole.run) == rows
    assert_equal(weights(again), expected)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 9))
def test_killed_while_it_writes_a_checkpoint(tmp_path, monkeypatch, number):
    """Also between best.safetensors and the state, which are two files."""
    whole = fitted(stopping(create(tmp_path, "whole")))
    from contml._support import tensors

    written = []
    original = tensors.write

    def write_or_die(path, make):
        written.append(path.name)
        if len(written) == number:
            raise Killed
        original(path, make)

    run = create(tmp_path, "killed")
    with monkeypatch.context() as patch:
        patch.setattr(tensors, "write", write_or_die)
        with pytest.raises(Killed):
            stopping(run).fit()
    rest = fitted(stopping(run), resume=True)
    assert_equal(weights(rest), weights(whole))
    assert_equal(rest.best.weights, whole.best.weights)
    assert rest.best.summary() == whole.best.summary()
    assert without_speed(run) == without_speed(whole.run)
    for name in ("best", "last", "state"):
        path = f"{name}.safetensors"
        assert (run.checkpoints / path).read_bytes() == (whole.run.checkpoints / path).read_bytes()


def test_resume_without_the_best_weights_is_refused(tmp_path):
    run = create(tmp_path, "run")
    kill_at(stopping(run), 2, 1)
    (run.checkpoints / "best.safetensors").unlink()
    with refuses(str(run.checkpoints / "best.safetensors"), got="no such checkpoint"):
        stopping(run).resume()


def test_broken_validation_images_are_skipped(tmp_path):
    trainer = fitted(small_trainer(create(tmp_path, "run"), epochs=3, broken="skip", val=validation(broken=(3, 8))))
    evaluation, ranking, missing = trainer.evaluate(trainer.watched["val"])
    assert missing.tolist() == [3, 8]
    assert evaluation.skipped == 2
    assert len(ranking.values) == 108
    assert trainer.best.summary().queries == 108
    assert {"square 3", "square 8"} <= {*trainer.images.left_out}


def best_of_training():
    """In float64: log-ratios of near pairs magnify how float32 rounds a product of five rows or of ten."""
    trainer = fitted(stopping(model=Flat().double()))
    return trainer.epoch, trainer.best.epoch, trainer.best.weights


@pytest.mark.slow
def test_two_processes_equal_one():
    *epochs, expected = best_of_training()
    for *epochs_of_two, found in of_two_processes(best_of_training):
        assert epochs_of_two == epochs
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


# -- in a run ----------------------------------------------------------------------------------------------------------


def experiment(folder, *overrides):
    return from_text(folder, True, "loss: {name: contrastive, margin: 0.5}", *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    with without_reports():
        return train(experiment(folder, "training.epochs=4", "training.evaluate_every=1"), folder / "runs")


@pytest.fixture
def restored(finished):
    """The finished run; its config is restored after the test."""
    text = finished.config.read_text()
    yield finished
    finished.config.write_text(text)


def test_the_best_weights_are_the_result(finished):
    run = finished
    rows = [row for row in run.rows() if row["event"] == "evaluation"]
    assert {row["split"] for row in rows} == {"val"}
    best = max(rows, key=lambda row: row["recall@1"])
    result = read_evaluation(run)
    assert (result.split, result.checkpoint, result.epoch, result.epochs) == ("test", "best", best["epoch"], 4)
    chosen = result.selection
    assert (chosen.metric, chosen.best, chosen.last) == ("recall@1", best["recall@1"], rows[-1]["recall@1"])
    assert chosen.difference == pytest.approx(chosen.best - chosen.last)
    saved = run.evaluation().read_bytes(), run.embeddings("test").read_bytes()
    assert evaluate_run(run.folder, trust=True) == result
    assert (run.evaluation().read_bytes(), run.embeddings("test").read_bytes()) == saved
    # Other weights have files of their own.
    last = evaluate_run(run.folder, checkpoint="last", trust=True)
    assert (last.checkpoint, last.epoch) == ("last", 4)
    assert (run.evaluation().read_bytes(), run.embeddings("test").read_bytes()) == saved
    assert json.loads(run.evaluation("last").read_text())["checkpoint"] == "last"
    assert run.embeddings("test", "last").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_select_none_trains_on_all_items_and_keeps_the_last_weights(tmp_path):
    made = experiment(tmp_path, "training.select=none")
    assert len(made.build_task().train) == 24
    assert len(experiment(tmp_path).build_task().train) < 24
    run = train(made, tmp_path / "runs")
    result = read_evaluation(run)
    assert (result.split, result.checkpoint, result.epoch, result.selection) == ("test", "last", 2, None)
    assert "selection" not in json.loads(run.evaluation().read_text())
    assert {row["split"] for row in run.rows() if row["event"] == "evaluation"} == {"test"}
    assert not (run.checkpoints / "best.safetensors").exists()
    with refuses(str(run.checkpoints / "best.safetensors"), got="no such checkpoint"):
        evaluate_run(run.folder, checkpoint="best", trust=True)


def test_a_validation_split_too_small_for_its_choice_is_said(finished):
    result = read_evaluation(finished)
    chosen = result.selection
    small = result.epoch < 4 and abs(chosen.difference) <= (chosen.interval or 0)
    assert bool(result.doubt) == (small or (result.epoch < 4 and chosen.interval is None))
    for epoch, interval, words in ((2, 0.5, "2 from epoch 4"), (2, 0.05, ""), (4, None, ""), (2, None, "too small")):
        one = replace(result, epoch=epoch, selection=replace(chosen, difference=0.1, interval=interval))
        assert words in one.doubt
        assert bool(words) == bool(one.doubt)


# -- changed configs and finished runs ---------------------------------------------------------------------------------


def edited(run, old, new):
    """The run folder, with another text in its config."""
    text = run.config.read_text()
    assert text.count(old) == 1
    run.config.write_text(text.replace(old, new))
    return run.folder


@pytest.mark.parametrize(("command", "old", "new", "got"), [
    (evaluate_run, "margin: 0.5", "margin: 0.6", "loss.margin: 0.5 -> 0.6"),
    (report_run, "normalize: false", "normalize: true", "model.normalize: false -> true"),
    (resume, "classes: true", "classes: true\n  note: 3", "task.note"),
    (resume, "val_share: 0.1", "val_share: 0.2", "training.val_share: 0.1 -> 0.2"),
    (evaluate_run, "select: val", "select: none", "training.select"),
])  # fmt: skip
def test_an_edited_config_is_refused(restored, command, old, new, got):
    folder = edited(restored, old, new)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    expected = ("task.note",) if "note" in new else (str(restored.config), got, "", "restore it")
    with refuses(*expected):
        command(folder, trust=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("no_reports")
def test_a_finished_run_says_how_it_can_be_trained_longer(restored):
    messages = []
    assert resume(restored.folder, trust=True, on_finished=messages.append).folder == restored.folder
    last = restored.checkpoints / "last.safetensors"
    command = f"contml train {restored.config} model.weights={last}"
    assert len(messages) == 1
    assert "finished, after 4 epochs" in messages[0]
    assert command in messages[0]
    folder = edited(restored, "epochs: 4", "epochs: 9")
    with refuses(str(restored.config), got="training.epochs: 4 -> 9", hint=command):
        resume(folder, trust=True)
