"""Evaluators: what evaluates a model on a split. Here is retrieval; `judgments.py` has the evaluators of judgments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from contml.contracts import OwnMetrics
from contml.data.split import Loader, Split
from contml.evaluation.embed import embed
from contml.evaluation.results import Evaluation, Ranking
from contml.evaluation.retrieval import evaluate

Device: TypeAlias = torch.device | str


class Found(Protocol):
    """What is found on a split: the main metric of each query `[Q]`, and more in the class of each kind of result.

    `items` `[Q, m]` are the items of each query, where queries that share one are not independent; else None.
    """

    @property
    def values(self) -> Tensor: ...  # noqa: D102

    @property
    def items(self) -> Tensor | None: ...  # noqa: D102


class Evaluator(ABC):
    """Evaluates a model on a split, in two steps: several processes can divide the first one."""

    def function(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        """What maps a batch of images to the outputs that are evaluated."""
        return model

    def outputs(
        self, model: nn.Module, split: Split, images: Loader, *, device: Device = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """The outputs of the model for a split `[N, ...]`, 0 where unreadable, and the unreadable rows."""
        return embed(model, split, images, device=device, function=self.function(model))

    @abstractmethod
    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu"
    ) -> tuple[Evaluation, Found]:
        """The metrics of the outputs of all rows; `missing`: rows whose image cannot be read."""


class RetrievalEvaluator(Evaluator):
    """Embeds a split, and evaluates the ranking of its gallery."""

    @property
    def metrics(self) -> OwnMetrics:
        """Metrics of one's own by name, as of `evaluate`; a subclass says which."""
        return {}

    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu", as_queries: Tensor | None = None
    ) -> tuple[Evaluation, Ranking]:
        """The metrics of the embeddings of a split; `as_queries` as of `evaluate`."""
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
