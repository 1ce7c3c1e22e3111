"""What an evaluation found: curves over K beside a random ranking and the oracle."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor


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
        way = self.oracle[k - 1] - self.random[k - 1]
        return (self.model[k - 1] - self.random[k - 1]) / way if way else float("nan")


@dataclass(frozen=True)
class Evaluation:
    """The figures of one evaluation, as they are written to `evaluation.json`.

    `curves` are by metric name ("label_distance", "ndcg"); entry K - 1 of a curve is the value at K.
    `spearman` is the rank correlation of embedding distance and label distance over query-gallery pairs: all of them,
    or a uniform sample of a million.
    """

    unit: str
    queries: int
    gallery: int
    curves: dict[str, Curve]
    spearman: float
    skipped: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON; a correlation that does not exist is None."""
        return {**asdict(self), "spearman": None if math.isnan(self.spearman) else self.spearman}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Evaluation:
        """The inverse of `to_dict`."""
        curves = {name: Curve(**curve) for name, curve in values["curves"].items()}
        spearman = float("nan") if values["spearman"] is None else values["spearman"]
        return cls(**{**values, "curves": curves, "spearman": spearman})


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
