"""The trainer: training steps, evaluation, checkpoints, resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import PARAM_LIST, AveragedModel, get_ema_multi_avg_fn

from contml._support.errors import DivergedError, InputError
from contml._support.imports import versions
from contml._support.progress import TrainingProgress
from contml._support.signals import StopRequest
from contml._support.tensors import save_tensors
from contml.contracts import Sampler
from contml.data import Batch, Images
from contml.data.split import SPLIT_TITLES, Split, check_split
from contml.evaluation.embed import embed_rows, unreadable_images
from contml.evaluation.evaluated import NO_GRADIENT
from contml.evaluation.evaluators import Evaluator, Found, RetrievalEvaluator
from contml.evaluation.results import Evaluation, QueryMetric
from contml.labels.base import LabelSpace
from contml.models import EmbeddingModel
from contml.models.adapter import plain_weights
from contml.models.heads import FROM_FEATURES, head_rows
from contml.processes import (
    any_process,
    connected,
    from_first,
    gather_items,
    gather_rows,
    other_process_error,
    share,
    world,
)
from contml.runs import Run
from contml.sampling import BatchSampler
from contml.training.checkpoint import load_state, load_weights, save_state
from contml.training.optimizers import ParameterGroups, inverse, sgd
from contml.training.options import Training
from contml.training.selection import BestWeights
from contml.training.setup import accelerator, model_groups, why_not_compiled
from contml.training.step import TrainingStep
from contml.training.trackers import RunLog

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
        val: the validation split: it is evaluated during training, and its best weights are kept (`options.select`).
        test: the split that is evaluated during training if there is no validation split; it selects nothing.
        run: the run folder for metrics and checkpoints; default None writes nothing.
        labels: the labels for the loss, if they differ from the labels of the split, such as binarized labels.
        config: plain values that are saved with state and weights.
        evaluator: evaluates the model on a split; default: as an embedding, by retrieval.
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
        images: Images,
        options: Training | None = None,
        *,
        optimizer: Callable[[ParameterGroups], optim.Optimizer] = lambda groups: sgd(groups=groups),
        schedule: Callable[[optim.Optimizer, int, int], LRScheduler] = lambda bare, *_: inverse(optimizer=bare),
        val: Split | None = None,
        test: Split | None = None,
        run: Run | None = None,
        labels: LabelSpace | None = None,
        config: Mapping[str, Any] | None = None,
        evaluator: Evaluator | None = None,
        quiet: bool = False,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        check_split(split)
        for name, items in (
            ("labels", len(split) if labels is None else len(labels)),
            ("sampler", sampler.items if isinstance(sampler, BatchSampler) else len(split)),
        ):
            if items != len(split):
                raise InputError(name, f"{items} items", f"must be of the {len(split)} items of the split")
        self.evaluator = evaluator or RetrievalEvaluator()
        self.options = options or Training()
        self.accelerator = accelerator(self.options.precision, step.every_parameter, device)
        self.device = self.accelerator.device
        self.labels = (split.labels if labels is None else labels).to(self.device)
        self.split, self.sampler, self.images, self.run = split, sampler, images, run
        self.best = BestWeights(self.options.patience) if val is not None and self.options.select == "val" else None
        #: The split that is evaluated during training, by name: "val" or "test".
        self.watched: dict[str, Split] = {"val": val} if self.best and val else {"test": test} if test else {}
        for module in [*model.modules()]:
            if isinstance(module, EmbeddingModel):
                module.add_adapter(sampler.seed)
        step.check(model, self.labels)
        self.training_step = step.to(self.device)
        share([*step.parameters(), *step.buffers()])  # as data parallelism does with the model
        groups = [*model_groups(model), *step.parameter_groups()]
        for group in groups:
            group["params"] = [p for p in group["params"] if p.requires_grad]
        if self.options.head_only_epochs and not any(group["params"] for group in groups[1:]):
            got = "neither a head nor a loss has parameters to train"
            raise InputError("head_only_epochs", got, hint="set model.dim, or training.head_only_epochs=0")
        #: The moving average of the weights.
        self.average: AveragedModel | None = None
        if self.options.ema is not None:
            if self.best is None:
                raise InputError("ema", f"{self.options.ema:g}", hint="give a validation split, which chooses")
            self.average = AveragedModel(model, self.device, multi_avg_fn=self._average, use_buffers=True)
        step.use_average(self.average)
        bare_optimizer = optimizer(groups)
        # The devices are given, as accelerate would import torch's distributed tensors to choose them.
        placed = self.accelerator.prepare(model, bare_optimizer, device_placement=[True, True])
        self.model, self.optimizer = placed
        self._backbone = groups[0]["params"]
        self.steps = len(sampler)
        self.total_steps = self.options.epochs * self.steps
        self.schedule = schedule(bare_optimizer, self.steps, self.total_steps)
        self.parameters = [p for group in groups if "lr" not in group for p in group["params"]]
        self.quiet = quiet or not self.accelerator.is_main_process
        self.epoch, self.step = 0, 0
        self.config = dict(config or {})
        self._stop_request = StopRequest()  # to this process
        # Whether any process has received a signal, and whether a state is due; the same on all.
        self._stopping = self._save_due = False
        self._all_finite = torch.ones((), dtype=torch.bool, device=self.device)
        #: Whether a step has changed the network: a gradient was not 0, and its learning rate was not.
        self.trained = False
        self._reported_broken = 0
        self._compiled: Any = None  # the backbone, compiled for training
        self._started = False  # whether the untrained model was evaluated and a first state saved
        self.log = RunLog(self.options.tracker)
        #: The time of the training until the last save, over all its sessions; None where one did not record it.
        self.seconds: float | None = 0.0
        self._save_time = time.monotonic()  # until when `seconds` counts

    @property
    def steps_done(self) -> int:
        """Steps done since the beginning."""
        return self.epoch * self.steps + self.step

    @property
    def bare_model(self) -> nn.Module:
        """The model without the wrapper of the accelerator."""
        # `unwrap_model` of accelerate would import torch's compiler, which takes over a second.
        model: nn.Module = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        return model

    def whole_model(self) -> nn.Module:
        """The model, with the buffers of the first process on each. All processes call it."""
        share(self.bare_model.buffers())
        return self.bare_model

    @property
    def finished(self) -> bool:
        """Whether training is finished: all epochs are done, or it stopped early."""
        return self.epoch >= self.options.epochs or (self.best is not None and self.best.stopped)

    def fit(self) -> None:
        """Train from the current state to the end.

        Raises:
            InputError: the loss or a weight is not finite, an image is broken and broken images are not skipped, or
                another process failed.
            Interrupted: SIGINT, SIGTERM or SIGHUP was received. The state is saved if there is a run folder.
        """
        self._stopping = False
        self._save_time = time.monotonic()
        if self.accelerator.is_main_process:
            self.log.open(self.run, self.config, step=self.steps_done if self._started else None)
        for split in (self.split, *self.watched.values()):
            self.images.prepare(split)
        with (
            self._stop_request.listening(),
            connected(),
            TrainingProgress(self.options.epochs, self.steps, self.steps_done, silent=self.quiet) as progress,
        ):
            self._report_excluded(progress)
            self._report_frozen(progress)
            self._compile(progress)
            if not self._started:
                self._start_head()
                self._before_epoch()
                self._evaluate(progress)
                self._evaluate_features(progress)
                self._started = True
                self._save_together()
            while not self.finished:
                self._train_epoch(progress)
                self.epoch, self.step = self.epoch + 1, 0
                self._before_epoch()
                if self.epoch == 1 and not self.trained:
                    progress.line(f"after epoch 1: {NO_GRADIENT}")
                is_last_epoch = self.epoch == self.options.epochs
                if is_last_epoch or self.epoch % self.options.evaluate_every == 0:
                    self._evaluate(progress)
                self._report_broken(progress)
                self._save_together()
            if self.best is not None and self.best.features and self.best.evaluation:
                progress.line(self.best.features.sentence(self.best.evaluation, self.best.metric))
            if self.best is not None and self.best.averages and self.best.evaluation:
                progress.line(self.best.averages.sentence(self.best.evaluation, self.best.metric))
        self.images.close()

    def take_best(self) -> None:
        """Replace the model by the one that was selected: the best weights, or the untrained features without a head.

        It is in float32, whatever the precision of the training: as `evaluate_run` and `contml.load` embed.
        """
        self.model = self.accelerator.unwrap_model(self.whole_model(), keep_fp32_wrapper=False)
        for module in [*self.model.modules()]:
            if isinstance(module, EmbeddingModel):
                module.merge_adapter()
        if self.best is not None and self.best.weights is not None:
            if isinstance(self.model, EmbeddingModel):
                self.model = self.model.fitted_to(self.best.weights)
            self.model.load_state_dict(self.best.weights)

    def train_step(self, batch: Batch) -> Tensor:
        """One step on a batch: forward, backward, clip, update. Returns the loss, detached.

        If fewer than two images of the batch can be read, the loss is 0 and no weight changes.
        """
        # Dropout draws from a seed of the step: no generator state needs to be saved, and the caller's generator is
        # not changed.
        seed = np.random.SeedSequence([self.sampler.seed, self.steps_done, world()[0]]).generate_state(1)[0]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            # `torch.manual_seed` formats the stack for each kind of device that is not there: long, for a small step.
            torch.default_generator.manual_seed(int(seed))
            if self.device.type != "cpu":
                torch.get_device_module(self.device).manual_seed(int(seed))
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
        self.trained = self.trained or self._changes_network()
        if self.options.clip_norm is not None:
            self.accelerator.clip_grad_norm_(self.parameters, self.options.clip_norm)
        if self.options.clip_value is not None:
            self.accelerator.unscale_gradients()
            for gradient in (p.grad for p in self.parameters if p.grad is not None):
                gradient.clamp_(-self.options.clip_value, self.options.clip_value)
        self.optimizer.step()
        self.schedule.step()
        if self.average is not None:
            self.average.update_parameters(self.whole_model())
        self._all_finite.logical_and_(loss.detach().isfinite())
        return loss.detach()

    def _average(self, average: PARAM_LIST, weights: PARAM_LIST, count: Tensor | int) -> None:
        """Update the moving average; `AveragedModel` starts it with the weights after the first step."""
        steps = self.steps_done
        decay = min(self.options.ema or 0.0, (1 + steps) / (10 + steps))
        get_ema_multi_avg_fn(decay)(average, weights, count)  # type: ignore[no-untyped-call]

    def _changes_network(self) -> bool:
        """Whether the gradients of this step change the network."""
        network = {id(parameter) for parameter in self.bare_model.parameters()}
        gradients = [
            parameter.grad
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            if group["lr"] > 0 and id(parameter) in network and parameter.grad is not None
        ]
        return bool(get_total_norm(gradients, math.inf) != 0)

    def evaluate(self, split: Split, model: nn.Module | None = None) -> tuple[Evaluation, Found, Tensor]:
        """Embed a split, divided between the processes, and evaluate the ranking; also returns unreadable rows.

        A captioner describes the images of the split instead. The first process evaluates; the others get the
        evaluation, and of what was found the main metric of each query.

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
        self,
        split: Split,
        model: nn.Module | None = None,
        among: Tensor | None = None,
        function: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The outputs of the model for a split, computed by all processes and gathered on each, and unreadable rows.

        Args:
            split: the images.
            model: another model in place of the trained one.
            among: only these rows, ascending.
            function: a method of the model, in place of what the evaluator calls.

        Returns:
            A row for each of the images `[R, ...]`, 0 for an unreadable one; and the unreadable rows of the split.
        """
        rows = torch.arange(len(split)) if among is None else among
        rank, processes = world()
        model = model or self.whole_model()
        with connected(), self._together():
            read_rows, outputs = embed_rows(
                model,
                split,
                self.images,
                rows[rank::processes],
                device=self.device,
                function=function or self.evaluator.function(model),
            )
        with connected():
            outputs, missing = gather_items(torch.searchsorted(rows, read_rows), outputs, len(rows), self.device)
        if len(missing) == len(rows):
            raise unreadable_images()
        return outputs, rows[missing]

    def check_images(self, split: Split) -> None:
        """Decode every image of a split, divided between the processes, if broken images are errors.

        Raises:
            InputError: an image is broken, or another process found one.
        """
        rank, processes = world()
        with connected(), self._together():
            self.images.check(split, range(rank, len(split), processes))

    def save(self) -> None:
        """Write the state for `resume`, and the weights as `last`. All processes call it.

        Raises:
            InputError: a weight is not finite, or a loss was not since the last call. Nothing is written.
        """
        with connected():
            self._check_finite()
            model, optimizer = self.whole_model(), self.optimizer.state_dict()
        with self._together():
            self._save(model, optimizer)

    def _save(self, whole_model: nn.Module, optimizer: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self.seconds = None if self.seconds is None else self.seconds + now - self._save_time
        self._save_time = now
        if self.run is None or not self.accelerator.is_main_process:
            return
        scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else {}
        averaged = {} if self.average is None else self.average.state_dict()
        best, values = ({}, {}) if self.best is None else self.best.state()
        selection = None if self.best is None else self.best.summary()
        numbers = {
            "epoch": self.epoch,
            "step": self.step,
            "finished": self.finished,
            "trained": self.trained,
            "best": best,
            "selection": None if selection is None else asdict(selection),
            "schedule": self.schedule.state_dict(),
            "scaler": scaler,
            "config": self.config,
        }
        parts = {"model": whole_model.state_dict(), "step": self.training_step.state_dict()}
        tensors = {**parts, "selection": values, "ema": averaged}
        save_state(self.run.checkpoints / "state.safetensors", tensors, optimizer, numbers)
        self._save_weights("last", plain_weights(whole_model))
        if self.average is not None:
            self._save_weights("ema", plain_weights(self.average.module))
        self.run.save_seconds(self.seconds)

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
            self.bare_model.load_state_dict(tensors["model"])
            self.training_step.load_state_dict(tensors.get("step", {}))
            if self.average is not None:
                self.average.load_state_dict(tensors["ema"])
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
            if self._save_due:
                self._save_together()
            with self._together():
                batch = next(batches, None)
            if self._stopping:
                self._save_together()
            if batch is None:
                return
            learning_rate = float(self.schedule.get_last_lr()[0])
            with self._compiled_backbone():
                loss = self.train_step(batch)
            self.step += 1
            if self.steps_done % log_interval == 0 or self.step == self.steps:
                self._check_finite()
                with self._together():
                    value = loss.item()
                    logs = self.training_step.logs()
                    self._log("train", loss=value, learning_rate=learning_rate, images_per_second=progress.rate, **logs)
            progress.step(self.epoch + 1, len(batch.rows) * world()[1], value)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """If one process fails in this block, all of them stop.

        They also agree on whether one has received a signal, and on whether a state is due.

        Nothing in the block may wait for another process.
        """
        error: Exception | None = None
        try:
            yield
        except Exception as raised:  # raised again below
            error = raised
        save_due = time.monotonic() - self._save_time > 60 * self.options.checkpoint_minutes
        flags = error is not None, bool(self._stop_request), save_due
        failed, self._stopping, self._save_due = any_process(*flags, device=self.device)
        if error is not None:
            raise error
        if failed:
            raise other_process_error("failed")

    def _save_together(self) -> None:
        """Save, and stop if a process has received a signal."""
        self.save()
        if self._stopping:
            moment = f"in epoch {self.epoch + 1}, after step {self.step}" if self.step else f"after epoch {self.epoch}"
            raise Interrupted(f"stopped by {self._stop_request.name or 'a signal to another process'} {moment}")

    def _check_finite(self) -> None:
        weights = [*self.bare_model.state_dict().values(), *self.training_step.parameters()]
        floats = [weight.detach() for weight in weights if weight.is_floating_point() and weight.numel()]
        largest = get_total_norm(floats, math.inf)
        broken = [not bool(finite) for finite in (self._all_finite, largest.isfinite())]
        for name, is_broken in zip(("loss", "weights"), any_process(*broken, device=self.device), strict=True):
            if is_broken:
                got = f"not finite in epoch {self.epoch + 1}, by step {self.step}: training diverged"
                hint = "lower the learning rate or clip the gradients; earlier checkpoints are kept"
                raise DivergedError(name, got, hint=hint)

    def _report_excluded(self, progress: TrainingProgress) -> None:
        for name, split in {"train": self.split, **self.watched}.items():
            if split.excluded:
                reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
                progress.line(f"{SPLIT_TITLES[name]} items excluded: {reasons}; {len(split):,} remain")

    def _compile(self, progress: TrainingProgress) -> None:
        """Compile the backbone for training, if that is asked for and possible."""
        model = self.bare_model
        if not self.options.compile or self._compiled is not None:
            return
        if reason := why_not_compiled(model, self.device):
            progress.line(f"training.compile is left out: {reason}")
        elif isinstance(model, EmbeddingModel):
            # Each size of a batch by itself: a resumed training would otherwise compile other code than a whole one.
            self._compiled = torch.compile(model.backbone._call_impl, dynamic=False)

    @contextmanager
    def _compiled_backbone(self) -> Iterator[None]:
        """Training steps in this block run compiled code; evaluations do not, as the model in use does not."""
        model = self.bare_model
        backbone = model.backbone if isinstance(model, EmbeddingModel) else None
        if backbone is not None:
            backbone._compiled_call_impl = self._compiled
        try:
            yield
        finally:
            if backbone is not None:
                backbone._compiled_call_impl = None

    def _report_frozen(self, progress: TrainingProgress) -> None:
        sizes = {parameter: parameter.numel() for parameter in self.bare_model.parameters()}
        trained = sum(size for parameter, size in sizes.items() if parameter.requires_grad)
        if trained < (total := sum(sizes.values())):
            progress.line(f"trained weights: {trained:,} of {total:,} ({trained / total:.1%})")

    def _report_broken(self, progress: TrainingProgress) -> None:
        num_broken = len(self.images.left_out)
        if num_broken > self._reported_broken:
            self._reported_broken = num_broken
            name, cause = next(iter(self.images.left_out.items()))
            progress.line(f"broken images skipped so far: {num_broken}; the first: {name} ({cause})")

    def _outputs_of_some(
        self, function: Callable[[Tensor], Tensor] | None = None, model: nn.Module | None = None
    ) -> Tensor:
        """Return the outputs for some training images, drawn with a fixed seed `[N, ...]`; arguments as `outputs`."""
        rows = head_rows(len(self.split))
        outputs, missing = self.outputs(self.split, model, rows, function)
        return outputs[~torch.isin(rows, missing)]

    def _start_head(self) -> None:
        """Start the head from features of training images, if it does."""
        model = self.whole_model()
        if isinstance(model, EmbeddingModel) and model.head_start in FROM_FEATURES:
            model.start_head(self._outputs_of_some(model=model.bare_backbone()))

    def _before_epoch(self) -> None:
        """Let the step prepare the network for the epoch."""
        models = [self.whole_model(), *(() if self.average is None else (self.average.module,))]
        self.training_step.before_epoch(self.steps_done, models, self._outputs_of_some)

    def _evaluate_features(self, progress: TrainingProgress) -> None:
        """Evaluate the features of a pretrained backbone on the validation split, without a head, as a candidate."""
        model = self.whole_model()
        if self.best is None or not isinstance(model, EmbeddingModel) or not model.has_new_head:
            return
        features = model.without_head()
        evaluation, result, _ = self.evaluate(self.watched["val"], features)
        with self._together():
            score = evaluation.main
            self._log("features", split="val", metric=evaluation.headline, **evaluation.numbers())
            value = evaluation.text(evaluation.headline, score.model)
            progress.line(f"untrained features: {score.title} {value} ({SPLIT_TITLES['val']} split)")
            if self.best.update_features(evaluation, result.values, plain_weights(features)):
                self._save_weights("best", self.best.weights or {})

    def _evaluate(self, progress: TrainingProgress) -> None:
        model = self.whole_model()
        for name, split in self.watched.items():
            evaluation, result, _ = self.evaluate(split, model)
            averaged = None
            if name == "val" and self.average is not None and self.average.n_averaged > 0:
                averaged = self.evaluate(split, self.average.module)[:2]
            with self._together():
                self._record(name, model, evaluation, result, progress, averaged)

    def _record(
        self,
        split: str,
        model: nn.Module,
        evaluation: Evaluation,
        found: Found,
        progress: TrainingProgress,
        averaged: tuple[Evaluation, Found] | None = None,
    ) -> None:
        """Log an evaluation, and that of the averaged weights; keep the better ones if they are the best so far."""
        score, title = evaluation.main, SPLIT_TITLES[split]
        self._log("evaluation", split=split, metric=evaluation.headline, **evaluation.numbers())
        share = ""
        if score.random and score.better == "lower":
            share = f", {score.model / score.random:.1%} of a random ranking"
        value = evaluation.text(evaluation.headline, score.model)
        progress.line(f"after epoch {self.epoch}: {score.title} {value}{share} ({title} split)")
        if self.best is None:
            return
        takes_average = False
        if averaged is not None and self.average is not None:
            self._log("ema", split=split, metric=evaluation.headline, **averaged[0].numbers())
            text = evaluation.text(evaluation.headline, averaged[0].main.model)
            progress.line(f"after epoch {self.epoch}, averaged weights: {score.title} {text} ({title} split)")
            if takes_average := self.best.compare_average(evaluation, averaged[0]):
                model, (evaluation, found) = self.average.module, averaged
        if self.best.update(
            evaluation, found.values, self.epoch, plain_weights(model), found.items, averaged=takes_average
        ):
            self._save_weights("best", self.best.weights or {})
        if self.best.stopped and self.epoch < self.options.epochs:
            progress.line(f"stopped early: no better result in {self.best.since} evaluations")
            self._log("stop")

    def _log(self, event: str, **values: Any) -> None:
        self.log.add(event, self.epoch + self.step / self.steps, self.steps_done, **values)
