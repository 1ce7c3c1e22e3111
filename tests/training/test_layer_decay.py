"""Learning rates that fall from the last stage of a backbone to the first, and frozen stages, in a training."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from support.miniature import small_trainer, weights
from support.processes import run_connected
from support.refusals import refuses
from support.runs import assert_resumes
from torch import nn

from contml.app.experiment import load
from contml.models import EmbeddingModel
from contml.training import OPTIMIZERS, stages_of
from contml.training.setup import model_groups

DRAWN = [
    *("task.train=40", "task.val=16", "task.test=24", "task.queries=6", "task.size=32", "images.resize=32"),
    *("images.crop=32", "images.workers=0", "transform=null", "model.dim=4", "sampler.batch_size=10"),
    *("sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=3", "training.epochs=2"),
    *("training.checkpoint_minutes=0", "model.freeze_batch_norm=true"),
]


class Deep(nn.Module):
    """Three linear layers; `stages` are the layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.pool, self.a, self.b, self.c = nn.AdaptiveAvgPool2d(4), nn.Linear(48, 5), nn.Linear(5, 5), nn.Linear(5, 4)

    def forward(self, images):
        return self.c(self.b(self.a(self.pool(images.float() / 255).flatten(1)).tanh()).tanh())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_stage_has_its_rate(name):
    model = EmbeddingModel("resnet18", dim=4)
    optimizer = OPTIMIZERS[name](
        lr=0.1, head_lr=1.0, layer_decay=0.5, groups=model_groups(model), stages=stages_of(model)
    )
    rate_of = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for key, parameter in model.named_parameters():
        layer = next((n for n in range(1, 5) if f"layer{n}." in key), 0)
        expected = 1.0 if key.startswith("head.") else 0.1 * 0.5 ** (4 - layer)
        assert rate_of[id(parameter)] == pytest.approx(expected), key
    assert optimizer.param_groups[0]["lr"] == 0.1  # what is logged


def test_the_rates_are_those_of_timm():
    timm = pytest.importorskip("timm")
    from timm.optim import param_groups_layer_decay

    backbone = timm.create_model("test_vit", num_classes=0)
    theirs = {}
    for group in param_groups_layer_decay(backbone, weight_decay=0.0, layer_decay=0.7):
        theirs |= {id(p): group["lr_scale"] for p in group["params"]}
    model = EmbeddingModel(backbone, dim=4)
    ours = OPTIMIZERS["adamw"](lr=0.1, layer_decay=0.7, groups=model_groups(model), stages=stages_of(model))
    rates = {id(p): group["lr"] for group in ours.param_groups for p in group["params"]}
    for parameter in backbone.parameters():
        assert rates[id(parameter)] == pytest.approx(0.1 * theirs[id(parameter)])


@pytest.mark.parametrize("schedule", ["cosine", "inverse"])
def test_a_training_equals_a_slow_loop(schedule):
    """Plain SGD written out: each weight moves by the rate of its stage."""
    from contml.training.optimizers import SCHEDULES

    def made(decay):
        model = Deep()
        return small_trainer(
            model=model,
            epochs=1,
            batches=4,
            optimizer=lambda groups: OPTIMIZERS["sgd"](
                lr=0.01, momentum=0.0, weight_decay=0.0, layer_decay=decay, groups=groups, stages=stages_of(model)
            ),
        )

    trainer = made(0.5)
    trainer.schedule = SCHEDULES[schedule](
        optimizer=trainer.optimizer.optimizer, **({"total_steps": 4, "warmup": 0.5} if schedule == "cosine" else {})
    )
    slow = made(None)
    for batch in slow.images.train_batches(slow.split, slow.sampler, epoch=0):
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        loss = slow.training_step(slow.model, batch.images, slow.labels[batch.rows], torch.arange(2))
        gradients = torch.autograd.grad(loss, [*slow.model.parameters()])
        with torch.no_grad():
            for (key, parameter), gradient in zip(slow.model.named_parameters(), gradients, strict=True):
                parameter -= rates[0] * 0.5 ** {"c": 0, "b": 1, "a": 2}[key[0]] * gradient
        trainer.train_step(batch)
        trainer.step += 1
        for key, value in weights(slow).items():
            torch.testing.assert_close(value, weights(trainer)[key], rtol=1e-4, atol=1e-5, msg=key)


def test_one_stage_has_no_decay():
    model = EmbeddingModel("resnet18", dim=4, frozen=4)
    with refuses("layer_decay", "0.5, but one stage of the backbone is trained", hint="omit it"):
        OPTIMIZERS["sgd"](layer_decay=0.5, groups=model_groups(model), stages=stages_of(model))
    model = EmbeddingModel("resnet18", dim=4, frozen=True)
    with refuses("layer_decay", "no stage of the backbone is trained"):
        OPTIMIZERS["sgd"](layer_decay=0.5, groups=model_groups(model), stages=stages_of(model))
    for wrong in (0, 1.5, -1):
        with refuses("layer_decay", str(wrong), "above 0 and at most 1"):
            OPTIMIZERS["sgd"](layer_decay=wrong, groups=model_groups(model))


CHANGES = ["optimizer.layer_decay=0.6", "model.frozen=2"]


def trainer_of(run=None, **options):
    experiment = load("pose/synthetic", [*DRAWN, *CHANGES])
    return experiment.build_trainer(experiment.build_task(), run, quiet=True, **options)


def test_a_killed_training_gives_the_same_weights(tmp_path):
    assert_resumes(trainer_of, tmp_path, (0, 1), (1, 2))


def deep_trainer():
    """A backbone of three layers whose first one is frozen, and rates that fall."""
    model = EmbeddingModel(Deep(), dim=4, frozen=1)
    optimizer = partial(OPTIMIZERS["sgd"], lr=1e-3, layer_decay=0.5, stages=stages_of(model))
    return small_trainer(model=model, optimizer=optimizer)


def check_two_processes(deep_trainer, free, frozen):
    """Two processes train as one; `free` parameters change no distance: their gradients are rounding."""
    run_connected(
        f"""
import torch
from {deep_trainer.__module__} import deep_trainer
trainer = deep_trainer()
trainer.fit()
if trainer.accelerator.is_main_process:
    torch.save(trainer.bare_model.state_dict(), "two.pth")
""",
        300,
    )
    one = deep_trainer()
    start = weights(one)
    one.fit()
    two = torch.load(Path("two.pth"))
    for name, value in weights(one).items():
        if name not in free:
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=2e-5, msg=name)
            assert torch.equal(value, start[name]) == (frozen in name), name


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_two_processes(deep_trainer, free=("backbone.c.bias", "head.bias"), frozen="backbone.a.")
