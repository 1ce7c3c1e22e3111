"""Configs with a memory, a miner, proxies or an outside loss: they train, resume bit for bit, and say what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.miniature import squares
from support.runs import Killed, from_text

from contml import InputError
from contml.data import Task
from contml.experiment import check, load_run, resume, train
from contml.labels import ClassLabels
from contml.losses.memory import CrossBatchMemory
from contml.runs import create

#: (whether labels are classes, what the config holds beside).
EXPERIMENTS = {
    "memory of continuous labels": (False, "loss: log_ratio\nmemory: {size: 25, start: 1}"),
    "memory of a threshold": (
        False,
        "binarize: {name: threshold, threshold: 20}\nloss: contrastive\nmemory: {size: 12}",
    ),
    "memory, miner and a loss that learns": (
        True,
        "loss: {name: margin, per_class: true}\nminer: distance_weighted\nmemory: {size: 20, start: 0}",
    ),
    "miner": (True, "loss: raw\nminer: {name: vthm, epsilon: 0.2}"),
    "proxies": (True, "loss: {name: soft_triple, centers: 2}"),
    "outside": (True, "loss: {name: pml:ProxyAnchorLoss, alpha: 16}"),
    "outside, at random": (True, "loss: {name: pml:TripletMarginLoss, triplets_per_anchor: 3}"),
}


def squares_task(classes: bool = True) -> Task:
    """Images with a bright square, whose label is where it is, or the class of that place.

    Args:
        classes: label by class.
    """
    splits = [squares(24), squares(12, seed=1)]
    if classes:
        splits = [replace(split, labels=ClassLabels(split.labels.values[:, 0].long() // 4 + 10)) for split in splits]
    return Task(*splits)


def experiment(folder, name, *overrides):
    classes, parts = EXPERIMENTS[name]
    return from_text(folder, classes, parts, *overrides)


def state(trainer):
    parts = {"model": trainer.bare_model, "loss": trainer.training_step.loss}
    return {f"{part}.{key}": value for part, module in parts.items() for key, value in module.state_dict().items()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_resumes_bit_for_bit(tmp_path, name):
    made = experiment(tmp_path, name)
    task = made.build_task()
    whole = made.build_trainer(task, quiet=True)
    whole.fit()
    expected = state(whole)
    if "memory" in name:
        assert isinstance(whole.training_step.loss, CrossBatchMemory)
        assert whole.training_step.loss.written == 6 * (whole.total - whole.training_step.loss.start)
    # Where there is a memory: when it is about to be used, and when its ring has closed.
    for stop in ((0, 1), (1, 1)) if "memory" in name else ((1, 1),):
        run = create(tmp_path, "killed")
        killed = made.build_trainer(task, run, quiet=True)
        batch = killed.sampler.batch

        def dies(epoch, step, batch=batch, stop=stop):
            if (epoch, step) == stop:
                raise Killed
            return batch(epoch, step)

        killed.sampler.batch = dies
        with pytest.raises(Killed):
            killed.fit()
        rest = made.build_trainer(task, run, weights=False, quiet=True)
        rest.resume()
        assert rest.done == 3 * stop[0] + stop[1]
        rest.fit()
        found = state(rest)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.equal(found[key], value), key


def test_trained_resumed_and_read_back_from_its_folder(tmp_path):
    made = experiment(tmp_path, "memory, miner and a loss that learns", "training.epochs=1")
    run = train(made, tmp_path / "runs")
    again, _ = load_run(run.folder, trust=True)
    assert again.values == made.values
    assert again.values["memory"] == {"size": 20, "start": 0}
    assert again.values["miner"] == {"name": "distance_weighted", "cutoff": 0.5, "upper": 1.4}
    assert resume(run.folder, trust=True).folder == run.folder


def test_an_outside_loss_needs_no_trust(tmp_path):
    made = experiment(tmp_path, "outside", "training.epochs=1")
    run = create(tmp_path, "run")
    text = (tmp_path / "own.yaml").read_text().replace("test_assembly:squares_task", "pose/synthetic")
    run.config.write_text(text.replace(", classes: true", ""))
    assert load_run(run.folder)[0].values["loss"] == made.values["loss"]


def test_a_part_that_is_left_out_is_in_no_config(tmp_path):
    values = from_text(tmp_path, True, "loss: raw\nmemory: null").values
    assert "memory" not in values
    assert "miner" not in values


@pytest.mark.parametrize(
    ("classes", "parts", "message"),
    [
        (
            True,
            "loss: proxy_nca\nminer: vthm",
            "own.yaml:11: the loss 'proxy_nca' takes no miner; leave out 'miner', or choose one of ",
        ),
        (True, "loss: pml:NTXentLoss\nminer: vthm", "the loss 'pml:NTXentLoss' takes no miner; leave"),
        (True, "loss: raw\nminer: vtm", "own.yaml:11: unknown miner 'vtm'; did you mean 'vthm'?"),
        (True, "loss: raw\nminer: {name: vthm, epsilon: -1}", "own.yaml:11: miner: epsilon is -1.0; it must be at"),
        (
            True,
            "loss: raw\nmemory: {start: 6}",
            "own.yaml:11: 'memory.start' is 6, but the training has 6 steps: the memory would never be used; set a",
        ),
        (True, "loss: raw\nmemory: {size: 0}", "own.yaml:11: memory: size is 0; it must be at least 1"),
        (True, "loss: raw\nmemory: {szie: 3}", "own.yaml:11: unknown key 'memory.szie'; did you mean 'size'?"),
        (True, "loss: soft_triple\nmemory: {start: 0}", "own.yaml:11: memory: SoftTripleLoss compares proxies"),
        (True, "loss: pml:NTXentLoss\nmemory: {start: 0}", "takes a pair loss of contml, but pml:NTXentLoss is none"),
        (
            False,
            "loss: raw\nmemory: {start: 0}",
            "loss 'raw' needs label distances of 0 and 1, but the labels are graded",
        ),
        (False, "loss: pml:NTXentLoss", "loss 'pml:NTXentLoss' needs classes, but the labels are graded"),
    ],
)
def test_what_does_not_go_together_is_told_before_the_first_step(tmp_path, classes, parts, message):
    with pytest.raises(InputError) as error:
        check(from_text(tmp_path, classes, parts))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_outside_loss_has_all_items_as_anchors(tmp_path):
    dense = "sampler={name: dense, batch_size: 6, anchors_per_batch: 3, neighbours: 1, batches: 3}"
    with pytest.raises(InputError, match=r"but 3 of 6 are to be anchors; let all items be anchors"):
        check(experiment(tmp_path, "outside", dense))
    facts = dict(check(experiment(tmp_path, "outside", dense, "sampler.all_anchors=true")))
    assert float(facts["loss of a batch"]) > 0
