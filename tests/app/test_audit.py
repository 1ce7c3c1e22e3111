"""`contml audit`: folds, resuming, the table and the page, and one line per mistake."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.miniature import TINY
from support.refusals import refuses
from support.tables import dials, write_judgments, write_table

from contml.app.audit import audit_run, draw_folds, item_groups
from contml.app.experiment import OwnData, extract_features, load, load_run, load_table, train
from contml.app.experiment.saved_run import recorded_task, trained_model
from contml.data import Task
from contml.data.identity import DataRecord
from contml.evaluation import label_errors
from contml.labels import ClassLabels
from contml.training import Trainer, load_weights

pytestmark = pytest.mark.usefixtures("no_reports")

#: Overrides of `TINY` that a table of judgments has too.
SHORT_JUDGED = [each for each in TINY if each.startswith(("images.", "transform.", "model.", "training."))]


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_each_item_is_judged_by_a_network_that_has_not_seen_it(run, monkeypatch):
    seen = []
    fit = Trainer.fit

    def noted(trainer):
        seen.append(set(trainer.split.names))
        fit(trainer)

    monkeypatch.setattr(Trainer, "fit", noted)
    lines = []
    found = audit_run(run, folds=3, on_line=lines.append)
    assert found.split_name == "train"
    assert found.untrained == ""
    names = found.split.names
    folds = draw_folds(names, 3)
    assert [sorted(folds.tolist()).count(fold) for fold in range(3)] == [14, 13, 13]
    for fold, known in enumerate(seen):
        assert known == {name for name, other in zip(names, folds.tolist(), strict=True) if other != fold}
    assert len(seen) == 3
    assert "training 3 of 3 networks" in lines[0]
    assert lines[0].endswith("as long as the run did")
    assert len(lines) == 4
    assert sorted(path.name for path in (run / "audit" / "folds_3").iterdir()) == [
        f"fold_{n}.safetensors" for n in range(3)
    ]
    assert found.errors.scores.isfinite().all()

    again = audit_run(run, folds=3, k=5)  # nothing is trained
    assert len(seen) == 3
    assert again.errors.neighbours.shape == (40, 5)


def test_untrained_networks_are_named(contml, tmp_path):
    """The gradient steps round to none, so the best weights are those of epoch 0."""
    options = [*TINY, "model.freeze_batch_norm=true", "optimizer.lr=1e-30"]
    run = train(load("pose/synthetic", options), tmp_path / "runs").folder
    status, out, err = contml("audit", run, "--folds", 2)
    assert status == 0, err
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
    status, out, err = contml("audit", run, "--split", "test")
    assert status == 0, err
    assert out.startswith("No findings: untrained: these are the initial weights; ")


@pytest.mark.slow
def test_untrained_networks_of_judgments_are_named(contml, tmp_path):
    """As of labels: first, and without a rank."""
    write_judgments(tmp_path)
    arguments = ["table/triplets", f"task.data={tmp_path}/triplets.csv", *SHORT_JUDGED, "sampler.batch_size=8"]
    untrained = ["model.freeze_batch_norm=true", "optimizer.lr=1e-30"]
    status, _, err = contml("train", *arguments, *untrained, "--name", "few", "--runs", tmp_path / "runs")
    assert status == 0, err
    (run,) = tmp_path.glob("runs/*/*/few")
    status, out, err = contml("audit", run, "--folds", 2)
    assert status == 0, err
    first = "No findings: 2 of the 2 networks have untrained weights. The scores say little about wrong judgments, so "
    assert out.startswith(first)
    page = (run / "audit/train.html").read_text()
    assert f'<p class="result">{first}' in page
    assert "Possible wrong judgments" not in page
    assert "1. Score" not in page


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["items", "classes", "judgments"])
def test_folds_of_few_items_have_smaller_batches(contml, tmp_path, kind):
    """A batch of the run has all its items, or classes; a network without a fold has fewer, and the page says so."""
    if kind == "judgments":
        write_judgments(tmp_path)
        arguments = ["table/triplets", f"task.data={tmp_path}/triplets.csv", *SHORT_JUDGED]
        items = len(load("table/triplets", arguments[1:]).build_task().train)
        arguments.append(f"sampler.batch_size={items}")
    elif kind == "items":
        arguments = ["pose/synthetic", *TINY, "sampler.batch_size=40"]
    else:
        rows = [
            {**row, "split": "train" if number < 24 else "test", "colour": row["colour"] if number else "only"}
            for number, row in enumerate(dials(tmp_path, 32))
        ]
        write_table(tmp_path / "items.csv", rows, ["image", "colour", "split"])
        arguments = ["--data", "items.csv", "--label", "colour", "training.select=none", "images.workers=0"]
        arguments += ["training.epochs=1", "sampler.classes=4", "sampler.instances=6", "sampler.batches=2"]
    status, _, err = contml("train", *arguments, "--name", "few", "--runs", tmp_path / "runs")
    assert status == 0, err
    (run,) = tmp_path.glob("runs/*/*/few")
    status, _, err = contml("audit", run, "--folds", 2)
    assert status == 0, err
    sentence = "2 of them with smaller batches than the run, which has more items"
    assert sentence in (run / "audit/train.html").read_text()
    assert contml("audit", run, "--folds", 2)[0] == 0  # the networks are kept
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


@pytest.mark.slow
def test_several_processes_share_the_folds(run, tiny_run, tmp_path):
    """Two at a time, each of which reads the run itself; then another command, to which nothing is left."""
    lines = []
    found = audit_run(run, folds=3, processes=2, on_line=lines.append)
    assert lines[0].startswith("training 3 of 3 networks")
    assert sorted(lines[1:]) == ["fold 1 of 3: 14 items", "fold 2 of 3: 13 items", "fold 3 of 3: 13 items"]
    assert sorted(path.name for path in (run / "audit").rglob("*")) == [
        *(f"fold_{n}.safetensors" for n in range(3)),
        "folds_3",
    ]
    serial = shutil.copytree(tiny_run, tmp_path / "serial")
    assert torch.equal(found.errors.scores, audit_run(serial, folds=3).errors.scores)
    for n in range(3):
        outputs, expected = (load_weights(each / f"audit/folds_3/fold_{n}.safetensors")[0] for each in (run, serial))
        assert torch.equal(outputs["features"], expected["features"])
    again = audit_run(run, folds=3, on_line=lambda line: pytest.fail(line))
    assert torch.equal(again.errors.scores, found.errors.scores)


def test_another_command_audits_the_run(run, monkeypatch):
    step, stage = Trainer.train_step, []

    def noted(trainer, batch):
        if not stage:
            stage.append("first step of fold 1")
            with refuses(str(run), got="another command works on it"):
                audit_run(run, folds=2)
        return step(trainer, batch)

    monkeypatch.setattr(Trainer, "train_step", noted)
    audit_run(run, folds=2)
    assert stage


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
    rows = dials(tmp_path, 60)
    write_table(tmp_path / "items.csv", rows, ["image", "reading"])
    own = OwnData(tmp_path / "items.csv", ["reading"])
    small = ["training.epochs=1", "training.select=none", "images.workers=0", "sampler.batches=5"]
    extract_features(load_table(own, None, [*small, "images.resize=32", "images.crop=32"]), tmp_path / "features.npz")
    frozen = ["model.backbone=features", f"images.features={tmp_path / 'features.npz'}", "model.weights=none"]
    run = train(load_table(own, None, [*small, *frozen]), tmp_path)
    monkeypatch.setattr(Trainer, "fit", lambda trainer: pytest.fail("trained"))
    found = audit_run(run.folder)
    features = torch.stack([torch.from_numpy(found.split.image(row)) for row in range(len(found.split))])
    assert torch.equal(found.errors.scores, label_errors(features, found.split.labels).scores)
    with refuses("--cluster", "local", hint="the backbone is frozen"):
        audit_run(run.folder, cluster="local")


def test_the_command_writes_a_table_and_a_page(contml, run, tmp_path):
    status, out, err = contml("audit", run, "--folds", 2, "--top", 7)
    assert status == 0, err
    assert "training 2 of 2 networks" in err
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

    status, out, err = contml("audit", run, "--split", "test", "--out", "mine.csv")
    assert status == 0, err
    assert "page: mine.html" in out
    (tmp_path / "mine.html").unlink()  # as after a kill between the two files
    for before in ("", "complete already: "):
        status, out, err = contml("audit", run, "--split", "test", "--out", "mine.csv")
        assert status == 0, err
        assert f"mine.csv: {before}the " in out
        assert (tmp_path / "mine.html").is_file()
    status, out, err = contml("audit", run, "--split", "test", "--neighbours", "2", "--out", "mine.csv")
    assert (status, err.splitlines()[-1]) == (2, "contml: mine.csv: exists already; choose another file")


@pytest.mark.slow
def test_planted_errors_of_a_table_are_found_and_named(contml, tmp_path):
    rows = dials(tmp_path, 80)
    for row in rows:
        row["split"] = "train"
    extra = dials(tmp_path / "test", 30, seed=1)
    rows += [{**row, "image": f"test/{row['image']}", "split": "test"} for row in extra]
    write_table(tmp_path / "items.csv", rows, ["image", "reading", "colour", "split"])
    small = ["training.epochs=1", "training.select=none", "images.workers=0", "sampler.batches=5"]
    status, _, err = contml("train", "--data", "items.csv", "--label", "colour", "--name", "dials", *small)
    assert status == 0, err
    (run,) = tmp_path.glob("runs/*/*/dials")
    status, _, err = contml("audit", run, "--folds", "2")
    assert status == 0, err
    with (run / "audit/train.csv").open(newline="", encoding="utf-8") as file:
        (first, *_) = csv.DictReader(file)
    labels = {row["image"]: row["colour"] for row in rows}
    assert labels[first["item"].removeprefix(f"{tmp_path}/")] in first["label"]
    assert labels[first["neighbour_1"].removeprefix(f"{tmp_path}/")] in first["label_1"]


def test_groups_are_in_one_fold():
    keys = [f"house {n // 4}" for n in range(40)]
    folds = draw_folds(keys, 5)
    assert len(set(zip(keys, folds.tolist(), strict=True))) == 10
    assert [folds.tolist().count(fold) for fold in range(5)] == [8] * 5
    with refuses("--folds", "11", "2 to 10"):
        draw_folds(keys, 11)


def test_groups_of_whole_classes_do_not_hide_errors(tiny_run):
    experiment, run = load_run(tiny_run)
    task, _ = recorded_task(experiment, run, accept_changes=False)
    names = task.train.names
    groups = [f"maker {n % 4}" for n in range(len(names))]
    for count, expected in ((4, names), (3, groups)):  # classes that are the groups, and others
        split = replace(task.train, labels=ClassLabels(torch.arange(len(names)) % count))
        assert item_groups(Task(split, task.test, val_groups=groups), names) == list(expected)


def test_mistakes_are_one_line(run, contml, tmp_path):
    with refuses("--folds", "41", "2 to 40"):
        audit_run(run, folds=41)
    with refuses("--folds", "1", "2 to 40"):
        audit_run(run, folds=1)
    with refuses("k", "40", "1 to 39"):
        audit_run(run, k=40)
    assert not (run / "audit").exists()  # nothing was trained
    with refuses("nowhere", "no such run folder"):
        audit_run(tmp_path / "nowhere")
    status, _, err = contml("audit", run, "--out", "errors.txt")
    assert (status, len(err.splitlines())) == (2, 1)
    assert ".csv" in err
    status, _, err = contml("audit", run, "--splitt", "test")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "--split" in err


def test_a_run_without_weights_or_result_is_refused(run):
    (run / "checkpoints/best.safetensors").unlink()
    with refuses("best.safetensors", "no such checkpoint"):
        audit_run(run)
    (run / "evaluation.json").unlink()
    with refuses("run", "not evaluated yet", hint="contml evaluate"):
        audit_run(run)


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


def test_embeddings_of_another_run_are_refused(run):
    audit_run(run, folds=2)
    file = run / "audit/folds_2/fold_0.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with refuses("fold_0.safetensors", "damaged"):
        audit_run(run, folds=2)
