"""The synthetic data set: drawn rooms with exact surface maps, the same on every machine."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.data import Pixels, Split, Task, check_queries, drawn

from .._readers.splits import FIRST_TEST, FIRST_VAL
from .interiors import draw_room
from .split import SURFACES, make_split

#: Surface ids are 1 to 5; no pixel has id 0.
_CLASSES, _UNKNOWN = 6, 0


#: Items of a split: a query, and two others to rank.
_Items: TypeAlias = Annotated[int, Range(3, whole=True)]


@check_ranges
def synthetic(
    train: _Items = 3000,
    val: _Items = 500,
    test: _Items = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(8, whole=True)] = 64,
    seed: NonNegativeInt = 0,
) -> Task:
    """Synthetic furnished rooms, seen by cameras of varied position, direction and focal length, drawn from a seed.

    The label map gives the surface that each pixel would show if the room were empty: 1 frontal wall, 2 left wall,
    3 right wall, 4 floor, 5 ceiling. A view of two walls has a left and a right wall. Drawing takes about two
    milliseconds per image of 64 pixels; what was drawn is kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images; each is a query against all others.
        test: number of test images.
        queries: this many test images are queries, the others the gallery; 0: every test image is a query.
        size: side of an image and of its label map in pixels.
        seed: another seed draws another data set.
    """
    check_queries(queries, test)

    def draw(first: int, count: int, queries: int = 0) -> Split:
        numbers = range(first, first + count)
        pixels, surfaces = drawn(draw_room, seed, numbers, size, "rooms")
        return make_split(
            [Pixels(image) for image in pixels],
            [f"room {number}" for number in numbers],
            surfaces,
            classes=_CLASSES,
            ignore=_UNKNOWN,
            class_names=SURFACES,
            queries=queries,
        )

    return Task(draw(0, train), draw(FIRST_TEST, test, queries), draw(FIRST_VAL, val))
