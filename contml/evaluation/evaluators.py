"""Evaluators of a model on a split. This file has retrieval; `judgments.py` has the evaluators of judgments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from contml.contracts import OwnMetrics
from contml.data.split import Loader, Split
from contml.evaluation.embed import Device as Device, embed
from contml.evaluation.results import Evaluation, Ranking
from contml.evaluation.retrieval import evaluate


class Found(Protocol):
    """The result on a split: the main metric of each query `[Q]`. Each kind of result adds more.

    `items` `[Q, m]` are the items of each query. Queries that share an item are not independent. It is None if no
    queries share an item.
    """

    @property
    def values(self) -> Tensor: ...  # noqa: D102

    @property
    def items(self) -> Tensor | None: ...  # noqa: D102


class Evaluator(ABC):
    """Evaluation of a model on a split, in two steps. Several processes can divide the first step."""

    def function(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        """Return the function that maps a batch of images to the outputs to evaluate."""
        return model

    def outputs(
        self, model: nn.Module, split: Split, images: Loader, *, device: Device = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Compute the outputs of the model for a split `[N, ...]`, 0 where unreadable, and the unreadable rows."""
        return embed(model, split, images, device=device, function=self.function(model))

    @abstractmethod
    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu"
    ) -> tuple[Evaluation, Found]:
        """Compute the metrics of the outputs of all rows. `missing` are the rows whose image cannot be read."""


class RetrievalEvaluator(Evaluator):
    """Evaluation of the ranking of a split's gallery by embedding distance."""

    @property
    def metrics(self) -> OwnMetrics:
        """User-defined metrics by name, as in `evaluate`. A subclass overrides them."""
        return {}

    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu", as_queries: Tensor | None = None
    ) -> tuple[Evaluation, Ranking]:
        """Compute the metrics of the embeddings of a split. `as_queries` is as in `evaluate`."""
        found = evaluate(
            outputs,
            split.labels.to(device),
            split.queries,
            split.gallery,
            missing=missing,
            recall_at=split.recall_at,
            groups=split.groups,
            exclude_group=split.exclude_group,
            places=split.places,
            metrics=self.metrics,
            as_queries=as_queries,
        )
        return found.evaluation, found.ranking
