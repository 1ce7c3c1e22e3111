"""The trainer: it learns, resumes bit for bit, gives the same result on several processes, and reports errors."""

import shutil
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from support.miniature import TINY, Flat, assert_equal, fitted, small_trainer, squares, weights
from support.refusals import refuses
from support.runs import Killed, assert_resumes, kill_at, of_two_processes, whole_state, without_speed

from contml import InputError
from contml.app.experiment import load, resume, train
from contml.data import Images
from contml.labels import ClassLabels, NumberLabels
from contml.losses import LogRatioLoss, ProxyAnchorLoss, RankSimLoss, RAWLoss, RegularizedLoss
from contml.runs import Run, create
from contml.training import OPTIMIZERS, SCHEDULES, EmbeddingStep, Trainer, Training, TrainingStep
from contml.training.checkpoint import load_state
from contml.training.setup import model_groups

TEST = squares(20, seed=1)


@pytest.mark.slow
def test_without_epochs_the_untrained_features_are_evaluated(tmp_path):
    options = ["training.epochs=0", "model.dim=null", "schedule=cosine", "optimizer=adam"]
    run = train(load("pose/synthetic", [*TINY, *options]), tmp_path)
    assert [row["event"] for row in run.rows()] == ["evaluation"]
    assert load_file(run.folder / "embeddings" / "test.safetensors")["embeddings"].shape == (24, 1024)
    page = (run.folder / "report.html").read_text()
    assert ">Retrieved images</h2>" in page
    assert ">Training</h2>" not in page  # there was none
    assert not (run.folder / "curves.png").exists()
    saved = (run.folder / "evaluation.json").read_bytes()
    assert resume(run.folder).folder == run.folder
    assert (run.folder / "evaluation.json").read_bytes() == saved
    assert len(run.rows()) == 1


def test_without_parameters_there_is_an_evaluation_and_no_training(tmp_path):
    with refuses("model", got="parameter", hint="training.epochs=0"):
        small_trainer(model=FloatPixels()).fit()
    trainer = fitted(small_trainer(create(tmp_path, "run"), model=FloatPixels(), epochs=0))
    assert trainer.evaluate(TEST)[0].queries == 20


class FloatPixels(torch.nn.Module):
    def forward(self, images):
        return images.flatten(1).float()


@pytest.mark.parametrize("minutes", [0.0, 10.0])
def test_killed_after_any_step_it_ends_with_the_same_weights(tmp_path, minutes):
    """With a checkpoint after every step, or at the ends of epochs alone."""
    whole = fitted(small_trainer(create(tmp_path, "whole")))
    for stop in range(1 if minutes else 0, 10, 2):
        run = create(tmp_path, "killed")
        kill_at(small_trainer(run, checkpoint_minutes=minutes), *divmod(stop, 5))
        resumed = fitted(small_trainer(run, checkpoint_minutes=minutes), resume=True)
        assert_equal(whole_state(resumed), whole_state(whole))
        assert without_speed(run) == without_speed(whole.run)


def test_a_state_is_not_resumed_with_other_labels(tmp_path):
    run, split = create(tmp_path, "run"), squares()
    small_trainer(run, epochs=1).fit()
    other = small_trainer(run, split=replace(split, labels=NumberLabels(torch.arange(len(split)))))
    with refuses("labels", "NumberLabels(", "saved state", "give the same labels"):
        other.resume()


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_evaluation_whose_state_was_not_saved_is_written_once(tmp_path, monkeypatch, epoch):
    whole = fitted(small_trainer(create(tmp_path, "whole")))
    run = create(tmp_path, "killed")
    trainer = small_trainer(run, checkpoint_minutes=0.0)
    evaluate = trainer._evaluate

    def evaluate_and_die(progress):
        evaluate(progress)
        if trainer.epoch == epoch:
            raise Killed

    monkeypatch.setattr(trainer, "_evaluate", evaluate_and_die)
    with pytest.raises(Killed):
        trainer.fit()
    resumed = small_trainer(run)
    resumed.resume()
    assert (resumed.epoch, resumed.step) == (epoch - 1, 5)
    resumed.fit()
    assert without_speed(run) == without_speed(whole.run)


