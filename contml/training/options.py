"""Options of a training run: length, precision, clipping, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contml._support.errors import InputError
from contml._support.validation import check_at_least


@dataclass(frozen=True)
class Training:
    """Length, precision, clipping and checkpoints of a training run.

    Args:
        epochs: number of epochs of the sampler; 0 evaluates the untrained model.
        evaluate_every: number of epochs between evaluations; the model is also evaluated before the first epoch and
            after the last.
        precision: "auto" is bfloat16 on a device that supports it, else float32; the loss is always in float32.
        clip_norm: maximum norm of all gradients together; networks with their own learning rate are not clipped.
        clip_value: maximum absolute value of a gradient entry; networks with their own learning rate are not clipped.
        checkpoint_minutes: maximum time between checkpoints; the state is also saved after each epoch.
    """

    epochs: int = 30
    evaluate_every: int = 1
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    clip_norm: float | None = None
    clip_value: float | None = None
    checkpoint_minutes: float = 10.0

    def __post_init__(self) -> None:
        check_at_least(0, epochs=self.epochs)
        check_at_least(1, evaluate_every=self.evaluate_every)
        for name, value in {"clip_norm": self.clip_norm, "clip_value": self.clip_value}.items():
            if value is not None and not value > 0:
                raise InputError(name, str(value), "must be above 0, or null")
