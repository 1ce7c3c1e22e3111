"""The synthetic data set: drawn scenes with five captions each, from a seed."""

from __future__ import annotations

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar
from contml.data import Pixels, Task

from .grammar import write_captions
from .painting import Array, paint_scene
from .scenes import choose_scene
from .split import make_split, word_vectors

#: Test scenes start here, so that a larger training set never reaches them.
_FIRST_TEST = 10_000_000


def synthetic(
    train: int = 3000,
    test: int = 1000,
    queries: int = 200,
    size: int = 64,
    captions: int = 5,
    normalize: bool = False,
    dim: int = 100,
    scenes_seed: int = 0,
) -> Task:
    """Scenes of two to four things (balls, cats, cars, ...) with five captions each, drawn from a seed.

    Things have a colour, a size and a pattern, and are beside, on, above or in front of each other, in one of five
    places. No caption says everything, and words have synonyms. Word vectors are trained on the training captions. A
    scene of 64 pixels takes about two milliseconds; all are kept in memory.

    Args:
        train: training images.
        test: test images.
        queries: how many test images, drawn at random, are queries; 0: every one is a query against all others.
        size: side of an image in pixels.
        captions: captions per image.
        normalize: scale word vectors to unit length first.
        dim: dimension of the word vectors.
        scenes_seed: another seed draws another data set.
    """
    for name, value, least in (
        ("train", train, 3),
        ("test", test, 3),
        ("size", size, 16),
        ("captions", captions, 1),
        ("dim", dim, 1),
        ("scenes_seed", scenes_seed, 0),
    ):
        if value < least:
            raise InputError(f"{name} is {value}; it must be {least} or more")
    numbers = [*range(train), *range(_FIRST_TEST, _FIRST_TEST + test)]
    images, texts = [], []
    with progress_bar(len(numbers), "drawing scenes") as progress:
        for number in numbers:
            pixels, scene_captions = draw_scene(scenes_seed, number, size, captions)
            images.append(Pixels(pixels))
            texts.append(scene_captions)
            progress(len(images))
    names = [f"scene {number}" for number in numbers]
    vectors = word_vectors(None, texts[:train], texts[train:], dim, scenes_seed)
    train_split, test_split = (
        make_split(
            images[rows], names[rows], texts[rows], vectors, normalize=normalize, queries=count, seed=scenes_seed
        )
        for rows, count in ((slice(train), 0), (slice(train, None), queries))
    )
    return Task(train_split, test_split)


def draw_scene(seed: int, index: int, size: int = 64, count: int = 5) -> tuple[Array, list[str]]:
    """One scene: pixels `[size, size, 3]` and `count` captions; (seed, index) is the same scene at any size."""
    random = np.random.default_rng([seed, index])
    scene = choose_scene(random)
    captions = write_captions(random, scene, count)
    return paint_scene(np.random.default_rng([seed, index, 1]), scene, size), captions
