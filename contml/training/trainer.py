"""The trainer: training steps, evaluation, checkpoints, resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

from contml._support.errors import DivergedError, InputError
from contml._support.imports import versions
from contml._support.progress import TrainingProgress
from contml._support.tensors import save_tensors
from contml.contracts import Sampler
from contml.data.split import SPLIT_TITLES, Batch, Loader, Split
from contml.evaluation.embed import embed_together
from contml.evaluation.evaluated import NO_GRADIENT
from contml.evaluation.evaluators import Found
from contml.evaluation.results import Evaluation, QueryMetric
from contml.labels.base import LabelSpace
from contml.models.network import Network
from contml.processes import Together, any_process, connected, from_first, gather_rows, share, world
from contml.runs import Run
from contml.training.checkpoint import load_state, load_weights, save_state
from contml.training.gradients import are_finite, changes, clip, seeded
from contml.training.optimizers import ParameterGroups, inverse, sgd
from contml.training.options import Training
from contml.training.selection import BestWeights, Candidate
from contml.training.setup import accelerator, check_flip, check_items, parameter_groups, sample_rows, what_is_trained
from contml.training.step import TrainingStep
from contml.training.trackers import RunLog

#: A method of a model: outputs of images.
Method: TypeAlias = Callable[[Tensor], Tensor]
#: Approximate maximum of training rows in metrics.jsonl.
_ROWS = 2000


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal. Its state is saved."""


