"""The synthetic twin: drawn scenes with five captions each, from a seed."""

from __future__ import annotations

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar

from .grammar import captions as say
from .painting import Pixels, paint_scene
from .scenes import choose_scene
from .split import CaptionSplit, word_vectors

#: Test scenes start here, so that a larger training set never runs into them.
_TEST = 10_000_000


class SyntheticCaptions:
    """Scenes of two to four things (balls, cats, cars, ...) with five captions each, drawn from a seed.

    Things have a colour, a size and a pattern, and lie beside, on, above or in front of each other, in one of five
    places. No caption tells all, and words have synonyms. Word vectors are trained on the training captions. About
    two milliseconds a scene of 64 pixels; they are kept in memory.

    Args:
        train: training images.
        test: test images.
        queries: how many test images, drawn at random, query the others; 0: every one queries all others.
        size: side of an image in pixels.
        captions: captions an image.
        normalize: word vectors to unit length first.
        dim: dimension of the word vectors.
        scenes_seed: another seed draws another data set.
    """

    def __init__(
        self,
        train: int = 3000,
        test: int = 1000,
        queries: int = 200,
        size: int = 64,
        captions: int = 5,
        normalize: bool = False,
        dim: int = 100,
        scenes_seed: int = 0,
    ) -> None:
        for name, count in (("train", train), ("test", test)):
            if count < 3:
                raise InputError(f"task.{name}={count}: a split needs at least 3 images")
        for name, value, least in (("size", size, 16), ("captions", captions, 1), ("dim", dim, 1)):
            if value < least:
                raise InputError(f"task.{name}={value}: allowed are {least} and more")
        if scenes_seed < 0:
            raise InputError(f"task.scenes_seed={scenes_seed}: allowed are 0 and more")
        places = [*range(train), *range(_TEST, _TEST + test)]
        drawn = []
        with progress_bar(len(places), "drawing scenes") as progress:
            for index in places:
                drawn.append(draw_scene(scenes_seed, index, size, captions))
                progress(len(drawn))
        learned, asked = drawn[:train], drawn[train:]
        vectors = word_vectors(None, [texts for _, texts in learned], [texts for _, texts in asked], dim, scenes_seed)
        self.train, self.test = (
            CaptionSplit(
                [pixels for pixels, _ in scenes],
                [f"scene {first + index}" for index in range(len(scenes))],
                [texts for _, texts in scenes],
                vectors,
                normalize=normalize,
                queries=asking,
                seed=scenes_seed,
            )
            for scenes, first, asking in ((learned, 0, 0), (asked, _TEST, queries))
        )


def draw_scene(seed: int, index: int, size: int = 64, count: int = 5) -> tuple[Pixels, list[str]]:
    """One scene: pixels `[size, size, 3]` and `count` captions; (seed, index) is the same scene at any size."""
    random = np.random.default_rng([seed, index])
    scene = choose_scene(random)
    texts = say(random, scene, count)
    return paint_scene(np.random.default_rng([seed, index, 1]), scene, size), texts
