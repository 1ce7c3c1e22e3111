"""Selection: the weights with the best result on the validation split, and when training stops early."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import PARAM_LIST, AveragedModel, get_ema_multi_avg_fn

from contml._support.errors import InputError
from contml.evaluation.evaluated import AveragingComparison, FeatureComparison, Selection
from contml.evaluation.evaluators import Found
from contml.evaluation.intervals import paired_interval
from contml.evaluation.results import Evaluation
from contml.models.adapter import plain_weights


class MovingAverage(AveragedModel):
    """The exponential moving average of the weights of a model; the first update copies them.

    Args:
        model: the model, of which this is a copy.
        device: where the average is kept.
        decay: the largest decay. In the n-th step it is at most (1 + n) / (10 + n), so that it forgets its start.
    """

    def __init__(self, model: nn.Module, device: torch.device, decay: float) -> None:
        super().__init__(model, device, multi_avg_fn=self._mean, use_buffers=True)
        self._decay, self._steps = decay, 0

    def update(self, model: nn.Module, steps: int) -> None:
        """Take the weights into account; `steps`: the number of steps that were done before this one."""
        self._steps = steps
        self.update_parameters(model)

    def _mean(self, average: PARAM_LIST, weights: PARAM_LIST, count: Tensor | int) -> None:
        decay = min(self._decay, (1 + self._steps) / (10 + self._steps))
        get_ema_multi_avg_fn(decay)(average, weights, count)  # type: ignore[no-untyped-call]


class Candidate(NamedTuple):
    """A model that is evaluated during training."""

    event: Literal["evaluation", "ema", "features"]  # the weights as they are, their average, or the bare backbone
    name: str
    model: nn.Module

    def text(self, evaluation: Evaluation) -> str:
        """The result of the model, for the progress."""
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
        stopped: whether training has stopped early.
    """

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience
        self.weights: dict[str, Tensor] | None = None
        self.epoch, self.value, self.since = 0, math.nan, 0
        self.metric = ""
        #: The last one; None before the first, and where a finished training was read.
        self.evaluation: Evaluation | None = None
        #: The untrained features beside the best result of the model itself; None: they were not evaluated.
        self.features: FeatureComparison | None = None
        #: The best results of the averaged weights and of the weights themselves; None: there is no average.
        self.averages: AveragingComparison | None = None
        self._values = self._last = torch.zeros(0, dtype=torch.float64)  # the metric of each query [Q]
        self._items: Tensor | None = None  # of each query [Q, m]

    def take(self, candidates: Sequence[Candidate], found: Sequence[tuple[Evaluation, Found]], epoch: int) -> bool:
        """Take the results of a model into account; returns whether its weights are the best so far.

        Args:
            candidates: the untrained features; or the model, and the average of its weights if there is one.
            found: the result of each on the validation split.
            epoch: the number of finished epochs.
        """
        chosen = 0
        if len(candidates) > 1:
            chosen = int(self.compare_average(found[0][0], found[1][0]))
        (evaluation, result), weights = found[chosen], plain_weights(candidates[chosen].model)
        if candidates[0].event == "features":
            return self.update_features(evaluation, result.values, weights)
        return self.update(evaluation, result.values, epoch, weights, result.items, averaged=chosen == 1)

    def sentences(self) -> list[str]:
        """Which candidates are the model, at the end of a training."""
        comparisons = [each for each in (self.features, self.averages) if each is not None]
        return [each.sentence(self.evaluation, self.metric) for each in comparisons if self.evaluation is not None]

    def update(
        self,
        evaluation: Evaluation,
        values: Tensor,
        epoch: int,
        weights: Mapping[str, Tensor],
        items: Tensor | None = None,
        *,
        averaged: bool = False,
    ) -> bool:
        """Take an evaluation of the validation split into account; returns whether its weights are the best so far.

        Args:
            evaluation: the metrics.
            values: the main metric of each query `[Q]`.
            epoch: the epoch after which it was evaluated.
            weights: the weights of the model.
            items: as in `paired_interval`.
            averaged: whether they are the averaged weights.
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
        if self.averages is not None:
            self.averages = replace(self.averages, chosen=averaged)
        return True

    def compare_average(self, evaluation: Evaluation, averaged: Evaluation) -> bool:
        """Take the results of the weights and of their average into account; returns whether the average is better."""
        value, average = evaluation.main.model, averaged.main.model
        if self.averages is None:
            self.averages = AveragingComparison(average, value, False)
        else:
            best = self.averages
            self.averages = replace(
                best,
                averaged=average if _better(averaged, average, best.averaged) else best.averaged,
                unaveraged=value if _better(evaluation, value, best.unaveraged) else best.unaveraged,
            )
        return _better(averaged, average, value)

    def update_features(self, evaluation: Evaluation, values: Tensor, weights: Mapping[str, Tensor]) -> bool:
        """Take the untrained features into account, after the untrained model; returns whether they are better.

        Args:
            evaluation: the metrics.
            values: the main metric of each query `[Q]`.
            weights: the weights of the model without a head.
        """
        value = evaluation.main.model
        chosen = _better(evaluation, value, self.value)
        self.features = FeatureComparison(value, self.value, self.epoch, chosen)
        if not chosen:
            return False
        self._take(value, 0, values, weights)
        return True

    def _take(self, value: float, epoch: int, values: Tensor, weights: Mapping[str, Tensor]) -> None:
        self.value, self.epoch, self._values = value, epoch, values
        self.weights = {key: tensor.detach().to("cpu", copy=True) for key, tensor in weights.items()}

    @property
    def stopped(self) -> bool:
        """Whether training stops early."""
        return self.patience is not None and self.since >= self.patience

    def summary(self) -> Selection | None:
        """What was selected, and how far it is from the last weights."""
        if self.weights is None:
            return None
        last_value = float(self._last.mean())
        best = self.metric, len(self._values), self.value, last_value
        if not (self.since or (self.features is not None and self.features.chosen)):
            return Selection(*best, 0.0, None, self.features, self.averages)
        difference, interval = math.nan, math.nan
        if len(self._values) == len(self._last):  # images may have become unreadable
            difference, interval = paired_interval(self._values, self._last, self._items)
        return Selection(*best, difference, None if math.isnan(interval) else interval, self.features, self.averages)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Numbers and tensors for a checkpoint, without the weights."""
        numbers = {"epoch": self.epoch, "value": self.value, "since": self.since, "metric": self.metric}
        numbers |= {"features": None if self.features is None else asdict(self.features)}
        numbers |= {"averages": None if self.averages is None else asdict(self.averages)}
        values = {"best": self._values, "last": self._last}
        return numbers, values if self._items is None else {**values, "items": self._items}

    def load_state(
        self, numbers: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> None:
        """Continue from what `state` returned, and the best weights."""
        self.epoch, self.value, self.since = numbers["epoch"], numbers["value"], numbers["since"]
        self.metric = numbers["metric"]
        self.features = None if numbers["features"] is None else FeatureComparison(**numbers["features"])
        averages = numbers["averages"]
        self.averages = None if averages is None else AveragingComparison(**averages)
        self._values, self._last, self.weights = tensors["best"], tensors["last"], dict(weights)
        self._items = tensors.get("items")


def moving_average(
    decay: float | None, model: nn.Module, device: torch.device, best: BestWeights | None
) -> MovingAverage | None:
    """Return the moving average of the weights, if it has a decay.

    Raises:
        InputError: nothing chooses between the average and the weights.
    """
    if decay is None:
        return None
    if best is None:
        raise InputError("ema", f"{decay:g}", hint="give a validation split, which chooses")
    return MovingAverage(model, device, decay)


def _better(evaluation: Evaluation, value: float, than: float) -> bool:
    """Whether a value of the main metric is better; any value is better than none (NaN)."""
    return math.isnan(than) or (value < than if evaluation.main.better == "lower" else value > than)
