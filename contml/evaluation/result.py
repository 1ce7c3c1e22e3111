"""What an evaluation found: curves over K beside a random ranking and the oracle."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

#: The K at which Recall@K is reported unless the data or the caller say which.
RECALL_AT = (1, 2, 4, 8, 10, 20, 50, 100)


@dataclass(frozen=True)
class Curve:
    """One metric over K = 1, 2, ...: of the model, of a random ranking (its expectation), of the oracle.

    The oracle ranks the gallery by the true label distance.
    """

    title: str
    better: str  # "lower" or "higher"
    model: list[float]
    random: list[float]
    oracle: list[float]

    def fraction(self, k: int) -> float:
        """How far the model is on the way from random (0) to oracle (1), at K = k; NaN where the two are equal."""
        return _fraction(self.model[k - 1], self.random[k - 1], self.oracle[k - 1])


@dataclass(frozen=True)
class Score:
    """One metric that has no K, such as MAP@R: of the model, by chance (its expectation), and the best possible.

    Chance is a random ranking, or clusters of the same sizes with items drawn at random.
    """

    title: str
    better: str  # "lower" or "higher"
    model: float
    random: float
    oracle: float

    def fraction(self) -> float:
        """How far the model is on the way from random (0) to oracle (1); NaN where the two are equal."""
        return _fraction(self.model, self.random, self.oracle)


def _fraction(model: float, random: float, oracle: float) -> float:
    way = oracle - random
    return (model - random) / way if way else float("nan")


@dataclass(frozen=True)
class Evaluation:
    """The figures of one evaluation, as they are written to `evaluation.json`.

    `curves` are by metric name ("label_distance", "ndcg", for classes also "recall"); entry K - 1 of a curve is the
    value at K. `scores` are those without a K (for classes "map_at_r", "r_precision", "nmi", "f1"). `recall_at` are the
    K at which tables tell Recall@K.
    `spearman` is the rank correlation of embedding distance and label distance over query-gallery pairs: all of them,
    or a uniform sample of a million.
    """

    unit: str
    queries: int
    gallery: int
    curves: dict[str, Curve]
    spearman: float
    skipped: int = 0
    scores: dict[str, Score] = field(default_factory=dict)
    recall_at: list[int] = field(default_factory=lambda: list(RECALL_AT))

    @property
    def headline(self) -> tuple[str, int]:
        """The figure that stands for all others, as the name of a curve and K: Recall@1, or label distance@10."""
        if "recall" in self.curves:
            return "recall", 1
        curve = self.curves.get("label_distance")
        return "label_distance", min(10, len(curve.model)) if curve else 10

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON; a correlation that does not exist is None."""
        return {**asdict(self), "spearman": None if math.isnan(self.spearman) else self.spearman}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Evaluation:
        """The inverse of `to_dict`."""
        curves = {name: Curve(**curve) for name, curve in values["curves"].items()}
        spearman = float("nan") if values["spearman"] is None else values["spearman"]
        scores = {name: Score(**score) for name, score in values.get("scores", {}).items()}
        return cls(**{**values, "curves": curves, "spearman": spearman, "scores": scores})


@dataclass(frozen=True)
class Ranking:
    """Who was retrieved: rows of a split.

    queries `[Q]`; model and oracle `[Q, K]`, best first; `label_distances`, `oracle_label_distances` `[Q, K]` of these
    retrievals; `pairs` `[P, 2]` are (label distance, embedding distance) of a uniform sample of query-gallery pairs;
    embeddings `[N, d]` of the whole split.
    """

    queries: Tensor
    model: Tensor
    oracle: Tensor
    label_distances: Tensor
    oracle_label_distances: Tensor
    pairs: Tensor
    embeddings: Tensor
