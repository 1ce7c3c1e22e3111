"""Options of a training run: length, selection, precision, clipping, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from contml._support.errors import InputError
from contml._support.validation import NonNegativeInt, PositiveFloat, PositiveInt, Range, check_arguments
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
        val_share: share of the training items that is drawn for validation if the data have no validation split.
        patience: training stops after this many evaluations without a better result on the validation split; null:
            never.
        precision: "auto" is bfloat16 on a device that supports it, else float32; the loss is always in float32.
        clip_norm: maximum norm of all gradients together; networks with their own learning rate are not clipped.
        clip_value: maximum absolute value of a gradient entry; networks with their own learning rate are not clipped.
        checkpoint_minutes: maximum time between checkpoints; the state is also saved after each epoch.
        metrics: metrics of your own in each evaluation, `{NAME: module:function}`, as in `contml.evaluate`; null: none.
        tracker: also log to TensorBoard or Weights & Biases, in the run folder; null: only to metrics.jsonl.
    """

    epochs: NonNegativeInt = 30
    evaluate_every: PositiveInt = 1
    head_only_epochs: NonNegativeInt = 0
    select: Literal["val", "none"] = "val"
    val_share: Annotated[float, Range(above=0, most=0.5)] = 0.1
    patience: PositiveInt | None = None
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    clip_norm: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    checkpoint_minutes: Annotated[float, Range(least=0)] = 10.0
    tracker: TrackerName | None = None
    metrics: dict[str, str] | None = None

    def __post_init__(self) -> None:
        check_arguments(Training, vars(self))
        check_metrics(self.metrics or {})
        if self.patience is not None and self.select == "none":
            raise InputError("patience", str(self.patience), hint="set select=val: it needs a validation split")
