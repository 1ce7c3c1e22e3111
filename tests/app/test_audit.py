"""`contml audit`: folds, resuming, the table and the page, and one line per mistake."""

import csv
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.miniature import TINY
from support.refusals import refuses
from support.tables import dials, write_table

from contml.app.audit import audit_run, draw_folds, item_groups
from contml.app.experiment import OwnData, extract_features, load, load_run, load_table, train
from contml.app.experiment.saved_run import recorded_task, trained_model
from contml.data import Task
from contml.data.identity import DataRecord
from contml.evaluation import label_errors
from contml.labels import ClassLabels
from contml.training import Trainer, load_weights

pytestmark = pytest.mark.usefixtures("no_reports")


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture(scope="module")
def audited(tiny_run, tmp_path_factory):
    """A run that was audited with two folds, what was found and printed, and the names that each network has seen."""
    run, seen, lines, fit = shutil.copytree(tiny_run, tmp_path_factory.mktemp("audited") / "run"), [], [], Trainer.fit

    def noted(trainer):
        seen.append(set(trainer.split.names))
        fit(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "fit", noted)
        return run, audit_run(run, folds=2, on_line=lines.append), lines, seen


def test_each_item_is_judged_by_a_network_that_has_not_seen_it(audited, monkeypatch):
    run, found, lines, seen = audited
    assert (found.split_name, found.untrained) == ("train", "")
    names = found.split.names
    folds = draw_folds(names, 2)
    assert folds.tolist().count(0) == 20
    for fold, known in enumerate(seen):
        assert known == {name for name, other in zip(names, folds.tolist(), strict=True) if other != fold}
    assert len(seen) == 2
    assert "training 2 of 2 networks" in lines[0]
    assert lines[0].endswith("as long as the run did")
    assert len(lines) == 3
    assert sorted(path.name for path in (run / "audit/folds_2").iterdir()) == [f"fold_{n}.safetensors" for n in (0, 1)]
    assert found.errors.scores.isfinite().all()
    monkeypatch.setattr(Trainer, "fit", lambda trainer: pytest.fail("trained"))
    assert audit_run(run, folds=2, k=5).errors.neighbours.shape == (40, 5)


@pytest.mark.slow
def test_untrained_networks_are_named(accepted, tmp_path):
    """The gradient steps round to none, so the best weights are those of epoch 0."""
    options = [*TINY, "model.freeze_batch_norm=true", "optimizer.lr=1e-30"]
    run = train(load("pose/synthetic", options), tmp_path / "runs").folder
    out, _ = accepted("audit", run, "--folds", 2)
    first = "No findings: 2 of the 2 backbones have untrained weights. The scores say little about wrong labels, so "
    assert out.startswith(f"{first}the list is in the order of the data, not of their scores.\n")
    page = (run / "audit/train.html").read_text()
    assert f'<p class="result">{first}' in page
    assert "Possible label errors" not in page
    assert "1. Score" not in page
    found = audit_run(run, folds=2)
    with (run / "audit/train.csv").open(newline="", encoding="utf-8") as file:
        items = [row["item"] for row in csv.DictReader(file)]
    assert items == [found.split.name(row) for row in sorted(found.errors.order.tolist())]
    out, _ = accepted("audit", run, "--split", "test")
    assert out.startswith("No findings: untrained: these are the initial weights; ")


@pytest.mark.slow
def test_folds_of_few_items_have_smaller_batches(contml, accepted, tmp_path):
    """A batch of the run has all its items; a network without a fold has fewer, and the page says so."""
    accepted("train", "pose/synthetic", *TINY, "sampler.batch_size=40", "--name", "few", "--runs", tmp_path / "runs")
    (run,) = tmp_path.glob("runs/*/*/few")
    for _ in range(2):  # trained, and kept
        assert contml("audit", run, "--folds", 2)[0] == 0
        sentence = "2 of them with smaller batches than the run, which has more items"
        assert sentence in (run / "audit/train.html").read_text()