def test_loss_parameters_and_other_optimizers_resume_too(tmp_path):
    classes = torch.arange(30) % 5

    def make(run):
        split = replace(squares(), labels=ClassLabels(classes))
        torch.manual_seed(1)
        loss = ProxyAnchorLoss(num_classes=5, embedding_dim=4)
        trainer = small_trainer(run, split=split, loss=loss, model=Flat(dropout=0.1))
        given = [trainer.bare_model, EmbeddingStep(loss=loss), split, trainer.sampler, trainer.images]
        options = Training(epochs=2, clip_norm=1.0, clip_value=0.1, checkpoint_minutes=0.0)
        parts = {"optimizer": lambda groups: OPTIMIZERS["adamw"](lr=1e-2, loss_lr=1.0, groups=groups)}
        parts["schedule"] = lambda optimizer, _, total: SCHEDULES["cosine"](optimizer=optimizer, total_steps=total)
        return Trainer(*given, options, **parts, run=run, quiet=True)

    whole = assert_resumes(make, tmp_path, (0, 3), (1, 2))
    saved = load_state(whole.run.checkpoints / "state.safetensors")[0]["step"]
    assert saved.keys() == {"loss.proxies", "loss.index.names_hash"}
    assert torch.equal(saved["loss.proxies"], whole.training_step.loss.proxies)


@pytest.mark.usefixtures("no_reports")
def test_resume_with_a_changed_path(tiny_run, tmp_path):
    run = Run(shutil.copytree(tiny_run, tmp_path / "run"))
    kept = tmp_path / "kept"
    before, _, after = run.config.read_text().rpartition("cache: null")  # of the sampler
    run.config.write_text(f"{before}cache: {kept}{after}")
    assert resume(run.folder) is not None
    assert len(list(kept.iterdir())) == 1


def test_an_incomplete_checkpoint_is_refused(tmp_path):
    trainer = fitted(small_trainer(create(tmp_path, "run"), epochs=1))
    path = trainer.run.checkpoints / "state.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with refuses(str(path), got="damaged or cut short"):
        small_trainer(trainer.run).resume()


class StepOf(TrainingStep):
    """A step that is a function."""

    def __init__(self, function, loss=None):
        super().__init__(loss=loss or LogRatioLoss())
        self.function = function

    def forward(self, model, images, labels, anchors=None):
        return self.function(model, images, labels, anchors)


def test_broken_images_are_skipped_with_their_anchors():
    split, loss = squares(broken=(0, 7)), LogRatioLoss()
    seen = []

    def step(model, images, labels, anchors):
        seen.append((len(images), len(labels), len(anchors)))
        assert not {0, 7} & set(labels.rows.tolist())
        return loss(model(images), labels, anchors=anchors)

    trainer = small_trainer(split=split, broken="skip", epochs=3, batches=15, model=Flat(), step=StepOf(step, loss))
    trainer.fit()
    assert {size for size, _, _ in seen} == {8, 9, 10}
    assert {anchors for _, _, anchors in seen} >= {1, 2}
    assert set(trainer.images.left_out) == {"square 0", "square 7"}


def test_a_batch_of_broken_images_is_skipped():
    trainer = small_trainer(split=squares(broken=tuple(range(29))), broken="skip", epochs=1)
    before = weights(trainer)
    trainer.fit()
    assert_equal(weights(trainer), before)
    assert trainer.steps_done == 5


def test_training_does_not_change_the_callers_generator():
    trainer = small_trainer(epochs=1)
    before = torch.get_rng_state()
    trainer.fit()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loss_on_labels_of_another_kind_is_refused_before_the_first_step():
    for loss in (RAWLoss(), ProxyAnchorLoss(num_classes=4, embedding_dim=4)):
        with refuses(type(loss).__name__, got="graded"):
            small_trainer(loss=loss)
    with refuses("LogRatioLoss", got="classes", allowed="graded"):
        small_trainer(split=replace(squares(), labels=ClassLabels(torch.arange(30) % 5)))


@pytest.mark.parametrize("loss", [torch.nn.Identity(), Mock(requires="any"), torch.sum, None])
def test_what_is_not_a_loss_is_refused_in_one_line(loss):
    with pytest.raises(InputError) as error:
        EmbeddingStep(loss=loss)
    line = str(error.value)
    assert "\n" not in line
    for text in (type(loss).__name__, "torch.nn.Module", "requires"):
        assert text in line


# -- a user's training step --------------------------------------------------------------------------------------------


