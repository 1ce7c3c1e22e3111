"""Drawn dials, and simulated judges who compare them with noise and sometimes answer at random."""

from __future__ import annotations

import cmath
import math
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml._support.validation import NonNegativeFloat, NonNegativeInt, PositiveInt, Range, SplitSize, check_ranges
from contml.data import Pixels, Split, Task
from contml.data.carve import with_judgments
from contml.labels import JudgedItems, RankingLabels, TripletLabels

from .._readers.splits import drawn_task

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Random: TypeAlias = np.random.Generator


def draw_dial(seed: int, index: int, size: int) -> tuple[Bytes, Floats]:
    """Draw a dial. Return its pixels `[size, size, 3]` and its number, 0 to 100, an array without axes.

    The number is the angle of the needle, as a percentage of three quarters of a turn. Dials differ in colours, and in
    place and length of the needle. They are easier to read than gauges (`drawn_gauges.py`).
    """
    random = np.random.default_rng([seed, index])
    value = float(random.uniform(0, 100))
    side = 4 * size  # averaged down
    wall, face, needle = (tuple(random.integers(low, low + 80, 3).tolist()) for low in (60, 160, 0))
    canvas = Image.new("RGB", (side, side), wall)
    pen = ImageDraw.Draw(canvas)
    centre = complex(*(side * (0.5 + random.uniform(-0.05, 0.05, 2))))
    radius = side * random.uniform(0.36, 0.42)
    pen.ellipse((centre.real - radius, centre.imag - radius, centre.real + radius, centre.imag + radius), fill=face)
    tip = centre + cmath.rect(radius * random.uniform(0.75, 0.95), math.radians(135 + 2.7 * value))
    pen.line((centre.real, centre.imag, tip.real, tip.imag), fill=needle, width=max(2, side // 14))
    return np.asarray(canvas.reduce(4)), np.array(value)


def drawn_triplets(items: int, count: int, random: Random) -> Integers:
    """Draw `count` triplets of different items, `[count, 3]`. There must be at least three items."""
    rows = np.stack([random.integers(items - n, size=count) for n in range(3)], axis=1)
    for column in (1, 2):  # skip the numbers that are already taken
        taken = np.sort(rows[:, :column], axis=1)
        for n in range(column):
            rows[:, column] += rows[:, column] >= taken[:, n]
    return rows


def judge_triplets(
    values: Floats, triplets: Integers, answers: int, judges: int, noise: float, lapse: float, random: Random
) -> Floats:
    """Count the judges who gave each answer, `[T, answers]`.

    Args:
        values: the true number of each item `[N]`.
        triplets: the items of each triplet, `[T, 3]`.
        answers: number of possible answers. 2: which of x and y is nearer to the anchor. 3: the odd one out.
        judges: number of judges of each triplet.
        noise: standard deviation of the number that a judge perceives.
        lapse: share of answers that are random.
        random: the generator of the draws.
    """
    counts = np.zeros((len(triplets), answers))
    for _ in range(judges):
        a, b, c = (values[triplets] + random.normal(0, noise, triplets.shape)).T
        distances = (abs(a - b), abs(a - c)) if answers == 2 else (abs(b - c), abs(a - c), abs(a - b))
        chosen = np.argmin(distances, axis=0)
        lapsed = random.random(len(chosen)) < lapse
        chosen = np.where(lapsed, random.integers(answers, size=len(chosen)), chosen)
        counts[np.arange(len(chosen)), chosen] += 1
    return counts


def judge_lists(
    values: Floats, queries: int, candidates: int, judges: int, levels: int, noise: float, lapse: float, random: Random
) -> tuple[Integers, Floats]:
    """Draw queries and let judges grade their items.

    Return pairs of query and item, one for each judge `[A, 2]`, and grades `[A]`.

    Args:
        values: the true number of each item `[N]`.
        queries: number of queries.
        candidates: number of items of a query.
        judges: number of judges who grade each item.
        levels: number of grades, 0 to `levels` - 1. Each grade covers an equal range of differences of numbers.
        noise: standard deviation of the number that a judge perceives.
        lapse: share of grades that are random.
        random: the generator of the draws.
    """
    span = float(np.ptp(values)) or 1.0
    pairs, grades = [], []
    for query in random.choice(len(values), queries, replace=False).tolist():
        others = np.delete(np.arange(len(values)), query)
        items = random.choice(others, min(candidates, len(others)), replace=False)
        for _ in range(judges):
            difference = abs(values[items] - values[query] + random.normal(0, noise, len(items)))
            grade = np.clip(np.floor((1 - 2 * difference / span) * levels), 0, levels - 1)
            lapsed = random.random(len(items)) < lapse
            grades.append(np.where(lapsed, random.integers(levels, size=len(items)), grade))
            pairs.append(np.stack((np.full(len(items), query), items), axis=1))
    return np.concatenate(pairs), np.concatenate(grades)


@check_ranges
def judged(
    kind: Literal["triplets", "odd_one_out", "rankings"] = "triplets",
    train: SplitSize = 1000,
    val: SplitSize = 200,
    test: SplitSize = 300,
    judgments: PositiveInt = 3000,
    judges: PositiveInt = 3,
    noise: NonNegativeFloat = 5.0,
    lapse: Annotated[float, Range(0, most=1)] = 0.05,
    candidates: Annotated[int, Range(2, whole=True)] = 10,
    levels: Annotated[int, Range(2, whole=True)] = 5,
    size: Annotated[int, Range(16, whole=True)] = 32,
    seed: NonNegativeInt = 0,
) -> Task:
    """Draw dials that show a number, 0 to 100, and simulate judges who compare them.

    A judge perceives each number with noise. Judgments for validation and test are about other dials. Their number is
    in proportion to the number of dials.

    Args:
        kind: "triplets": which of two dials is nearer to an anchor; "odd_one_out": of three; "rankings": graded lists.
        train: number of training images.
        val: number of validation images.
        test: number of test images.
        judgments: number of training triplets, or of judged items of all queries for rankings.
        judges: number of judges of each triplet, or of each item of a query.
        noise: standard deviation of the number that a judge perceives.
        lapse: share of answers that are random.
        candidates: number of items of a query.
        levels: number of grades.
        size: side of an image in pixels.
        seed: seed of the dials and the judges.
    """

    def make(part: str, images: list[Pixels], names: list[str], values: Floats) -> Split:
        random = np.random.default_rng([seed, ("train", "val", "test").index(part)])
        count, share = len(images), max(1, round(judgments * len(images) / train))
        if kind == "rankings":
            lists = (max(1, min(count, share // candidates)), candidates, judges, levels, noise, lapse)
            labels: JudgedItems = RankingLabels(*judge_lists(values, *lists, random), items=count, missing="drop")
        else:
            triplets, answers = drawn_triplets(count, share, random), 2 if kind == "triplets" else 3
            answered = judge_triplets(values, triplets, answers, judges, noise, lapse, random)
            labels = TripletLabels(triplets, answered, count)
        return with_judgments(Split(images, names, labels), labels)

    return drawn_task(draw_dial, seed, (train, val, test), size, "dial", make)
