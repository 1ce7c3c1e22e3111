"""Selection: the weights with the best result on the validation split, and the early stop of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from contml.evaluation.evaluated import FeatureComparison, Selection
from contml.evaluation.evaluators import Found
from contml.evaluation.intervals import paired_interval
from contml.evaluation.results import Evaluation

#: Tensors by name.
Tensors: TypeAlias = Mapping[str, Tensor]


class Candidate(NamedTuple):
    """A model that is evaluated during training."""

    event: Literal["evaluation", "features"]  # the model, or its backbone without the head
    name: str
    model: nn.Module

    def text(self, evaluation: Evaluation) -> str:
        """Return the result of the model as text, for the progress."""
        score, share = evaluation.main, ""
        if self.event == "evaluation" and score.random and score.better == "lower":
            share = f", {score.model / score.random:.1%} of a random ranking"
        return f"{self.name}: {score.title} {evaluation.text(evaluation.headline, score.model)}{share}"


class BestWeights:
    """The best weights so far, by the headline metric of the validation split.

    Args:
        patience: evaluations without a better result after which training stops; None: it never stops early.

    Attributes:
        weights: the best weights so far, on the CPU; None before the first evaluation.
        epoch: the epoch after which they were evaluated.
        stopped: True if training has stopped early.
    """

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience
        self.weights: dict[str, Tensor] | None = None
        self.epoch, self.value, self.since = 0, math.nan, 0
        self.metric = ""
        #: The last evaluation. None before the first one, and after reading a finished training.
        self.evaluation: Evaluation | None = None
        #: The untrained features and the best result of the model. None if the features were not evaluated.
        self.features: FeatureComparison | None = None
        self._values = self._last = torch.zeros(0, dtype=torch.float64)  # the metric of each query [Q]
        self._items: Tensor | None = None  # of each query [Q, m]

    def take(self, candidate: Candidate, evaluation: Evaluation, result: Found, epoch: int) -> bool:
        """Record the results of a model. Return True if its weights are the best so far.

        Args:
            candidate: the model, or the untrained features.
            evaluation: its metrics on the validation split.
            result: its values of each query.
            epoch: the number of finished epochs.
        """
        weights, value = candidate.model.state_dict(), evaluation.main.model
        if candidate.event == "evaluation":
            return self.update(evaluation, result.values, epoch, weights, result.items)
        chosen = _better(evaluation, value, self.value)
        self.features = FeatureComparison(value, self.value, self.epoch, chosen)
        if chosen:
            self._take(value, 0, result.values, weights)
        return chosen

    def sentences(self) -> list[str]:
        """Return a sentence on the choice between the trained model and the untrained features.

        Return an empty list if there was no such choice.
        """
        if self.features is None or self.evaluation is None:
            return []
        return [self.features.sentence(self.evaluation, self.metric)]

    def update(
        self, evaluation: Evaluation, values: Tensor, epoch: int, weights: Tensors, items: Tensor | None = None
    ) -> bool:
        """Record an evaluation of the validation split. Return True if its weights are the best so far.

        Args:
            evaluation: the metrics.
            values: the main metric of each query `[Q]`.
            epoch: the epoch after which it was evaluated.
            weights: the weights of the model.
            items: as in `paired_interval`.
        """
        score, self.evaluation = evaluation.main, evaluation
        value, self.metric, self._last, self._items = score.model, evaluation.headline, values, items
        if self.features is not None and _better(evaluation, value, self.features.head):
            self.features = replace(self.features, head=value, epoch=epoch)
        if not _better(evaluation, value, self.value):
            self.since += 1
            return False
        self.since = 0
        self._take(value, epoch, values, weights)
        if self.features is not None:
            self.features = replace(self.features, chosen=False)
        return True

    def _take(self, value: float, epoch: int, values: Tensor, weights: Tensors) -> None:
        self.value, self.epoch, self._values = value, epoch, values
        self.weights = {key: tensor.detach().to("cpu", copy=True) for key, tensor in weights.items()}

    @property
    def stopped(self) -> bool:
        """True if training stops early."""
        return self.patience is not None and self.since >= self.patience

    def summary(self) -> Selection | None:
        """Return the selection, and its difference from the last weights. Return None before the first evaluation."""
        if self.weights is None:
            return None
        best = self.metric, len(self._values), self.value, float(self._last.mean())
        if not (self.since or (self.features is not None and self.features.chosen)):
            return Selection(*best, 0.0, None, self.features)
        difference, interval = math.nan, math.nan
        if len(self._values) == len(self._last):  # images may have become unreadable
            difference, interval = paired_interval(self._values, self._last, self._items)
        return Selection(*best, difference, None if math.isnan(interval) else interval, self.features)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return numbers and tensors for a checkpoint, without the weights."""
        numbers = {"epoch": self.epoch, "value": self.value, "since": self.since, "metric": self.metric}
        numbers |= {"features": None if self.features is None else asdict(self.features)}
        values = {"best": self._values, "last": self._last}
        return numbers, values if self._items is None else {**values, "items": self._items}

    def load_state(self, numbers: Mapping[str, Any], tensors: Tensors, weights: Tensors) -> None:
        """Continue from the result of `state`, and the best weights."""
        self.epoch, self.value, self.since = numbers["epoch"], numbers["value"], numbers["since"]
        self.metric = numbers["metric"]
        self.features = None if numbers["features"] is None else FeatureComparison(**numbers["features"])
        self._values, self._last, self.weights = tensors["best"], tensors["last"], dict(weights)
        self._items = tensors.get("items")


def _better(evaluation: Evaluation, value: float, than: float) -> bool:
    """Return True if a value of the main metric is better. Any value is better than a missing one (NaN)."""
    return math.isnan(than) or (value < than if evaluation.main.better == "lower" else value > than)
