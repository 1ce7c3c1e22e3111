"""How a training goes: its length, precision, clipping, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contml._support.errors import InputError
from contml._support.validation import check_at_least


@dataclass(frozen=True)
class Training:
    """How long to train, in what precision, and what to keep.

    Args:
        epochs: how many epochs of the sampler; 0 evaluates the model as it is.
        evaluate_every: evaluate after every so many epochs, before the first and after the last.
        precision: "auto" is bfloat16 on a device that has it, else float32; the loss is in float32 always.
        clip_norm: clip the norm of all gradients together; networks with a learning rate of their own are left alone.
        clip_value: clip each gradient's entries, likewise.
        checkpoint_minutes: save the state at least this often, beside the end of each epoch.
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
        for name, value in (("clip_norm", self.clip_norm), ("clip_value", self.clip_value)):
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}; it must be above 0, or null")
