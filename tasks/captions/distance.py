"""Distances between captions: word vectors, and options that are fitted to the training captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml._support.errors import did_you_mean
from contml._support.imports import import_by_name
from contml.data.draw import positions
from contml.labels import CaptionLabels, CaptionVectorLabels, LabelSpace, WeightedLabels, idf_weights
from contml.labels.caption_words import caption_tokens
from contml.labels.word_vectors import WordVectors, load_word_vectors, train_word_vectors

Captions: TypeAlias = "Sequence[Sequence[str]]"


def word_vectors(path: Path | None, train: Captions, test: Captions, dim: int, seed: int) -> WordVectors:
    """Return the vectors of all words in these captions that have a vector.

    Args:
        path: a file of word vectors. None: vectors are trained on the training captions.
        train: the captions of each training image.
        test: the captions of each validation and test image.
        dim: dimension of vectors that are trained.
        seed: seed of the training of vectors.

    Raises:
        InputError: the file cannot be read, or has vectors of fewer than half of the words.
    """
    images = chain.from_iterable(map(caption_tokens, (train, test)))
    counts = Counter(chain.from_iterable(map(chain.from_iterable, images)))
    if path is None:
        captions = [*chain.from_iterable(caption_tokens(train))]
        # Word vectors depend on the order of the captions, so it is drawn by their words.
        order = np.argsort(positions([" ".join(words) for words in captions], seed, "word vectors"), kind="stable")
        return train_word_vectors([captions[row] for row in order.tolist()], dim, seed)
    vectors = load_word_vectors(path, counts)
    num_known, total = sum(counts[word] for word in vectors), counts.total()
    if 2 * num_known < total:
        unknown_word = next(word for word, _ in counts.most_common() if word not in vectors)
        problem = f"has vectors for {num_known:,} of the {total:,} words of the captions (none for '{unknown_word}')"
        raise InputError(str(path), problem, hint="give vectors of the captions' language, in lower case")
    return vectors


def vectors_in_words(path: Path | None, vectors: WordVectors, train: Captions, option: str = "task.vectors") -> str:
    """Describe the source of word vectors: a file and its omitted rows, or the training captions.

    `option` is the name of the option that takes a file of word vectors.
    """
    if path is None:
        return f"{training_words(train)}; vectors of a large corpus are better: {option}=FILE"
    excluded = ", ".join(f"{count:,} {reason}" for reason, count in vectors.excluded.items())
    return f"{path.name}; rows left out: {excluded}" if excluded else path.name


def training_words(train: Captions) -> str:
    """Describe the captions on which word vectors were trained."""
    return f"Word2Vec, trained on the {sum(map(len, train)):,} captions of {len(train):,} training images"


WordWeights: TypeAlias = Literal["count", "idf"]

#: Distances by name, beside `module:name`, a function that returns vectors of captions.
_NAMES = ("wmd", "tfidf", "mean_vector")
#: The mean of each distance of a sum is estimated on this many training images.
_SAMPLE = 300


@dataclass(frozen=True)
class DistanceOptions:
    """The checked options `distance` and `word_weights`.

    Args:
        distance: the name of a distance, or several with their weights in the sum.
        word_weights: the weights of words in "wmd" and "mean_vector".
    """

    distance: str | Mapping[str, float]
    word_weights: WordWeights

    def __post_init__(self) -> None:
        allowed = f"must be one of {', '.join(_NAMES)}, or module:name"
        if not self.weights:
            raise InputError("distance", "{}", allowed, "or some with weights")
        for name, weight in self.weights.items():
            if name not in _NAMES and not _is_code(name):
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
        """True if words need vectors."""
        return not {"wmd", "mean_vector"}.isdisjoint(self.weights)


@dataclass(frozen=True)
class CaptionDistance:
    """The distance between captions of a task, the same in all splits of the task.

    Args:
        choice: the distance.
        train: the captions of the training images, which give the word weights and the scales of a sum.
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
        """A description of the captions that an image needs."""
        if self.choice.needs_vectors:
            return "a word that has a vector"
        return "a word" if "tfidf" in self.choice.weights else "a caption with a vector"

    def labels(self, captions: Captions) -> tuple[LabelSpace, list[int]]:
        """Return the label space of the images that have labels, and their positions.

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
        weights: dict[LabelSpace, float] = {}
        for name, space in spaces.items():
            aligned = space[np.searchsorted(rows[name], kept_rows).tolist()].as_root()
            weights[aligned] = self.choice.weights[name] / self._means[name]
        formula = " + ".join(f"{weight:g} x {name}" for name, weight in self.choice.weights.items())
        return WeightedLabels(weights, unit=f"{formula}, each divided by its mean in training"), kept_rows

    def _space(self, name: str, captions: Captions) -> CaptionLabels | CaptionVectorLabels:
        weights: Any = self._idf if self.choice.word_weights == "idf" else "count"
        if name == "wmd":
            return CaptionLabels(captions, self.vectors, self.normalize, empty="drop", weights=weights)
        if name == "mean_vector":
            vectors = self.vectors, self.normalize
            return CaptionVectorLabels(captions, "mean_vector", *vectors, weights=weights, empty="drop")
        if name == "tfidf":
            return CaptionVectorLabels(captions, "tfidf", weights=self._idf, empty="drop")
        return CaptionVectorLabels(captions, import_by_name(name), empty="drop")

    @cached_property
    def _idf(self) -> Mapping[str, float]:
        return idf_weights(self.train, self.others)

    @cached_property
    def _means(self) -> Mapping[str, float]:
        """The mean of each distance over a sample of training images."""
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
