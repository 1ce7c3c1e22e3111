"""The synthetic data set: drawn people with exact joints, the same on every machine."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.data import Pixels, Split, Task, check_queries, drawn

from .._readers.splits import FIRST_TEST, FIRST_VAL
from .bodies import LSP
from .people import make_split
from .persons import draw_person

#: Items of a split: a query, and two others to rank.
_Items: TypeAlias = Annotated[int, Range(3, whole=True)]


@check_ranges
def synthetic(
    train: _Items = 3000,
    val: _Items = 500,
    test: _Items = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(8, whole=True)] = 64,
    squared: bool = True,
    normalize: bool = False,
    seed: NonNegativeInt = 0,
) -> Task:
    """Synthetic people with varied pose, body, clothes, background and clutter, drawn from a seed.

    Drawing takes about a millisecond per image of 64 pixels; what was drawn is kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images; each is a query for all others.
        test: number of test images.
        queries: how many test images are queries for the others; 0: each is a query for all others.
        size: side of an image in pixels; label distances are in these pixels.
        squared: use squared Euclidean pose distances; give the loss's `squared` the same value.
        normalize: poses in the frame of the person, so that neither position nor size counts.
        seed: another seed draws another data set.
    """
    check_queries(queries, test)

    def draw(first: int, count: int, queries: int = 0) -> Split:
        numbers = range(first, first + count)
        pixels, joints = drawn(draw_person, seed, numbers, size, "people")
        return make_split(
            [Pixels(image) for image in pixels],
            [f"person {number}" for number in numbers],
            joints,
            None,
            range(queries),
            LSP,
            squared=squared,
            normalize=normalize,
        )

    return Task(draw(0, train), draw(FIRST_TEST, test, queries), draw(FIRST_VAL, val))
