"""Optimizers and learning-rate schedules of torch, by their names in a config."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

import torch
from torch import optim
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, MultiStepLR, StepLR

from contml._support.errors import InputError
from contml._support.validation import NonNegativeFloat, PositiveFloat, PositiveInt, Range, check_ranges

#: Parameter groups as in torch. Keys: `params`, `name` ("backbone", "head", "loss", or another one of a step), options.
ParameterGroups: TypeAlias = "list[dict[str, Any]]"
#: A number from 0 on, below 1.
Share: TypeAlias = Annotated[float, Range(0, below=1)]


def _eager(kind: type[optim.Optimizer]) -> Callable[..., optim.Optimizer]:
    """Return the optimizer without torch's preparations for compiled code, for which torch imports the compiler.

    The import takes two seconds of processor time. contml compiles no code that calls an optimizer.
    """
    methods = ("add_param_group", "state_dict", "load_state_dict", "zero_grad", "step")
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in methods}
    plain["step"] = torch.no_grad()(plain["step"])
    return type(kind.__name__, (kind,), plain)


_SGD, _ADAM, _ADAMW = map(_eager, (optim.SGD, optim.Adam, optim.AdamW))


@check_ranges
def sgd(
    lr: NonNegativeFloat = 0.01,
    momentum: Share = 0.9,
    weight_decay: NonNegativeFloat = 5e-4,
    head_lr: NonNegativeFloat | None = None,
    loss_lr: NonNegativeFloat | None = None,
    loss_weight_decay: NonNegativeFloat = 0.0,
    *,
    groups: ParameterGroups,
) -> optim.Optimizer:
    """Make an optimizer of stochastic gradient descent with momentum. The defaults are as in the log-ratio paper.

    Args:
        lr: learning rate of the backbone, and of every group without its own.
        momentum: momentum factor.
        weight_decay: L2 penalty.
        head_lr: learning rate of the embedding head; default `lr`.
        loss_lr: learning rate of the parameters of the loss (proxies, boundaries); default `lr`.
        loss_weight_decay: `weight_decay` of the parameters of the loss; above 0 it shrinks them towards 0.
    """
    groups = _with_own_options(groups, lr, head_lr, loss_lr, loss_weight_decay)
    return _SGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay)


@check_ranges
def adam(
    lr: NonNegativeFloat = 1e-4,
    weight_decay: NonNegativeFloat = 0.0,
    epsilon: NonNegativeFloat = 1e-8,
    head_lr: NonNegativeFloat | None = None,
    loss_lr: NonNegativeFloat | None = None,
    loss_weight_decay: NonNegativeFloat = 0.0,
    *,
    groups: ParameterGroups,
) -> optim.Optimizer:
    """Make an Adam optimizer.

    Args:
        lr: learning rate of the backbone, and of every group without its own.
        weight_decay: L2 penalty.
        epsilon: added to the denominator.
        head_lr: learning rate of the embedding head; default `lr`.
        loss_lr: learning rate of the parameters of the loss (proxies, boundaries); default `lr`.
        loss_weight_decay: `weight_decay` of the parameters of the loss; above 0 it shrinks them towards 0.
    """
    groups = _with_own_options(groups, lr, head_lr, loss_lr, loss_weight_decay)
    return _ADAM(groups, lr=lr, weight_decay=weight_decay, eps=epsilon)


@check_ranges
def adamw(
    lr: NonNegativeFloat = 1e-4,
    weight_decay: NonNegativeFloat = 1e-4,
    epsilon: NonNegativeFloat = 1e-8,
    head_lr: NonNegativeFloat | None = None,
    loss_lr: NonNegativeFloat | None = None,
    loss_weight_decay: NonNegativeFloat = 0.0,
    *,
    groups: ParameterGroups,
) -> optim.Optimizer:
    """Make an Adam optimizer with decoupled weight decay.

    Args:
        lr: learning rate of the backbone, and of every group without its own.
        weight_decay: decoupled weight decay.
        epsilon: added to the denominator.
        head_lr: learning rate of the embedding head; default `lr`.
        loss_lr: learning rate of the parameters of the loss (proxies, boundaries); default `lr`.
        loss_weight_decay: `weight_decay` of the parameters of the loss; above 0 it shrinks them towards 0.
    """
    groups = _with_own_options(groups, lr, head_lr, loss_lr, loss_weight_decay)
    return _ADAMW(groups, lr=lr, weight_decay=weight_decay, eps=epsilon)


def _with_own_options(
    groups: ParameterGroups, lr: float, head_lr: float | None, loss_lr: float | None, loss_weight_decay: float
) -> ParameterGroups:
    """Return the groups with their learning rates and the weight decay of the loss.

    Groups without parameters are dropped.
    """
    lr_by_group = {name: rate for name, rate in (("head", head_lr), ("loss", loss_lr)) if rate is not None}
    options_by_group = {"loss": {"weight_decay": loss_weight_decay}}
    return [
        {"lr": lr_by_group.get(group["name"], lr), **group, **options_by_group.get(group["name"], {})}
        for group in groups
        if group["params"] or group["name"] == "backbone"  # torch needs a group, even if nothing is trained
    ]


def constant(*, optimizer: optim.Optimizer) -> LRScheduler:
    """Keep the learning rates constant."""
    return LambdaLR(optimizer, lambda _: 1.0)


@check_ranges
def inverse(decay: NonNegativeFloat = 1e-4, *, optimizer: optim.Optimizer) -> LRScheduler:
    """Decay the learning rates as `lr / (1 + decay * step)`, the schedule of the log-ratio paper's code.

    Args:
        decay: decay per step.
    """
    return LambdaLR(optimizer, lambda step: 1 / (1 + decay * step))


@check_ranges
def step(
    epochs: PositiveInt = 10, factor: PositiveFloat = 0.5, *, optimizer: optim.Optimizer, steps_per_epoch: int
) -> LRScheduler:
    """Multiply the learning rates by `factor` every `epochs` epochs.

    Args:
        epochs: number of epochs between two changes.
        factor: multiplier of the learning rates.
    """
    return StepLR(optimizer, step_size=epochs * steps_per_epoch, gamma=factor)


@check_ranges
def milestones(
    epochs: Sequence[int] = (10, 20), factor: PositiveFloat = 0.5, *, optimizer: optim.Optimizer, steps_per_epoch: int
) -> LRScheduler:
    """Multiply the learning rates by `factor` after each of the given epochs.

    Args:
        epochs: the numbers of epochs after which the learning rates change, ascending.
        factor: multiplier of the learning rates.
    """
    if not epochs or epochs[0] < 1 or any(a >= b for a, b in pairwise(epochs)):
        raise InputError("epochs", str(list(epochs)), "must be ascending whole numbers from 1 on")
    return MultiStepLR(optimizer, [epoch * steps_per_epoch for epoch in epochs], gamma=factor)


@check_ranges
def cosine(warmup: Share = 0.0, *, optimizer: optim.Optimizer, total_steps: int) -> LRScheduler:
    """Decay the learning rates to 0 along a cosine, after a linear warm-up from 0.

    Args:
        warmup: share of the training in which the learning rates rise.
    """
    warmup_steps = round(warmup * total_steps)
    decay_steps = max(1, total_steps - warmup_steps)

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        return (1 + math.cos(math.pi * (step - warmup_steps) / decay_steps)) / 2

    return LambdaLR(optimizer, factor)


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {"sgd": sgd, "adam": adam, "adamw": adamw}

SCHEDULES: dict[str, Callable[..., LRScheduler]] = {
    "constant": constant,
    "inverse": inverse,
    "step": step,
    "milestones": milestones,
    "cosine": cosine,
}