class Trainer:
    """Trains an embedding so that its distances follow label distances.

    Args:
        model: maps images uint8 `[B, 3, H, W]` to embeddings `[B, d]`. If it has `head_parameters()`, these may have
            their own learning rate.
        step: the training step, such as `EmbeddingStep(loss=...)`. Its parameters are trained with the model, and its
            state is saved.
        split: images and labels to train on.
        sampler: chooses the rows of each batch.
        images: makes batches of images.
        options: epochs, precision, clipping, checkpoints.
        optimizer: returns an optimizer for parameter groups; default SGD as in the log-ratio paper.
        schedule: returns a schedule from (optimizer, steps per epoch, total steps); default `lr / (1 + 1e-4 step)`.
        val: the validation split. It is evaluated during training, and its best weights are kept (`options.select`).
        test: the split that is evaluated during training if there is no validation split; it selects nothing.
        run: the run folder for metrics and checkpoints; default None writes nothing.
        labels: the labels for the loss, if they differ from the labels of the split, such as binarized labels.
        config: plain values that are saved with state and weights.
        quiet: show no progress.
        device: "auto": a CUDA device if there is one; or "cpu" or "cuda".

    Raises:
        InputError: the loss does not accept this kind of labels.
    """

    def __init__(
        self,
        model: nn.Module,
        step: TrainingStep,
        split: Split,
        sampler: Sampler,
        images: Loader,
        options: Training | None = None,
        *,
        optimizer: Callable[[ParameterGroups], optim.Optimizer] = lambda groups: sgd(groups=groups),
        schedule: Callable[[optim.Optimizer, int, int], LRScheduler] = lambda bare, *_: inverse(optimizer=bare),
        val: Split | None = None,
        test: Split | None = None,
        run: Run | None = None,
        labels: LabelSpace | None = None,
        config: Mapping[str, Any] | None = None,
        quiet: bool = False,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        check_items(split, labels, sampler)
        #: The evaluator of the model. Another one may be set before `fit`, as for judged pairs.
        self.evaluator = step.evaluator(model)
        self.options = options or Training()
        self.accelerator = accelerator(self.options.precision, step.every_parameter, device)
        self.device = self.accelerator.device
        self.labels = (split.labels if labels is None else labels).to(self.device)
        self.split, self.sampler, self.images, self.run = split, sampler, images, run
        self.best = BestWeights(self.options.patience) if val is not None and self.options.select == "val" else None
        #: The split that is evaluated during training, by name: "val" or "test".
        self.watched: dict[str, Split] = {"val": val} if self.best and val else {"test": test} if test else {}
        step.check(model, self.labels)
        check_flip(images.flip, self.labels, step)
        self.training_step = step.to(self.device)
        share([*step.parameters(), *step.buffers()])  # as data parallelism does with the model
        groups = parameter_groups(model, step, head_alone=bool(self.options.head_only_epochs))
        bare_optimizer = optimizer(groups)
        # `device_placement` is given: accelerate would import torch's distributed tensors to choose devices.
        self.model, self.optimizer = self.accelerator.prepare(model, bare_optimizer, device_placement=[True, True])
        self._backbone = groups[0]["params"]
        self.steps = len(sampler)
        self.total_steps = self.options.epochs * self.steps
        self.schedule = schedule(bare_optimizer, self.steps, self.total_steps)
        self.parameters = [p for group in groups if "lr" not in group for p in group["params"]]
        self.quiet = quiet or not self.accelerator.is_main_process
        self.epoch, self.step = 0, 0
        self.config = dict(config or {})
        self._together = Together(60 * self.options.checkpoint_minutes, self.device)
        self._all_finite = torch.ones((), dtype=torch.bool, device=self.device)
        #: True if a step has changed the network: a gradient was not 0, and its learning rate was not 0.
        self.trained = False
        self._reported_broken = 0
        self._started = False  # True if the untrained model was evaluated and a first state saved
        self.log = RunLog(self.options.tracker)
        #: The time of the training until the last save, over all sessions. None if a session did not record its time.
        self.seconds: float | None = 0.0

    @property
    def steps_done(self) -> int:
        """The number of steps since the beginning."""
        return self.epoch * self.steps + self.step

    @property
    def bare_model(self) -> nn.Module:
        """The model without the wrapper of the accelerator."""
        # `unwrap_model` of accelerate would import torch's compiler, which takes over a second.
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model

    def whole_model(self) -> nn.Module:
        """Return the model with the buffers of the first process, on every process. All processes call this method."""
        share(self.bare_model.buffers())
        return self.bare_model

    @property
    def finished(self) -> bool:
        """True if training is finished: all epochs are done, or it stopped early."""
        return self.epoch >= self.options.epochs or (self.best is not None and self.best.stopped)

    def fit(self) -> None:
        """Train from the current state to the end.

        Raises:
            InputError: the loss or a weight is not finite, an image is broken and broken images are not skipped, or
                another process failed.
            Interrupted: SIGINT, SIGTERM or SIGHUP was received. The state is saved if there is a run folder.
        """
        self._together.stopping, self._together.saved = False, time.monotonic()
        if self.accelerator.is_main_process:
            self.log.open(self.run, self.config, step=self.steps_done if self._started else None)
        for split in (self.split, *self.watched.values()):
            self.images.prepare(split)
        with (
            self._together.request.listening(),
            connected(),
            TrainingProgress(self.options.epochs, self.steps, self.steps_done, silent=self.quiet) as progress,
        ):
            for line in what_is_trained({"train": self.split, **self.watched}, self.bare_model):
                progress.line(line)
            if not self._started:
                model = self.whole_model()
                if isinstance(model, Network) and model.starts_from_features:
                    model.start_head(self._outputs_of_some(model=model.bare_backbone()))
                self._before_epoch()
                self._evaluate(progress)
                if self.best is not None and isinstance(model, Network) and model.has_new_head:
                    self._compare("val", Candidate("features", "untrained features", model.without_head()), progress)
                self._started = True
                self._save_together()
            while not self.finished:
                self._train_epoch(progress)
                self.epoch, self.step = self.epoch + 1, 0
                self._before_epoch()
                if self.epoch == 1 and not self.trained:
                    progress.line(f"after epoch 1: {NO_GRADIENT}")
                if self.epoch == self.options.epochs or self.epoch % self.options.evaluate_every == 0:
                    self._evaluate(progress)
                if (num_broken := len(self.images.left_out)) > self._reported_broken:
                    self._reported_broken = num_broken
                    name, cause = next(iter(self.images.left_out.items()))
                    progress.line(f"broken images skipped so far: {num_broken}; the first: {name} ({cause})")
                self._save_together()
            for sentence in self.best.sentences() if self.best is not None else ():
                progress.line(sentence)
        self.images.close()

    def take_best(self) -> None:
        """Replace the model by the selected one: the best weights, or the untrained features without a head.

        The model is then in float32, whatever the precision of the training: `evaluate_run` and `contml.load` embed in
        float32.
        """
        self.model = self.accelerator.unwrap_model(self.whole_model(), keep_fp32_wrapper=False)
        if self.best is not None and self.best.weights is not None:
            if isinstance(self.model, Network):
                self.model = self.model.fitted_to(self.best.weights)
            self.model.load_state_dict(self.best.weights)

    def train_step(self, batch: Batch) -> Tensor:
        """Do one step on a batch: forward, backward, clip, update. Return the loss, detached.

        If fewer than two images of the batch can be read, the loss is 0 and no weight changes.
        """
        # Dropout draws from a seed of the step: no generator state needs to be saved, and the caller's generator is
        # not changed.
        seed = np.random.SeedSequence([self.sampler.seed, self.steps_done, world()[0]]).generate_state(1)[0]
        with seeded(int(seed), self.device):
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
        if images.ndim == 4:  # channels last in memory, which convolutions prefer
            images = images.contiguous(memory_format=torch.channels_last)
        loss: Tensor = self.training_step(self.model, images, self.labels[rows], anchors)
        if not loss.requires_grad:
            got = "neither the model nor the loss has a trainable parameter"
            raise InputError("model", got, hint="set training.epochs=0 to evaluate it without training")
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        if self.epoch < self.options.head_only_epochs:
            for parameter in self._backbone:
                parameter.grad = None  # so that neither momentum nor weight decay changes it
        self.trained = self.trained or changes(self.bare_model, self.optimizer)
        clip(self.accelerator, self.parameters, self.options.clip_norm, self.options.clip_value)
        self.optimizer.step()
        self.schedule.step()
        self._all_finite.logical_and_(loss.detach().isfinite())
        return loss.detach()

    def evaluate(self, split: Split, model: nn.Module | None = None) -> tuple[Evaluation, Found, Tensor]:
        """Embed a split, divided between the processes, and evaluate the ranking. Also return unreadable rows.

        A captioner describes the images of the split instead. The first process evaluates. The other processes get the
        evaluation and the main metric of each query.

        Args:
            split: the images.
            model: another model in place of the trained one.
        """
        outputs, missing = self.outputs(split, model)
        result: tuple[Evaluation, Found] | None = None
        with connected(), self._together():
            if self.accelerator.is_main_process:
                result = self.evaluator.evaluate(outputs, missing, split, self.device)
        with connected():
            sent = None if result is None else (result[0], QueryMetric(result[1].values, result[1].items))
            received = from_first(sent)
        assert received is not None  # the first process evaluated
        return *(result or received), missing

    def outputs(
        self, split: Split, model: nn.Module | None = None, among: Tensor | None = None, function: Method | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs of the model for a split, on every process, and unreadable rows.

        The processes share the work.

        Args:
            split: the images.
            model: another model in place of the trained one.
            among: only these rows, ascending.
            function: a method of the model, in place of the evaluator's method.

        Returns:
            A row for each of the images `[R, ...]`, 0 for an unreadable one; and the unreadable rows of the split.
        """
        rows = torch.arange(len(split)) if among is None else among
        model = model or self.whole_model()
        function, device = function or self.evaluator.function(model), self.device
        return embed_together(model, split, self.images, rows, self._together, device=device, function=function)

    def check_images(self, split: Split) -> None:
        """Decode every image of a split, divided between the processes, if broken images are errors.

        Raises:
            InputError: an image is broken, or another process found one.
        """
        rank, processes = world()
        with connected(), self._together():
            self.images.check(split, range(rank, len(split), processes))

    def save(self) -> None:
        """Write the state for `resume`, and the weights as `last`. All processes call this method.

        Raises:
            InputError: a weight is not finite, or a loss was not finite since the last call. Nothing is written.
        """
        with connected():
            self._check_finite()
            model, optimizer = self.whole_model(), self.optimizer.state_dict()
        with self._together():
            now = time.monotonic()
            self.seconds = None if self.seconds is None else self.seconds + now - self._together.saved
            self._together.saved = now
            if self.run is not None and self.accelerator.is_main_process:
                self._write_state(self.run, model, optimizer)

    def _write_state(self, run: Run, model: nn.Module, optimizer: Mapping[str, Any]) -> None:
        scaler = self.accelerator.scaler
        best, values = ({}, {}) if self.best is None else self.best.state()
        selection = None if self.best is None else self.best.summary()
        numbers: dict[str, Any] = {"epoch": self.epoch, "step": self.step, "finished": self.finished}
        numbers |= {"trained": self.trained, "best": best, "selection": selection and asdict(selection)}
        numbers |= {"schedule": self.schedule.state_dict(), "scaler": {} if scaler is None else scaler.state_dict()}
        numbers |= {"config": self.config, "labels": self.labels.identity}
        tensors = {"model": model.state_dict(), "step": self.training_step.state_dict(), "selection": values}
        # The state is last: training goes on from it, and writes again what came before.
        self._save_weights("last", model.state_dict())
        save_state(run.checkpoints / "state.safetensors", tensors, optimizer, numbers)
        run.save_seconds(self.seconds)

    def _save_weights(self, name: str, model: Mapping[str, Tensor]) -> None:
        if self.run is not None and self.accelerator.is_main_process:
            path = self.run.checkpoints / f"{name}.safetensors"
            epoch = self.epoch + self.step / self.steps if self.step else self.epoch
            save_tensors(path, model, config=self.config, epoch=epoch, versions=versions())

    def resume(self) -> None:
        """Continue from the saved state of the run folder, or from the beginning if nothing was trained yet.

        Raises:
            InputError: there is no run folder, or a checkpoint is missing.
        """
        if self.run is None:
            raise InputError("run", "missing", hint="give the trainer a run folder")
        path = self.run.checkpoints / "state.safetensors"
        if path.exists():
            tensors, optimizer, numbers = load_state(path)
            if numbers["labels"] != self.labels.identity:
                allowed, hint = "must be the same as in the saved state", "give the same labels, or start a new run"
                raise InputError("labels", repr(self.labels), allowed, hint)
            self.bare_model.load_state_dict(tensors["model"])
            self.training_step.load_state_dict(tensors.get("step", {}))
            self.optimizer.load_state_dict(optimizer)
            self.schedule.load_state_dict(numbers["schedule"])
            if self.accelerator.scaler is not None and numbers["scaler"]:
                self.accelerator.scaler.load_state_dict(numbers["scaler"])
            self.epoch, self.step, self.trained = numbers["epoch"], numbers["step"], numbers["trained"]
            self.seconds = self.run.read_seconds()
            if self.best is not None:
                weights, _ = load_weights(self.run.checkpoints / "best.safetensors")
                self.best.load_state(numbers["best"], tensors["selection"], weights)
            self._started = True
        elif any(row.get("event") == "train" for row in self.run.rows()):
            got = f"it was trained, but has no {path.name}"
            raise InputError(str(self.run.checkpoints), got, hint="restore the checkpoints, or start a new run")
        if self.accelerator.is_main_process:
            # If the state was saved before the evaluation at the end of an epoch, its row will be written again.
            self.run.rewind(self.steps_done if path.exists() else -1, evaluated=self.step < self.steps)

    def _train_epoch(self, progress: TrainingProgress) -> None:
        self.model.train()
        log_interval = max(1, self.total_steps // _ROWS)
        value = float("nan")
        batches = self.images.train_batches(self.split, self.sampler, epoch=self.epoch, start=self.step, part=world())
        while True:
            if self._together.save_due:
                self._save_together()
            with self._together():
                batch = next(batches, None)
            if self._together.stopping:
                self._save_together()
            if batch is None:
                return
            learning_rate = float(self.schedule.get_last_lr()[0])
            loss = self.train_step(batch)
            self.step += 1
            if self.steps_done % log_interval == 0 or self.step == self.steps:
                self._check_finite()
                with self._together():
                    value = loss.item()
                    logs = self.training_step.logs()
                    self._log("train", loss=value, learning_rate=learning_rate, images_per_second=progress.rate, **logs)
            progress.step(self.epoch + 1, len(batch.rows) * world()[1], value)

    def _save_together(self) -> None:
        """Save, and stop if a process has received a signal."""
        self.save()
        if self._together.stopping:
            moment = f"in epoch {self.epoch + 1}, after step {self.step}" if self.step else f"after epoch {self.epoch}"
            raise Interrupted(f"stopped by {self._together.request.name or 'a signal to another process'} {moment}")

    def _check_finite(self) -> None:
        weights = [*self.bare_model.state_dict().values(), *self.training_step.parameters()]
        broken = any_process(*(not bool(each) for each in (self._all_finite, are_finite(weights))), device=self.device)
        for name, is_broken in zip(("loss", "weights"), broken, strict=True):
            if is_broken:
                got = f"not finite in epoch {self.epoch + 1}, by step {self.step}: training diverged"
                hint = "lower the learning rate or clip the gradients; earlier checkpoints are kept"
                raise DivergedError(name, got, hint=hint)

    def _outputs_of_some(self, function: Method | None = None, model: nn.Module | None = None) -> Tensor:
        """Return the outputs for some training images, drawn with a fixed seed `[N, ...]`.

        Arguments are as in `outputs`.
        """
        rows = sample_rows(len(self.split))
        outputs, missing = self.outputs(self.split, model, rows, function)
        return outputs[~torch.isin(rows, missing)]

    def _before_epoch(self) -> None:
        """Let the step prepare the network for the epoch."""
        self.training_step.before_epoch(self.steps_done, self.whole_model(), self._outputs_of_some)

    def _evaluate(self, progress: TrainingProgress) -> None:
        moment, model = f"after epoch {self.epoch}", self.whole_model()
        for name in self.watched:
            self._compare(name, Candidate("evaluation", moment, model), progress)

    def _compare(self, name: str, candidate: Candidate, progress: TrainingProgress) -> None:
        """Evaluate a model on a split, log the result, and keep the model if it is the best so far."""
        evaluation, found, _ = self.evaluate(self.watched[name], candidate.model)
        with self._together():
            self._log(candidate.event, split=name, metric=evaluation.headline, **evaluation.numbers())
            progress.line(f"{candidate.text(evaluation)} ({SPLIT_TITLES[name]} split)")
            if self.best is None:
                return
            if self.best.take(candidate, evaluation, found, self.epoch):
                self._save_weights("best", self.best.weights or {})
            if self.best.stopped and self.epoch < self.options.epochs:
                progress.line(f"stopped early: no better result in {self.best.since} evaluations")
                self._log("stop")

    def _log(self, event: str, **values: Any) -> None:
        self.log.add(event, self.epoch + self.step / self.steps, self.steps_done, **values)
