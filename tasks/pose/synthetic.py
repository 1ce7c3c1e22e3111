"""The synthetic data set: drawn people with exact joints, the same on every machine."""

from __future__ import annotations

import numpy as np

from contml import InputError
from contml.data import Pixels, Split, Task

from .bodies import LSP
from .figures import draw_person
from .split import make_split

#: The first test person: a larger training set never reaches it.
_FIRST_TEST = 10_000_000


def synthetic(
    train: int = 3000,
    test: int = 1000,
    queries: int = 200,
    size: int = 64,
    squared: bool = True,
    normalize: bool = False,
    figures_seed: int = 0,
) -> Task:
    """Synthetic people with varied pose, body, clothes, background and clutter, drawn from a seed.

    An image of 64 pixels takes about a millisecond; all images are kept in memory.

    Args:
        train: number of training images.
        test: number of test images.
        queries: how many test images are queries for the others; 0: each is a query for all others.
        size: side of an image in pixels; label distances are in these pixels.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither position nor size counts.
        figures_seed: another seed draws another data set.
    """
    for name, count in (("train", train), ("test", test)):
        if count < 3:
            raise InputError(f"{name} is {count}; a split needs at least 3 images")
    if figures_seed < 0 or size < 8:
        raise InputError(f"figures_seed is {figures_seed} and size is {size}; these must be at least 0 and 8")
    if not 0 <= queries <= test - 2:
        raise InputError(f"queries is {queries}; it must be 0 to {test - 2}, so that two test images are left to find")

    def draw(first: int, count: int, queries: int) -> Split:
        people = [draw_person(figures_seed, first + index, size) for index in range(count)]
        return make_split(
            [Pixels(image) for image, _ in people],
            [f"figure {first + index}" for index in range(count)],
            np.stack([joints for _, joints in people]),
            None,
            queries,
            LSP,
            squared=squared,
            normalize=normalize,
        )

    return Task(train=draw(0, train, 0), test=draw(_FIRST_TEST, test, queries))
