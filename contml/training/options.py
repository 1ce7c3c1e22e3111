"""Options of a training run: length, selection, precision, clipping, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from contml._support.errors import InputError
from contml._support.validation import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
    check_arguments,
)
from contml.data.draw import folds
from contml.evaluation.metrics import check_metrics
from contml.training.trackers import TrackerName


@dataclass(frozen=True)
class Training:
    """Length, selection, precision, clipping and checkpoints of a training run.

    Args:
        epochs: number of epochs of the sampler; 0 evaluates the untrained model.
        evaluate_every: number of epochs between evaluations; the model is also evaluated before the first epoch and
            after the last.
        head_only_epochs: number of epochs at the start in which the backbone keeps its weights: only the head and the
            parameters of the loss are trained.
        select: "val": the weights with the best result on the validation split are the result of the run; "none":
            the last weights, and no validation split is drawn, as in most published protocols.
        val_share: share of the training items that is drawn for validation where the data name none.
        val_fold: which of the 1 / val_share parts is drawn, for cross-validation: all folds have the K of the smallest
            one. null: the first part, with a K of its own.
        patience: training stops after so many evaluations without a better result on the validation split; null: never.
        ema: decay of an exponential moving average of the weights, such as 0.999. It is evaluated beside the weights,
            and the better one on the validation split is the model; the average of the last epoch is the checkpoint
            "ema". In the n-th step the decay is at most (1 + n) / (10 + n), so that short trainings forget their start.
            null: no average.
        precision: "auto" is bfloat16 on a device that supports it, else float32; the loss is always in float32.
        compile: compile the backbone for training (`torch.compile`): the first steps take minutes, the others are
            faster on a GPU. Without a compiler it is left out, with a line that says so.
            With one process it changes nothing, with a line that says so.
        clip_norm: maximum norm of all gradients together; networks with their own learning rate are not clipped.
        clip_value: maximum absolute value of a gradient entry; networks with their own learning rate are not clipped.
        checkpoint_minutes: maximum time between checkpoints; the state is also saved after each epoch.
        metrics: metrics of your own in each evaluation, `{NAME: module:function}`, as of `contml.evaluate`; null: none.
        tracker: also log to TensorBoard or Weights & Biases, in the run folder; null: to metrics.jsonl alone.
    """

    epochs: NonNegativeInt = 30
    evaluate_every: PositiveInt = 1
    head_only_epochs: NonNegativeInt = 0
    select: Literal["val", "none"] = "val"
    val_share: Annotated[float, Range(above=0, most=0.5)] = 0.1
    val_fold: NonNegativeInt | None = None
    patience: PositiveInt | None = None
    ema: Annotated[float, Range(above=0, below=1)] | None = None
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    compile: bool = False
    clip_norm: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    checkpoint_minutes: NonNegativeFloat = 10.0
    tracker: TrackerName | None = None
    metrics: dict[str, str] | None = None

    def __post_init__(self) -> None:
        check_arguments(Training, vars(self))
        check_metrics(self.metrics or {})
        last = folds(self.val_share) - 1
        if self.val_fold is not None and self.val_fold > last:
            raise InputError("val_fold", str(self.val_fold), f"must be 0 to {last} with val_share={self.val_share:g}")
        for name in ("patience", "ema"):
            value = getattr(self, name)
            if value is not None and self.select == "none":
                raise InputError(name, str(value), hint="set select=val: it needs a validation split")
