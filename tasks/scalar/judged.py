"""Drawn dials with the judgments of drawn judges, from a seed."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import numpy as np

from contml._support.progress import progress_bar
from contml._support.validation import NonNegativeFloat, NonNegativeInt, PositiveInt, Range, check_ranges
from contml.data import Pixels, Split, Task
from contml.data.carve import with_judgments
from contml.labels import JudgedItems, RankingLabels, TripletLabels

from .._readers.splits import FIRST_TEST, FIRST_VAL
from .judges import Floats, Random, draw_dial, drawn_triplets, judge_lists, judge_triplets

#: Items of a split: a triplet.
_Items: TypeAlias = Annotated[int, Range(3, whole=True)]


@check_ranges
def judged(
    kind: Literal["triplets", "odd_one_out", "rankings"] = "triplets",
    train: _Items = 1000,
    val: _Items = 200,
    test: _Items = 300,
    judgments: PositiveInt = 3000,
    judges: PositiveInt = 3,
    noise: NonNegativeFloat = 5.0,
    lapse: Annotated[float, Range(0, most=1)] = 0.05,
    candidates: Annotated[int, Range(2, whole=True)] = 10,
    levels: Annotated[int, Range(2, whole=True)] = 5,
    size: Annotated[int, Range(16, whole=True)] = 32,
    seed: NonNegativeInt = 0,
) -> Task:
    """Drawn dials that show a number, 0 to 100, and judges who compare them.

    A judge perceives each number with noise. The judgments of validation and test are of other dials, in proportion
    to their numbers.

    Args:
        kind: "triplets": which of two dials is nearer to an anchor; "odd_one_out": of three; "rankings": graded lists.
        train: number of training images.
        val: number of validation images.
        test: number of test images.
        judgments: number of training triplets; of rankings, of judged items of all queries.
        judges: how many judge each triplet, or each item of a query.
        noise: standard deviation of the number that a judge perceives.
        lapse: share of answers that are random.
        candidates: number of items of a query.
        levels: number of grades.
        size: side of an image in pixels.
        seed: seed of the dials and the judges.
    """
    splits = {}
    ranges = (("train", 0, train), ("val", FIRST_VAL, val), ("test", FIRST_TEST, test))
    with progress_bar(train + val + test, "drawing dials") as progress:
        done = 0
        for number, (part, first, count) in enumerate(ranges):
            dials = []
            for index in range(first, first + count):
                dials.append(draw_dial(seed, index, size))
                done += 1
                progress(done)
            values = np.array([value for _, value in dials])
            random = np.random.default_rng([seed, number])
            share = max(1, round(judgments * count / train))
            if kind == "rankings":
                lists = (max(1, min(count, share // candidates)), candidates, judges, levels, noise, lapse)
                labels: JudgedItems = RankingLabels(*judge_lists(values, *lists, random), items=count, missing="drop")
            else:
                labels = _triplets(values, 2 if kind == "triplets" else 3, share, judges, noise, lapse, random)
            images = [Pixels(pixels) for pixels, _ in dials]
            names = [f"dial {index}" for index in range(first, first + count)]
            splits[part] = with_judgments(Split(images, names, labels), labels)
    return Task(splits["train"], splits["test"], splits["val"])


def _triplets(
    values: Floats, answers: int, count: int, judges: int, noise: float, lapse: float, random: Random
) -> TripletLabels:
    triplets = drawn_triplets(len(values), count, random)
    return TripletLabels(triplets, judge_triplets(values, triplets, answers, judges, noise, lapse, random), len(values))
