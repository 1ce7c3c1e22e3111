"""Drawn dials that show a known number, and judges who perceive it with noise and sometimes answer at random."""

from __future__ import annotations

import cmath
import math
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Random: TypeAlias = np.random.Generator


def draw_dial(seed: int, index: int, size: int) -> tuple[Bytes, float]:
    """A dial, pixels `[size, size, 3]`, and its number, 0 to 100: the angle of the needle, of three quarters of a turn.

    Dials differ in colours, place and length of the needle. They are easier to read than gauges (`gauges.py`).
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
    return np.asarray(canvas.reduce(4)), value


def drawn_triplets(items: int, count: int, random: Random) -> Integers:
    """`count` triplets of different items `[count, 3]`; with at least three items."""
    rows = np.stack([random.integers(items - n, size=count) for n in range(3)], axis=1)
    for column in (1, 2):  # the numbers that are left, by counting past those that are taken
        taken = np.sort(rows[:, :column], axis=1)
        for n in range(column):
            rows[:, column] += rows[:, column] >= taken[:, n]
    return rows


def judge_triplets(
    values: Floats, triplets: Integers, answers: int, judges: int, noise: float, lapse: float, random: Random
) -> Floats:
    """The number of judges who gave each answer `[T, answers]`.

    Args:
        values: the true number of each item `[N]`.
        triplets: `[T, 3]`.
        answers: 2: which of x and y is nearer to the anchor; 3: the odd one out.
        judges: how many judge each triplet.
        noise: standard deviation of the number that a judge perceives.
        lapse: share of answers that are random.
        random: draws.
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
    """Queries with graded items: pairs of query and item, one for each judge `[A, 2]`, and grades `[A]`.

    Args:
        values: the true number of each item `[N]`.
        queries: number of queries.
        candidates: number of items of a query.
        judges: how many grade each item.
        levels: number of grades, 0 to `levels` - 1, of equal steps of the difference of numbers.
        noise: standard deviation of the number that a judge perceives.
        lapse: share of grades that are random.
        random: draws.
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
