"""The synthetic data set: drawn scenes with captions, from a seed."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np

from contml._support.validation import NonNegativeInt, PositiveInt, Range, check_ranges
from contml.data import Pixels, Task, drawn

from .._readers.splits import FIRST_TEST, FIRST_VAL, queries_like
from .._readers.word_vectors import training_words, word_vectors
from .distance import CaptionDistance, DistanceOptions, WordWeights
from .grammar import write_captions
from .painting import Array, paint_scene
from .scenes import choose_scene
from .split import make_split

#: Items of a split: a query, and two others to rank.
_Items: TypeAlias = Annotated[int, Range(3, whole=True)]


@check_ranges
def synthetic(
    train: _Items = 3000,
    val: _Items = 500,
    test: _Items = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(16, whole=True)] = 64,
    captions: PositiveInt = 5,
    distance: str | dict[str, float] = "wmd",
    word_weights: WordWeights = "count",
    normalize: bool = False,
    dim: PositiveInt = 100,
    seed: NonNegativeInt = 0,
) -> Task:
    """Scenes of two to four things (balls, cats, cars, ...) with five captions each, drawn from a seed.

    Things have a colour, a size and a pattern, and are beside, on, above or in front of each other, in one of five
    places. No caption mentions everything, and words have synonyms. Word vectors are trained on the training captions.
    A scene of 64 pixels takes about two milliseconds to draw; what was drawn is kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images; the share of queries is that of the test images.
        test: number of test images.
        queries: how many test images, drawn at random, are queries; 0: every one is a query against all others.
        size: side of an image in pixels.
        captions: captions per image.
        distance: how captions are compared: wmd, tfidf, mean_vector, or module:name, a function that returns vectors of
            a list of captions; or several with weights, {wmd: 0.5, tfidf: 0.5}, each divided by its mean in training.
        word_weights: the weights of words of wmd and mean_vector: count (1), or idf, of the training captions.
        normalize: scale word vectors to unit length first.
        dim: dimension of the word vectors.
        seed: seed of the scenes, the queries, and the training of word vectors.
    """
    choice = DistanceOptions(distance, word_weights)
    numbers = [*range(train), *range(FIRST_VAL, FIRST_VAL + val), *range(FIRST_TEST, FIRST_TEST + test)]
    (pixels,) = drawn(_paint, seed, numbers, size, "scenes")
    images, texts = [Pixels(image) for image in pixels], [_write(seed, number, captions) for number in numbers]
    names = [f"scene {number}" for number in numbers]
    vectors = word_vectors(None, texts[:train], texts[train:], dim, seed) if choice.needs_vectors else {}
    caption_distance = CaptionDistance(choice, texts[:train], texts[train:], vectors, normalize, seed)

    train_split, val_split, test_split = (
        make_split(
            images[rows],
            names[rows],
            texts[rows],
            caption_distance,
            queries=count,
            seed=seed,
        )
        for rows, count in (
            (slice(train), 0),
            (slice(train, train + val), queries_like(queries, test, val)),
            (slice(train + val, None), queries),
        )
    )
    summary = [("word vectors", training_words(texts[:train]))] if choice.needs_vectors else []
    return Task(train_split, test_split, val_split, summary=summary)


def draw_scene(seed: int, index: int, size: int = 64, count: int = 5) -> tuple[Array, list[str]]:
    """One scene: pixels `[size, size, 3]` and `count` captions; (seed, index) is the same scene at any size."""
    return _paint(seed, index, size)[0], _write(seed, index, count)


def _paint(seed: int, index: int, size: int) -> tuple[Array]:
    scene = choose_scene(np.random.default_rng([seed, index]))
    return (paint_scene(np.random.default_rng([seed, index, 1]), scene, size),)


def _write(seed: int, index: int, count: int) -> list[str]:
    random = np.random.default_rng([seed, index])
    return write_captions(random, choose_scene(random), count)
