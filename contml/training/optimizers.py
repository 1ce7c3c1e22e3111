"""Optimisers and learning-rate schedules of torch, by their names in a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import optim
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, StepLR

from contml._support.errors import InputError
from contml._support.validation import check_at_least

#: What learns, as torch's optimizers take it: `params`, the `name` ("backbone", "head", "loss", those of a step), and
#: what the group sets for itself.
ParameterGroups: TypeAlias = "list[dict[str, Any]]"


def sgd(
    lr: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    head_lr: float | None = None,
    loss_lr: float | None = None,
    *,
    groups: ParameterGroups,
) -> optim.Optimizer:
    """Stochastic gradient descent with momentum; the defaults are those of the log-ratio paper.

    Args:
        lr: learning rate of the backbone, and of all that has none of its own.
        momentum: momentum.
        weight_decay: L2 penalty; not on the loss's parameters.
        head_lr: learning rate of the embedding head.
        loss_lr: learning rate of the loss's parameters (proxies, boundaries).
    """
    if not 0 <= momentum < 1:
        raise InputError(f"momentum is {momentum}; it must be at least 0 and below 1")
    return optim.SGD(
        _rates(groups, lr, head_lr, loss_lr, weight_decay), lr=lr, momentum=momentum, weight_decay=weight_decay
    )


def adam(
    lr: float = 1e-4,
    weight_decay: float = 0.0,
    epsilon: float = 1e-8,
    head_lr: float | None = None,
    loss_lr: float | None = None,
    *,
    groups: ParameterGroups,
) -> optim.Optimizer:
    """Adam.

    Args:
        lr: learning rate of the backbone, and of all that has none of its own.
        weight_decay: L2 penalty; not on the loss's parameters.
        epsilon: added to the denominator.
        head_lr: learning rate of the embedding head.
        loss_lr: learning rate of the loss's parameters (proxies, boundaries).
    """
    return optim.Adam(_rates(groups, lr, head_lr, loss_lr, weight_decay), lr=lr, weight_decay=weight_decay, eps=epsilon)


def adamw(
    lr: float = 1e-4,
    weight_decay: float = 1e-4,
    epsilon: float = 1e-8,
    head_lr: float | None = None,
    loss_lr: float | None = None,
    *,
    groups: ParameterGroups,
) -> optim.Optimizer:
    """Adam with decoupled weight decay.

    Args:
        lr: learning rate of the backbone, and of all that has none of its own.
        weight_decay: decoupled weight decay; not on the loss's parameters.
        epsilon: added to the denominator.
        head_lr: learning rate of the embedding head.
        loss_lr: learning rate of the loss's parameters (proxies, boundaries).
    """
    return optim.AdamW(
        _rates(groups, lr, head_lr, loss_lr, weight_decay), lr=lr, weight_decay=weight_decay, eps=epsilon
    )


def _rates(
    groups: ParameterGroups, lr: float, head_lr: float | None, loss_lr: float | None, weight_decay: float
) -> list[dict[str, Any]]:
    rates = {"backbone": lr, "head": lr if head_lr is None else head_lr, "loss": lr if loss_lr is None else loss_lr}
    for rate in rates.values():
        check_at_least(0, **{"a learning rate": rate})
    check_at_least(0, weight_decay=weight_decay)
    return [
        {"lr": rates.get(group["name"], lr), **group}
        for group in groups
        if group["params"] or group["name"] == "backbone"  # torch wants a group, even where nothing learns
    ]


def constant(*, optimizer: optim.Optimizer) -> LRScheduler:
    """The learning rates as they are."""
    return LambdaLR(optimizer, lambda _: 1.0)


def inverse(decay: float = 1e-4, *, optimizer: optim.Optimizer) -> LRScheduler:
    """`lr / (1 + decay * step)`, the schedule of the log-ratio paper's code.

    Args:
        decay: how fast it falls, per step.
    """
    return LambdaLR(optimizer, lambda step: 1 / (1 + decay * step))


def step(epochs: int = 10, factor: float = 0.5, *, optimizer: optim.Optimizer, steps_per_epoch: int) -> LRScheduler:
    """Times `factor` after every so many epochs.

    Args:
        epochs: after how many epochs.
        factor: what the learning rates are multiplied by.
    """
    if epochs < 1 or not factor > 0:
        raise InputError(f"epochs is {epochs} and factor is {factor}; these must be at least 1 and above 0")
    return StepLR(optimizer, step_size=epochs * steps_per_epoch, gamma=factor)


def cosine(*, optimizer: optim.Optimizer, total_steps: int) -> LRScheduler:
    """Half a cosine from the learning rates to 0 over the whole training."""
    return CosineAnnealingLR(optimizer, T_max=max(1, total_steps))


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {"sgd": sgd, "adam": adam, "adamw": adamw}

SCHEDULES: dict[str, Callable[..., LRScheduler]] = {
    "constant": constant,
    "inverse": inverse,
    "step": step,
    "cosine": cosine,
}
