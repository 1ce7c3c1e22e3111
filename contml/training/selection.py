"""Selection: the weights with the best result on the validation split, and when training stops early."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from contml.evaluation.evaluated import Selection
from contml.evaluation.metrics import paired_interval
from contml.evaluation.results import Evaluation


class BestWeights:
    """The best weights so far, by the headline metric of the validation split.

    Args:
        patience: evaluations without a better result after which training stops; None: it never stops early.

    Attributes:
        weights: the best weights so far, on the CPU; None before the first evaluation.
        epoch: the epoch after which they were evaluated.
        stopped: whether training has stopped early.
    """

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience
        self.weights: dict[str, Tensor] | None = None
        self.epoch, self.value, self.since = 0, math.nan, 0
        self.metric = ""
        self._values = self._last = torch.zeros(0, dtype=torch.float64)  # the metric of each query [Q]

    def update(self, evaluation: Evaluation, values: Tensor, epoch: int, weights: Mapping[str, Tensor]) -> bool:
        """Take an evaluation of the validation split into account; returns whether its weights are the best so far.

        Args:
            evaluation: the metrics.
            values: the main metric of each query `[Q]`.
            epoch: the epoch after which it was evaluated.
            weights: the weights of the model.
        """
        score = evaluation.main
        value, self.metric, self._last = score.model, evaluation.headline, values
        better = value < self.value if score.better == "lower" else value > self.value
        if not (better or math.isnan(self.value)):
            self.since += 1
            return False
        self.since = 0
        self.value, self.epoch, self._values = value, epoch, values
        self.weights = {key: tensor.detach().to("cpu", copy=True) for key, tensor in weights.items()}
        return True

    @property
    def stopped(self) -> bool:
        """Whether training stops early."""
        return self.patience is not None and self.since >= self.patience

    def summary(self) -> Selection | None:
        """What was selected, and how far it is from the last weights."""
        if self.weights is None:
            return None
        last_value = float(self._last.mean())
        if not self.since:
            return Selection(self.metric, len(self._values), self.value, last_value, 0.0, None)
        difference, interval = math.nan, math.nan
        if len(self._values) == len(self._last):  # images may have become unreadable
            difference, interval = paired_interval(self._values, self._last)
        return Selection(self.metric, len(self._values), self.value, last_value, difference, interval)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Numbers and tensors for a checkpoint, without the weights."""
        numbers = {"epoch": self.epoch, "value": self.value, "since": self.since, "metric": self.metric}
        return numbers, {"best": self._values, "last": self._last}

    def load_state(
        self, numbers: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> None:
        """Continue from what `state` returned, and the best weights."""
        self.epoch, self.value, self.since = numbers["epoch"], numbers["value"], numbers["since"]
        self.metric = numbers["metric"]
        self._values, self._last, self.weights = tensors["best"], tensors["last"], dict(weights)