@pytest.mark.slow
def test_an_interrupted_audit_goes_on(run, tiny_run, tmp_path, monkeypatch):
    step, steps = Trainer.train_step, []

    def interrupted(trainer, batch):
        steps.append(trainer.steps_done)
        if len(steps) == 14:  # in the second epoch of the second network
            raise KeyboardInterrupt
        return step(trainer, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            audit_run(run, folds=3)
    assert (run / "audit/folds_3/fold_0.safetensors").exists()
    assert (run / "audit/folds_3/fold_1/checkpoints/state.safetensors").exists()
    counted = []
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", lambda trainer, batch: (counted.append(0), step(trainer, batch))[1])
        found = audit_run(run, folds=3)
    assert len(counted) == 4 + 8  # the second epoch of the second network, and the third network
    whole = audit_run(shutil.copytree(tiny_run, tmp_path / "whole"), folds=3)
    assert torch.equal(found.errors.scores, whole.errors.scores)


def test_another_command_audits_the_run(run, monkeypatch):
    def in_the_first_step(trainer, batch):
        with refuses(str(run), got="another command works on it"):
            audit_run(run, folds=2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "train_step", in_the_first_step)
    with pytest.raises(KeyboardInterrupt):
        audit_run(run, folds=2)


def test_other_splits_need_no_training(run, monkeypatch):
    monkeypatch.setattr(Trainer, "fit", lambda trainer: pytest.fail("trained"))
    for split in ("val", "test"):
        found = audit_run(run, split=split)
        experiment, its_run = load_run(run)
        task, _ = recorded_task(experiment, its_run, accept_changes=False)
        assert found.split.names == task.splits[split].names
        for option in ({"processes": 2}, {"cluster": "local"}):
            with refuses(f"--{next(iter(option))}", hint=f"the run has not seen the {split} split"):
                audit_run(run, split=split, **option)
    weights, _ = load_weights(its_run.checkpoints / f"{experiment.selected}.safetensors")
    model = trained_model(experiment, its_run, task, weights, its_run.checkpoints).eval()
    images = torch.stack([torch.from_numpy(task.test.image(row)) for row in range(len(task.test))])
    with torch.no_grad():
        features = model.features(images.permute(0, 3, 1, 2) if images.shape[-1] == 3 else images)
    expected = label_errors(features, task.splits["test"].labels)
    np.testing.assert_allclose(found.errors.scores, expected.scores, atol=1e-4)


def test_frozen_features_need_no_training(tmp_path, monkeypatch):
    write_table(tmp_path / "items.csv", dials(tmp_path, 60), ["image", "reading"])
    own = OwnData(tmp_path / "items.csv", ["reading"])
    small = ["training.epochs=0", "training.select=none", "images.workers=0", "sampler.batches=5"]
    extract_features(load_table(own, None, [*small, "images.resize=32", "images.crop=32"]), tmp_path / "features.npz")
    frozen = ["model.backbone=features", f"images.features={tmp_path / 'features.npz'}", "model.weights=none"]
    run = train(load_table(own, None, [*small, *frozen]), tmp_path)
    monkeypatch.setattr(Trainer, "fit", lambda trainer: pytest.fail("trained"))
    found = audit_run(run.folder)
    features = torch.stack([torch.from_numpy(found.split.image(row)) for row in range(len(found.split))])
    assert torch.equal(found.errors.scores, label_errors(features, found.split.labels).scores)
    with refuses("--cluster", "local", hint="the backbone is frozen"):
        audit_run(run.folder, cluster="local")


def test_the_command_writes_a_table_and_a_page(accepted, audited, tmp_path):
    run = shutil.copytree(audited[0], tmp_path / "run")
    out, _ = accepted("audit", run, "--folds", 2, "--top", 7)
    assert "the 7 items with the highest scores of 40" in out
    with (run / "audit/train.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    found = audit_run(run, folds=2)
    first = int(found.errors.order[0])
    assert rows[0]["item"] == found.split.name(first)
    assert rows[0]["neighbour_1"] == found.split.name(int(found.errors.neighbours[first, 0]))
    assert float(rows[0]["label_distance_1"]) == float(found.errors.label_distances[first, 0])
    page = (run / "audit/train.html").read_text(encoding="utf-8")
    assert page.count('<div class="query">') == 7
    assert "2 backbones, each item by the one that was not trained on it" in page
    assert found.split.name(first) in page


def test_groups_are_in_one_fold():
    keys = [f"house {n // 4}" for n in range(40)]
    folds = draw_folds(keys, 5)
    assert len(set(zip(keys, folds.tolist(), strict=True))) == 10
    assert [folds.tolist().count(fold) for fold in range(5)] == [8] * 5


def test_groups_of_whole_classes_do_not_hide_errors(tiny_run):
    experiment, run = load_run(tiny_run)
    task, _ = recorded_task(experiment, run, accept_changes=False)
    names = task.train.names
    groups = [f"maker {n % 4}" for n in range(len(names))]
    for count, expected in ((4, names), (3, groups)):  # classes that are the groups, and others
        split = replace(task.train, labels=ClassLabels(torch.arange(len(names)) % count))
        assert item_groups(Task(split, task.test, val_groups=groups), names) == list(expected)


def test_changed_data_are_refused(run):
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("lr: ", "lr: 1", 1))
    with refuses("config.yaml", "changed since the run began"):
        audit_run(run)
    (run / "config.yaml").write_text(config)
    record = DataRecord.load(run / "data.safetensors")
    train = [*record.labels["train"]]
    train[3] = "0" * 12
    replace(record, labels={**record.labels, "train": train}).save(run / "data.safetensors")
    with refuses("run", "training items: 1 with another label"):
        audit_run(run)


def test_embeddings_of_another_run_are_refused(audited, tmp_path):
    run = shutil.copytree(audited[0], tmp_path / "run")
    file = run / "audit/folds_2/fold_0.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with refuses("fold_0.safetensors", "damaged"):
        audit_run(run, folds=2)