class Places(TrainingStep):
    """Beside the loss, it trains a network that predicts the place of a square from its embedding."""

    def __init__(self, lr=0.05, seed=5):
        super().__init__(loss=LogRatioLoss())
        torch.manual_seed(seed)
        self.network = torch.nn.Linear(4, 2)
        self.register_buffer("images", torch.zeros((), dtype=torch.int64))
        self.lr, self.error = lr, None

    def forward(self, model, images, labels, anchors=None):
        embeddings = model(images)
        directions = torch.nn.functional.normalize(embeddings.detach())
        error = (self.network(directions) - labels.values.float() / 12).square().mean()
        self.error, self.images = error.detach(), self.images + len(images)
        return self.loss(embeddings, labels, anchors=anchors) + error

    def parameter_groups(self):
        return [
            *super().parameter_groups(),
            {"name": "network", "params": list(self.network.parameters()), "lr": self.lr, "weight_decay": 0.25},
        ]

    def logs(self):
        return {"place_error": self.error.item()}


def test_a_network_of_a_step_has_its_own_learning_rate():
    lr = 0.2
    trainer = small_trainer(model=Flat(), step=Places(lr), clip_norm=1e-9, clip_value=1e-9)
    groups = [(g["name"], g["initial_lr"], g["weight_decay"]) for g in trainer.optimizer.param_groups]
    assert groups == [("backbone", 0.01, 5e-4), ("network", lr, 0.25)]
    before = whole_state(trainer)
    trainer.train_step(next(iter(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0))))
    after = whole_state(trainer)
    assert not torch.equal(after["model.linear.weight"], before["model.linear.weight"])
    for name, parameter in trainer.training_step.network.named_parameters():
        start = before[f"step.network.{name}"]
        assert parameter.grad.norm() > 1e-3  # a group with its own learning rate is not clipped
        torch.testing.assert_close(after[f"step.network.{name}"], start - lr * (parameter.grad + 0.25 * start))
    assert 0 < trainer.bare_model.linear.weight.grad.norm() <= 1.001e-9


def test_a_users_step_is_saved_and_resumes_bit_for_bit(tmp_path):
    def make(run):
        return small_trainer(run, step=Places(), checkpoint_minutes=0.0)

    begin = whole_state(make(None))
    whole = assert_resumes(make, tmp_path, (0, 0), (0, 3), (1, 2))
    expected = whole_state(whole)
    layers = {f"{layer}.{name}" for layer in ("model.linear", "step.network") for name in ("weight", "bias")}
    assert expected.keys() == layers | {"step.images"}
    assert all(not torch.equal(begin[name], value) for name, value in expected.items())
    assert expected["step.images"] == 100
    saved = load_state(whole.run.checkpoints / "state.safetensors")[0]
    assert_equal({f"{part}.{name}": value for part, state in saved.items() for name, value in state.items()}, expected)


def test_a_step_without_forward():
    class Empty(TrainingStep):
        """Nothing."""

    with pytest.raises(NotImplementedError, match=r"Empty has no forward\(self, model, images, labels, anchors\)"):
        small_trainer(step=Empty(loss=LogRatioLoss())).fit()


# -- optimizers and schedules ------------------------------------------------------------------------------------------


def rates_of(schedule, optimizer, steps):
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules(schedule):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    options = {"step": {"steps_per_epoch": 2, "epochs": 1}, "milestones": {"steps_per_epoch": 1, "epochs": [1, 3]}}
    options["cosine"] = {"total_steps": 4}
    expected = {"constant": [1, 1, 1, 1], "inverse": [1 / (1 + 1e-4 * step) for step in range(4)]}
    expected |= {"step": [1, 1, 0.5, 0.5], "milestones": [1, 0.5, 0.5, 0.25]}
    expected["cosine"] = [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]
    made = SCHEDULES[schedule](optimizer=optimizer, **options.get(schedule, {}))
    assert rates_of(made, optimizer, 4) == pytest.approx(expected[schedule])


def test_the_cosine_schedule_warms_up():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    made = SCHEDULES["cosine"](optimizer=optimizer, total_steps=6, warmup=0.34)
    rates = rates_of(made, optimizer, 7)
    assert rates == pytest.approx([2 / 3, 4 / 3, 2, 1 + 0.5**0.5, 1, 1 - 0.5**0.5, 0])
    SCHEDULES["cosine"](optimizer=optimizer, total_steps=0, warmup=0.5)


