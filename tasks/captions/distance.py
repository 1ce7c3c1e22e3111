"""How captions are compared: the options `distance` and `word_weights`, fitted to the training captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml._support.errors import did_you_mean
from contml._support.imports import import_by_name
from contml.data.draw import positions
from contml.labels import CaptionLabels, CaptionVectorLabels, LabelSpace, WeightedLabels, idf_weights

from .._readers.word_vectors import Captions

WordWeights: TypeAlias = Literal["count", "idf"]

#: Distances by name, beside `module:name`, a function that returns vectors of captions.
_NAMES = ("wmd", "tfidf", "mean_vector")
#: The mean of each distance of a sum is estimated on this many training images.
_SAMPLE = 300


@dataclass(frozen=True)
class DistanceOptions:
    """The options `distance` and `word_weights`, checked.

    Args:
        distance: the name of a distance, or several with their weights in the sum.
        word_weights: the weights of words of "wmd" and "mean_vector".
    """

    distance: str | Mapping[str, float]
    word_weights: WordWeights

    def __post_init__(self) -> None:
        if not self.weights:
            raise InputError(
                "distance", "{}", f"must be one of {', '.join(_NAMES)}, module:name", "or some with weights"
            )
        for name, weight in self.weights.items():
            if name not in _NAMES and not _is_code(name):
                allowed = f"must be one of {', '.join(_NAMES)}, or module:name"
                raise InputError("distance", f"unknown name '{name}'", allowed, did_you_mean(name, _NAMES))
            if not 0 < weight < float("inf"):
                raise InputError(f"distance: {name}", f"weight {weight:g}", "must be a finite number above 0")
        if self.word_weights == "idf" and all(map(_is_code, self.weights)):
            raise InputError("word_weights", "idf, but an encoder takes no word weights", hint="omit it")

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each distance."""
        return {self.distance: 1.0} if isinstance(self.distance, str) else self.distance

    @property
    def needs_vectors(self) -> bool:
        """Whether words need vectors."""
        return not {"wmd", "mean_vector"}.isdisjoint(self.weights)


@dataclass(frozen=True)
class CaptionDistance:
    """What compares the captions of a task: the same in all of its splits.

    Args:
        choice: the distance.
        train: the captions of the training images: word weights and the scales of a sum are those of them.
        others: the captions of the other splits, whose words get weights too.
        vectors: word vectors.
        normalize: scale word vectors to unit length first.
        seed: seed of the draw of the training images on which the scales of a sum are estimated.
    """

    choice: DistanceOptions
    train: Captions
    others: Captions = field(default=(), repr=False)
    vectors: Mapping[str, Any] = field(default_factory=dict, repr=False)
    normalize: bool = False
    seed: int = 0

    @property
    def needs(self) -> str:
        """What an image needs, in words."""
        if self.choice.needs_vectors:
            return "a word that has a vector"
        return "a word" if "tfidf" in self.choice.weights else "a caption with a vector"

    def labels(self, captions: Captions) -> tuple[LabelSpace, list[int]]:
        """The label space of the images that have labels, and their positions.

        Raises:
            InputError: no image has labels.
        """
        spaces = {name: self._space(name, captions) for name in self.choice.weights}
        rows = {name: space.kept.tolist() for name, space in spaces.items()}
        kept_rows = sorted(set.intersection(*map(set, rows.values())))
        if not kept_rows:
            raise InputError("captions", f"none of {len(captions)} images has {self.needs}")
        if len(spaces) == 1:
            return next(iter(spaces.values())), kept_rows
        aligned_spaces = {
            name: space[np.searchsorted(rows[name], kept_rows).tolist()].as_root() for name, space in spaces.items()
        }
        weights: dict[LabelSpace, float] = {}
        for name, space in aligned_spaces.items():
            weights[space] = self.choice.weights[name] / self._means[name]
        formula = " + ".join(f"{weight:g} x {name}" for name, weight in self.choice.weights.items())
        return WeightedLabels(weights, unit=f"{formula}, each divided by its mean in training"), kept_rows

    def _space(self, name: str, captions: Captions) -> CaptionLabels | CaptionVectorLabels:
        weights: Any = self._idf if self.choice.word_weights == "idf" else "count"
        if name == "wmd":
            return CaptionLabels(captions, self.vectors, self.normalize, empty="drop", weights=weights)
        if name == "mean_vector":
            return CaptionVectorLabels(
                captions, "mean_vector", self.vectors, self.normalize, weights=weights, empty="drop"
            )
        if name == "tfidf":
            return CaptionVectorLabels(captions, "tfidf", weights=self._idf, empty="drop")
        encoder: Callable[[list[str]], Any] = import_by_name(name)
        return CaptionVectorLabels(captions, encoder, empty="drop")

    @cached_property
    def _idf(self) -> Mapping[str, float]:
        return idf_weights(self.train, self.others)

    @cached_property
    def _means(self) -> Mapping[str, float]:
        """The mean of each distance between some training images."""
        sort_keys = positions(["\n".join(texts) for texts in self.train], self.seed, "mean label distance")
        sample = [self.train[row] for row in np.argsort(sort_keys, kind="stable")[:_SAMPLE]]
        means = {}
        for name in self.choice.weights:
            space = self._space(name, sample)
            mean = float(space.pairwise().double().sum()) / max(len(space) * (len(space) - 1), 1)
            if not mean > 0:
                raise InputError(f"distance: {name}", "0 between all training images", hint="omit it")
            means[name] = mean
        return means


def _is_code(name: str) -> bool:
    return ":" in name.strip(":")
