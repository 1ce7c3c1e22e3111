"""The moving average of the weights: against a slow loop, evaluated beside them, resumed, and in two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.miniature import Flat, assert_equal, small_trainer, squares, weights
from support.processes import run_connected
from support.refusals import refuses
from support.runs import assert_resumes
from test_layer_decay import DRAWN

import contml
from contml.app.experiment import evaluate_run, load, read_evaluation, train
from contml.evaluation.evaluated import AveragingComparison
from contml.losses import LogRatioLoss
from contml.training import EmbeddingStep, Training
from contml.training.checkpoint import load_weights


def trainer_of(run=None, ema=0.7, **options):
    return small_trainer(run, model=Normalized(), val=squares(20, seed=2), ema=ema, **options)


class Normalized(Flat):
    """With batch norm, whose statistics are averaged too."""

    def __init__(self):
        super().__init__(dropout=0.2)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, images):
        return self.norm(super().forward(images))


@pytest.mark.parametrize("ema", [0.7, 0.2])
def test_a_slow_loop(ema):
    trainer = trainer_of(ema=ema)
    expected: dict[str, torch.Tensor] = {}
    for epoch in range(2):
        for batch in trainer.images.train_batches(trainer.split, trainer.sampler, epoch=epoch):
            done = trainer.steps_done
            trainer.train_step(batch)
            decay = min(ema, (1 + done) / (10 + done)) if expected else 0.0
            for key, value in weights(trainer).items():
                if value.is_floating_point():
                    before = expected.get(key, value.double())
                    expected[key] = decay * before + (1 - decay) * value.double()
            trainer.step += 1
        trainer.epoch, trainer.step = epoch + 1, 0
    for key, value in expected.items():
        torch.testing.assert_close(trainer.average.module.state_dict()[key].double(), value, rtol=1e-5, atol=1e-6)
    assert not torch.equal(weights(trainer)["linear.weight"], trainer.average.module.linear.weight)


def test_the_training_itself_is_the_same():
    plain, averaged = small_trainer(model=Normalized(), val=squares(20, seed=2)), trainer_of()
    for trainer in (plain, averaged):
        trainer.fit()
    assert_equal(weights(plain), weights(averaged))
    assert plain.best.averages is None


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_self_distillation_by_loops(chunk_size):
    step = EmbeddingStep(chunk_size, 3.0, loss=LogRatioLoss())
    trainer = small_trainer(model=Flat(), val=squares(20, seed=2), ema=0.7, step=step)
    for done, batch in enumerate(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)):
        embeddings, target = trainer.bare_model(batch.images), trainer.average.module(batch.images)
        anchors = torch.arange(int((batch.positions < trainer.sampler.anchors).sum()))
        expected = step.loss(embeddings, trainer.labels[batch.rows], anchors=anchors).item()
        pairs = [(i, j) for i in range(len(target)) for j in range(len(target)) if i != j]
        own, other = ([(x[i] - x[j]).double().norm().item() for i, j in pairs] for x in (embeddings, target))
        mean = sum(other) / len(other)
        if done:
            expected += 3 * sum(((a - b) / mean) ** 2 for a, b in zip(own, other, strict=True)) / len(pairs)
        assert trainer.train_step(batch).item() == pytest.approx(expected, rel=1e-4)
        trainer.step += 1
    assert not any(parameter.grad is not None for parameter in trainer.average.parameters())
    assert not any("teacher" in key for key in step.state_dict())


@pytest.mark.parametrize("seed", [0, 1])
def test_the_teacher_drops_nothing(seed):
    step = EmbeddingStep(None, 3.0, loss=LogRatioLoss())
    trainer = small_trainer(model=Flat(dropout=0.5), val=squares(20, seed=2), ema=0.7, step=step)
    first, batch, *_ = trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)
    trainer.train_step(first)
    model = trainer.bare_model.eval()
    trainer.average.train()
    values = []
    for each in (seed, seed + 10):
        torch.manual_seed(each)
        values.append(step(model, batch.images, trainer.labels[batch.rows]).item())
    assert values[0] == values[1]


def test_self_distillation_needs_an_average():
    with refuses("ema_weight", "3, without a moving average", hint="training.ema"):
        small_trainer(val=squares(20, seed=2), step=EmbeddingStep(None, 3.0, loss=LogRatioLoss()))


@pytest.mark.parametrize(("position", "weight"), [((0, 1), None), ((1, 2), None), ((1, 2), 3.0)])
def test_a_killed_training_gives_the_same_average(tmp_path, position, weight):
    def make(run):
        return trainer_of(run, checkpoint_minutes=0, step=EmbeddingStep(None, weight, loss=LogRatioLoss()))

    whole = assert_resumes(make, tmp_path, position)
    saved = load_weights(whole.run.checkpoints / "ema.safetensors")[0]
    assert_equal(saved, whole.average.module.state_dict())


#: A training whose network is better than equal embeddings, on any processor.
LONGER = ("task.train=200", "task.val=100", "sampler.batches=30", "optimizer.lr=0.003")


@pytest.mark.parametrize("better", ["average", "weights"])
def test_the_better_one_is_the_model(tmp_path, monkeypatch, no_reports, capsys, better):
    """The average is a good network, or a poor one: where it replaces the weights, all that follows is of it."""

    def same(self, average, weights, count):
        for own, other in zip(average, weights, strict=True):
            own.copy_(other)

    def spoil(self):
        """In the evaluation, one of the two gives all images the same embedding."""
        if self.epoch == 2:
            model = self.bare_model if better == "average" else self.average.module
            model.head.weight.data.zero_()

    monkeypatch.setattr("contml.training.selection.MovingAverage._mean", same)
    evaluate = contml.Trainer._evaluate
    monkeypatch.setattr("contml.training.trainer.Trainer._evaluate", lambda self, p: (spoil(self), evaluate(self, p)))
    run = train(
        load("pose/synthetic", [*DRAWN, "training.ema=0.5", "training.evaluate_every=2", *LONGER]), tmp_path / "runs"
    )
    printed = capsys.readouterr().err
    evaluated = read_evaluation(run)
    averages = evaluated.selection.averages
    if evaluated.epoch:
        assert averages.chosen == (better == "average")
    assert (averages.averaged < averages.unaveraged) == (better == "average")
    assert f"the averaged weights are {'the model' if averages.chosen else 'not the model'}: their " in printed
    assert "averaged weights: " in printed
    average, _ = load_weights(run.checkpoints / "ema.safetensors")
    best, _ = load_weights(run.checkpoints / "best.safetensors")
    if averages.chosen:
        assert_equal(average, best)
    assert evaluate_run(run.folder) == evaluated
    other = evaluate_run(run.folder, checkpoint="ema")
    assert "averaged weights" in other.description
    assert other.checkpoint == "ema"
    assert contml.load(run.folder).embedding_dim == 4


def test_comparisons():
    from support.fake_runs import poses

    from contml.training.selection import BestWeights

    best = BestWeights()
    values = torch.zeros(3)
    best.update(poses(0.9), values, 0, {})
    for weight, average in ((0.5, 0.6), (0.55, 0.4), (0.45, 0.42)):
        assert best.compare_average(poses(weight), poses(average)) == (average < weight)
        taken = min(weight, average)
        best.update(poses(taken), values, 1, {}, averaged=average < weight)
    assert best.averages == AveragingComparison(poses(0.4).main.model, poses(0.45).main.model, True)
    assert best.value == poses(0.4).main.model


def test_a_validation_split_is_needed(tmp_path, no_reports):
    with refuses("ema", "0.9", hint="set select=val"):
        Training(ema=0.9, select="none")
    with refuses("ema", "0.9", hint="validation split"):
        small_trainer(ema=0.9)
    for wrong in (0, 1, -1):
        with refuses("ema", str(wrong)):
            Training(ema=wrong)
    run = train(load("pose/synthetic", [*DRAWN, "training.epochs=1"]), tmp_path / "runs")
    with refuses("checkpoint", "ema", "must be last or best", "training.ema"):
        evaluate_run(run.folder, checkpoint="ema")


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_connected(
        """
import torch
from support.miniature import Flat, small_trainer, squares
from contml.losses import LogRatioLoss
from contml.training import EmbeddingStep
step = EmbeddingStep(None, 3.0, loss=LogRatioLoss())
trainer = small_trainer(model=Flat(), val=squares(20, seed=2), ema=0.7, step=step)
trainer.fit()
if trainer.accelerator.is_main_process:
    torch.save(trainer.average.module.state_dict(), "two.pth")
""",
        300,
    )
    step = EmbeddingStep(None, 3.0, loss=LogRatioLoss())
    one = small_trainer(model=Flat(), val=squares(20, seed=2), ema=0.7, step=step)
    one.fit()
    two = torch.load(Path("two.pth"))
    for name, value in one.average.module.state_dict().items():
        if name != "linear.bias":
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=2e-5, msg=name)