def test_learning_rates_by_group():
    trainer = small_trainer(model=Headed(), loss=MarginBinary())
    optimizer = OPTIMIZERS["adam"](lr=1.0, head_lr=2.0, loss_lr=3.0, weight_decay=0.5, groups=groups_of(trainer))
    assert [(g["name"], g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [
        ("backbone", 1.0, 0.5),
        ("head", 2.0, 0.5),
        ("loss", 3.0, 0.0),
    ]
    for make in OPTIMIZERS.values():
        decays = [g["weight_decay"] for g in make(loss_weight_decay=0.1, groups=groups_of(trainer)).param_groups]
        assert decays[2] == 0.1
        assert decays[0] == decays[1] != 0.1
    for epochs in ([], [0], [2, 2], [3, 1]):
        with refuses("epochs", str(epochs), "ascending"):
            SCHEDULES["milestones"](epochs, optimizer=optimizer, steps_per_epoch=1)


class Headed(Flat):
    def head_parameters(self):
        return [self.linear.bias]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_backbone_keeps_its_weights_in_head_only_epochs(optimizer):
    def trained(epochs):
        trainer = small_trainer(
            model=Headed(),
            loss=MarginBinary(),
            epochs=epochs,
            head_only_epochs=2,
            optimizer=partial(OPTIMIZERS[optimizer], weight_decay=0.1),
        )
        trainer.fit()
        return trainer.bare_model.linear

    start = Headed().linear
    frozen = trained(2)
    assert torch.equal(frozen.weight, start.weight)
    assert not torch.equal(frozen.bias, start.bias)
    assert not torch.equal(trained(3).weight, start.weight)


def test_head_only_epochs_need_a_head_or_parameters_of_the_loss():
    with refuses("head_only_epochs", "neither a head nor a loss", hint="model.dim"):
        small_trainer(model=Flat(), head_only_epochs=1)


class MarginBinary(LogRatioLoss):
    """A loss with a parameter that takes any labels."""

    def __init__(self):
        super().__init__()
        self.boundary = torch.nn.Parameter(torch.ones(()))


def groups_of(trainer):
    return [*model_groups(trainer.bare_model), *trainer.training_step.parameter_groups()]


def test_bfloat16_trains_with_the_loss_in_float32():
    trainer = fitted(small_trainer(model=Flat(), epochs=1, precision="bfloat16"))
    assert all(value.dtype == torch.float32 for value in weights(trainer).values())


def of_float64(with_regularizer):
    """Weights and correlation of a training. Log-ratios of near pairs magnify how float32 rounds five rows or ten."""
    loss = RegularizedLoss(LogRatioLoss(), RankSimLoss(weight=5.0)) if with_regularizer else LogRatioLoss()
    trainer = fitted(small_trainer(model=Flat().double(), loss=loss))
    return weights(trainer), trainer.evaluate(trainer.watched["test"])[0].spearman


@pytest.mark.slow
@pytest.mark.parametrize("with_regularizer", [False, True])
def test_two_processes_equal_one(with_regularizer):
    expected, spearman = of_float64(with_regularizer)
    for found, value in of_two_processes(of_float64, with_regularizer):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
        assert value == pytest.approx(spearman, abs=1e-3)


def test_nothing_to_resume_starts_from_the_beginning(tmp_path):
    run = create(tmp_path, "run")
    run.log({"event": "evaluation", "epoch": 0, "step": 0, "split": "test"})  # killed before the first state was saved
    trainer = small_trainer(run)
    trainer.resume()
    assert trainer.steps_done == 0
    assert run.rows() == []


def test_a_trained_run_without_its_state_is_refused(tmp_path):
    run = create(tmp_path, "run")
    small_trainer(run).fit()
    rows = run.rows()
    (run.checkpoints / "state.safetensors").unlink()
    with refuses(str(run.checkpoints), got="state.safetensors", hint="new run"):
        small_trainer(run).resume()
    assert run.rows() == rows  # nothing is dropped


def test_a_trainer_without_test_split_or_run_folder():
    split = squares()
    step = EmbeddingStep(loss=LogRatioLoss())
    trainer = Trainer(Flat(), step, split, small_trainer().sampler, Images(14, 14), Training(epochs=1), quiet=True)
    trainer.fit()
    assert trainer.watched == {}
    assert trainer.best is None
    with refuses("run", got="missing"):
        trainer.resume()
