"""The trainer: batch, embeddings, label distances, loss, step; evaluation, checkpoint, resume."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.optim.lr_scheduler import LRScheduler

from contml._support.errors import InputError
from contml._support.progress import TrainingProgress
from contml.contracts import Sampler
from contml.data import Batch, Images
from contml.data.split import Split
from contml.evaluation.embed import embed
from contml.evaluation.results import Evaluation, Ranking
from contml.evaluation.retrieval import evaluate
from contml.labels.base import LabelSpace
from contml.runs import Run
from contml.training.checkpoint import load_state, save_state, save_weights
from contml.training.gather import gather_rows, world
from contml.training.optimizers import ParameterGroups, inverse, sgd
from contml.training.options import Training
from contml.training.setup import accelerator, model_groups
from contml.training.step import TrainingStep

#: Training rows in metrics.jsonl, at most about: enough for any plot.
_ROWS = 2000
#: K of the figures in an evaluation row.
_ROW_K = (1, 10, 100)


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; its state is saved."""


class Trainer:
    """Trains an embedding so that its distances follow label distances.

    Args:
        model: images uint8 `[B, 3, H, W]` to embeddings `[B, d]`; with `head_parameters()`, those may learn at their
            own rate.
        step: what happens in a step, as `EmbeddingStep(loss=...)`; it owns the loss. Its parameters are trained
            with the model, its state is saved.
        split: images and labels to train on.
        sampler: which rows make a batch.
        images: how images become batches.
        options: epochs, precision, clipping, checkpoints.
        optimizer: makes an optimiser of the parameter groups; default SGD as in the log-ratio paper.
        schedule: makes a schedule of (optimiser, steps an epoch, all steps); default `lr / (1 + 1e-4 step)`.
        test: the split to evaluate on.
        run: the run folder that keeps metrics and checkpoints; None keeps nothing.
        labels: the labels as the loss sees them, where these are the split's as 0 / 1; default the split's own.
        config: plain values that are kept with the state, so that a resumed training can be held to them.
        quiet: show no progress.

    Raises:
        InputError: the loss needs another kind of label than these are.
    """

    def __init__(
        self,
        model: nn.Module,
        step: TrainingStep,
        split: Split,
        sampler: Sampler,
        images: Images,
        options: Training | None = None,
        *,
        optimizer: Callable[[ParameterGroups], optim.Optimizer] | None = None,
        schedule: Callable[[optim.Optimizer, int, int], LRScheduler] | None = None,
        test: Split | None = None,
        run: Run | None = None,
        labels: LabelSpace | None = None,
        config: Mapping[str, Any] | None = None,
        quiet: bool = False,
    ) -> None:
        self.options = options or Training()
        self.accelerator = accelerator(self.options.precision)
        self.device = self.accelerator.device
        self.labels = (split.labels if labels is None else labels).to(self.device)
        self.split, self.test, self.sampler, self.images, self.run = split, test, sampler, images, run
        step.check(model, self.labels)
        self.training_step = step.to(self.device)
        groups = [*model_groups(model), *step.parameter_groups()]
        for group in groups:
            group["params"] = [p for p in group["params"] if p.requires_grad]
        made = optimizer(groups) if optimizer else sgd(groups=groups)
        self.model, self.optimizer = self.accelerator.prepare(model, made)
        self.steps = len(sampler)
        self.total = self.options.epochs * self.steps
        self.schedule = schedule(made, self.steps, self.total) if schedule else inverse(optimizer=made)
        self.parameters = [p for group in groups if "lr" not in group for p in group["params"]]
        self.quiet = quiet or not self.accelerator.is_main_process
        self.epoch, self.step = 0, 0
        self.best = math.nan  # the headline figure of the best evaluation so far
        self.result: tuple[Evaluation, Ranking] | None = None
        self.missing = torch.zeros(0, dtype=torch.int64)  # test rows that could not be read
        self.config = dict(config or {})
        self._stop = ""
        self._finite = torch.ones((), dtype=torch.bool, device=self.device)
        self._left_out = 0
        self._begun = False  # the untrained model is evaluated, and a first state is saved
        self._saved = time.monotonic()

    @property
    def done(self) -> int:
        """Steps done since the beginning."""
        return self.epoch * self.steps + self.step

    @property
    def bare_model(self) -> nn.Module:
        """The model without what the accelerator wrapped round it."""
        model: nn.Module = self.accelerator.unwrap_model(self.model)
        return model

    def fit(self) -> None:
        """Train to the end, from the state that this trainer is in.

        Raises:
            InputError: the loss is not finite, or an image is broken and these are to fail.
            Interrupted: SIGINT or SIGTERM came; the state is saved, if there is a run folder.
        """
        self._stop = ""
        for split in (self.split, self.test):
            if split is not None:
                self.images.prepare(split)
        with (
            self._signals(),
            TrainingProgress(self.options.epochs, self.steps, self.done, silent=self.quiet) as progress,
        ):
            self._report_excluded(progress)
            if not self._begun:
                self._evaluate(progress)
                self._begun = True
                self.save()
                self._stop_if_asked()
            while self.epoch < self.options.epochs:
                self._train_epoch(progress)
                self.epoch, self.step = self.epoch + 1, 0
                last = self.epoch == self.options.epochs
                if last or self.epoch % self.options.evaluate_every == 0:
                    self._evaluate(progress)
                self.save()
                self._report_broken(progress)
                if not last:
                    self._stop_if_asked()
        self.images.close()

    def train_step(self, batch: Batch) -> Tensor:
        """One step on a batch: forward, backward, clip, update. The loss, detached.

        A batch of which fewer than two images could be read has nothing to compare: its loss is 0, and no weight moves.
        """
        # Dropout and the like draw from the step's own seed: a resumed run needs no generator's state, and the caller's
        # generator is left alone.
        seed = np.random.SeedSequence([self.sampler.seed, self.done, world()[0]]).generate_state(1)[0]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(seed))
            return self._train_step(batch)

    def _train_step(self, batch: Batch) -> Tensor:
        rows = gather_rows(batch.rows.to(self.device))
        if len(rows) < 2:
            return torch.zeros((), device=self.device)
        anchors = None
        if self.sampler.anchors is not None:
            positions = gather_rows(batch.positions.to(self.device))
            anchors = torch.arange(int((positions < self.sampler.anchors).sum()), device=self.device)
        images = batch.images.to(self.device)
        loss: Tensor = self.training_step(self.model, images, self.labels[rows], anchors)
        if not loss.requires_grad:
            raise InputError(
                "nothing learns: neither model nor loss has a parameter; 0 epochs evaluate the model as it is"
            )
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        if self.options.clip_norm is not None:
            self.accelerator.clip_grad_norm_(self.parameters, self.options.clip_norm)
        if self.options.clip_value is not None:
            self.accelerator.clip_grad_value_(self.parameters, self.options.clip_value)
        self.optimizer.step()
        self.schedule.step()
        self._finite.logical_and_(loss.detach().isfinite())
        return loss.detach()

    def evaluate(self) -> tuple[Evaluation, Ranking]:
        """Embed the test split, each process its share, and hold the ranking to the labels."""
        if self.test is None:
            raise InputError("there is no test split to evaluate on")
        rank, processes = world()
        rows = torch.arange(rank, len(self.test), processes)
        embeddings, missing = embed(self.model, self.test, self.images, rows, device=self.device)
        if processes > 1:
            from accelerate.utils import gather_object

            parts = gather_object([(embeddings, missing)])
            embeddings = torch.stack([part[0] for part in parts]).sum(0)
            missing = torch.cat([part[1] for part in parts])
        self.missing = missing
        labels = self.test.labels.to(self.device)
        return evaluate(
            embeddings,
            labels,
            self.test.queries,
            self.test.gallery,
            missing=missing,
            recall_at=self.test.recall_at,
            groups=self.test.groups,
        )

    def save(self) -> None:
        """Write the state from which `resume` goes on, and the weights as `last`.

        Raises:
            InputError: a loss was not finite since the last time: such weights never replace good ones.
        """
        self._check()
        self._saved = time.monotonic()
        if self.run is None or not self.accelerator.is_main_process:
            return
        model = self.bare_model.state_dict()
        scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else {}
        numbers = {
            "epoch": self.epoch,
            "step": self.step,
            "best": self.best,
            "schedule": self.schedule.state_dict(),
            "scaler": scaler,
            "config": self.config,
        }
        optimizer = self.optimizer.state_dict()
        tensors = {"model": model, "step": self.training_step.state_dict()}
        save_state(self.run.checkpoints / "state.safetensors", tensors, optimizer, numbers)
        save_weights(self.run.checkpoints / "last.safetensors", model)

    def resume(self) -> None:
        """Go on from the run folder's saved state, or from the beginning where it has none yet."""
        if self.run is None:
            raise InputError("there is no run folder to resume from")
        path = self.run.checkpoints / "state.safetensors"
        if path.exists():
            tensors, optimizer, numbers = load_state(path)
            self.bare_model.load_state_dict(tensors["model"])
            self.training_step.load_state_dict(tensors.get("step", {}))
            self.optimizer.load_state_dict(optimizer)
            self.schedule.load_state_dict(numbers["schedule"])
            if self.accelerator.scaler is not None and numbers["scaler"]:
                self.accelerator.scaler.load_state_dict(numbers["scaler"])
            self.epoch, self.step, self.best = numbers["epoch"], numbers["step"], numbers["best"]
            self._begun = True
        if self.accelerator.is_main_process:
            # A state from before the evaluation at the end of an epoch: that row will be written again.
            self.run.rewind(self.done if path.exists() else -1, evaluated=self.step < self.steps)

    def _train_epoch(self, progress: TrainingProgress) -> None:
        self.model.train()
        every = max(1, self.total // _ROWS)
        value = float("nan")
        for batch in self.images.train_batches(
            self.split, self.sampler, epoch=self.epoch, start=self.step, part=world()
        ):
            rate = float(self.schedule.get_last_lr()[0])
            loss = self.train_step(batch)
            self.step += 1
            if self.done % every == 0 or self.step == self.steps:
                self._check()
                value = loss.item()
                logs = self.training_step.logs()
                self._log("train", loss=value, learning_rate=rate, images_per_second=progress.rate, **logs)
            progress.step(self.epoch + 1, len(batch.rows) * world()[1], value)
            if time.monotonic() - self._saved > 60 * self.options.checkpoint_minutes:
                self.save()
            if self._asked_to_stop():
                self.save()
                self._stop_if_asked()

    def _asked_to_stop(self) -> bool:
        # Several processes stop after the same step, or one would wait for the others for ever.
        if world()[1] > 1:
            asked = torch.tensor([float(bool(self._stop))], device=self.device)
            if float(self.accelerator.reduce(asked, "sum")) > 0:
                self._stop = self._stop or "another process"
        return bool(self._stop)

    def _stop_if_asked(self) -> None:
        if self._asked_to_stop():
            where = f"in epoch {self.epoch + 1}, after step {self.step}" if self.step else f"after epoch {self.epoch}"
            raise Interrupted(f"stopped by {self._stop} {where}")

    def _check(self) -> None:
        if not bool(self._finite):
            raise InputError(
                f"the loss was not finite in epoch {self.epoch + 1}, by step {self.step}: training diverged; "
                "lower the learning rate or clip the gradients (a run's last checkpoint is from before)"
            )

    def _report_excluded(self, progress: TrainingProgress) -> None:
        for name, split in (("training", self.split), ("test", self.test)):
            if split is not None and split.excluded:
                reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
                progress.line(f"{name} items left out: {reasons}; {len(split):,} are there")

    def _report_broken(self, progress: TrainingProgress) -> None:
        broken = len(self.images.left_out)
        if broken > self._left_out:
            self._left_out = broken
            name, cause = next(iter(self.images.left_out.items()))
            progress.line(f"{broken} broken images left out so far; the first: {name} ({cause})")

    def _evaluate(self, progress: TrainingProgress) -> None:
        if self.test is None:
            return
        self.result = self.evaluate()
        evaluation = self.result[0]
        row: dict[str, float] = {"spearman": evaluation.spearman}
        for name, curve in evaluation.curves.items():
            ks = evaluation.recall_at if name == "recall" else _ROW_K
            row |= {f"{name}@{k}": curve.model[k - 1] for k in ks if k <= len(curve.model)}
        self._log("evaluation", **row, **{name: score.model for name, score in evaluation.scores.items()})
        name, k = evaluation.headline
        curve = evaluation.curves[name]
        value, by_chance = curve.model[k - 1], curve.random[k - 1]
        share = f", {value / by_chance:.1%} of a random ranking's" if by_chance and curve.better == "lower" else ""
        progress.line(f"after epoch {self.epoch}: {curve.title}@{k} {value:.4g}{share}")
        # Nothing compares with NaN: the first evaluation is the best so far.
        if not (value >= self.best if curve.better == "lower" else value <= self.best):
            self.best = value
            if self.run is not None and self.accelerator.is_main_process:
                save_weights(self.run.checkpoints / "best.safetensors", self.bare_model.state_dict())

    def _log(self, event: str, **values: float) -> None:
        if self.run is not None and self.accelerator.is_main_process:
            self.run.log({"event": event, "epoch": self.epoch + self.step / self.steps, "step": self.done, **values})

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask_to_stop(number: int, _frame: FrameType | None) -> None:
            if self._stop:  # the second time is meant
                raise KeyboardInterrupt
            self._stop = signal.Signals(number).name

        before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
