"""The synthetic data set of numbers: drawn gauges, from a seed."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np

from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.data import Pixels, Split, Task, draw_queries, drawn, query_split
from contml.data.draw import Array
from contml.labels import VectorLabels

from .._readers.splits import FIRST_TEST, FIRST_VAL, queries_like
from .gauges import draw_gauge

#: Items of a split: a query, and two others to rank.
_Items: TypeAlias = Annotated[int, Range(3, whole=True)]


@check_ranges
def synthetic(
    train: _Items = 3000,
    val: _Items = 500,
    test: _Items = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(16, whole=True)] = 64,
    seed: NonNegativeInt = 0,
) -> Task:
    """Drawn gauges that show a number, 0 to 100; the label distance is the difference of two numbers.

    Gauges differ in place, size, view, angle of the scale, marks, colours, light and background: the angle of the
    needle alone does not give the number. A gauge of 64 pixels takes about three milliseconds to draw; what was
    drawn is kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images; the share of queries is that of the test images.
        test: number of test images.
        queries: how many test images, drawn at random, are queries; 0: every one is a query against all others.
        size: side of an image in pixels.
        seed: seed of the gauges and the queries.
    """
    ranges = {"train": (0, train, 0), "val": (FIRST_VAL, val, queries_like(queries, test, val))}
    ranges["test"] = (FIRST_TEST, test, queries)
    splits = {}
    for part, (first, count, num_queries) in ranges.items():
        numbers = range(first, first + count)
        pixels, values = drawn(_draw, seed, numbers, size, "gauges")
        names = [f"gauge {number}" for number in numbers]
        query_rows, gallery = query_split(draw_queries(num_queries, names, seed), count)
        splits[part] = Split(
            images=[Pixels(image) for image in pixels],
            names=names,
            labels=VectorLabels(values.tolist(), squared=False),
            queries=query_rows,
            gallery=gallery,
        )
    return Task(splits["train"], splits["test"], splits["val"])


def _draw(seed: int, number: int, size: int) -> tuple[Array, Array]:
    """Pixels `[size, size, 3]` of a gauge, and the number that it shows."""
    pixels, value = draw_gauge(seed, number, size)
    return pixels, np.array(value)
