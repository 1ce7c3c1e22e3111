"""The synthetic data set of numbers: drawn gauges, from a seed.

Gauges also differ in place, size, view, turn, angle of the scale, marks, colours, light and background. The angle of
the needle is not the number: the number must be read from the scale. The last fifth of the scale is red.
"""

from __future__ import annotations

import cmath
import math
from typing import Annotated, Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml._support.validation import NonNegativeInt, Range, SplitSize, check_ranges
from contml.data import Pixels, Split, Task, draw_queries, query_split
from contml.labels import NumberLabels

from .._readers.splits import drawn_task, queries_like

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Random: TypeAlias = np.random.Generator
Colour: TypeAlias = "tuple[int, int, int]"

#: The largest number of a scale.
HIGHEST = 100.0
#: A gauge is drawn this many times larger, and then averaged down.
_SUPERSAMPLING = 4
_RED: Colour = (200, 45, 35)


def draw_gauge(seed: int, index: int, size: int = 64) -> tuple[Array, Array]:
    """Draw one gauge. Return its pixels `[size, size, 3]` and its number, an array without axes.

    The same (seed, index) is the same gauge at any size.
    """
    random = np.random.default_rng([seed, index])
    value = float(random.uniform(0, HIGHEST))
    return _paint(random, value / HIGHEST, size), np.array(value)


def _paint(random: Random, share: float, size: int) -> Array:
    side = size * _SUPERSAMPLING
    canvas = _background(random, side)
    pen = ImageDraw.Draw(canvas)
    radius = side * random.uniform(0.3, 0.44)
    centre = complex(*(side * (0.5 + random.uniform(-0.05, 0.05, 2))))
    squeeze, lean = random.uniform(0.75, 1.0), cmath.rect(1, random.uniform(0, math.pi))  # seen from an angle
    sweep = math.radians(random.uniform(200, 290))
    middle = -math.pi / 2 + random.uniform(-0.35, 0.35)  # the angle of the middle of the scale; up, turned a little

    def at(distance: float, angle: float) -> tuple[float, float]:
        """Return a point of the dial. `distance` is its distance from the middle, as a share of the radius."""
        along = cmath.rect(distance * radius, angle) / lean
        point = centre + complex(along.real, along.imag * squeeze) * lean
        return point.real, point.imag

    def angle_of(part: float) -> float:
        return float(middle + sweep * (part - 0.5))

    dark = bool(random.random() < 0.35)
    face = _shade(random, 45 if dark else 225, 20)
    ink = _shade(random, 215 if dark else 40, 25)
    circle = np.linspace(0, 2 * math.pi, 72)
    pen.polygon([at(1.12, angle) for angle in circle], fill=_shade(random, 120, 70))
    pen.polygon([at(1, angle) for angle in circle], fill=face)
    arc = [angle_of(position) for position in np.linspace(0.8, 1, 12)]
    pen.polygon([*(at(0.92, angle) for angle in arc), *(at(0.78, angle) for angle in arc[::-1])], fill=_RED)
    num_marks = int(random.integers(5, 12))
    thickness = max(1, round(radius * random.uniform(0.025, 0.06)))
    for position in np.linspace(0, 1, num_marks):
        pen.line((at(0.92, angle_of(position)), at(0.72, angle_of(position))), fill=ink, width=thickness)
    needle = _RED if random.random() < 0.3 else ink
    needle_angle, length = angle_of(share), random.uniform(0.6, 0.85)
    width, tail = random.uniform(0.03, 0.08), random.uniform(0.05, 0.3)
    base = [at(width, needle_angle + turn) for turn in (math.pi / 2, -math.pi / 2)]
    pen.polygon([base[0], at(length, needle_angle), base[1], at(tail, needle_angle + math.pi)], fill=needle)
    hub = random.uniform(0.06, 0.12)
    pen.polygon([at(hub, angle) for angle in circle], fill=needle)
    return _photograph(random, canvas.reduce(_SUPERSAMPLING))


def _background(random: Random, side: int) -> Image.Image:
    """Draw a wall of two shades with some boxes."""
    ends = np.array([_shade(random, 130, 80), _shade(random, 130, 80)], np.float64)
    gradient = np.linspace(0, 1, 16)[:, None, None] * np.ones((1, 16, 1))
    wall = Image.fromarray((ends[0] + gradient * (ends[1] - ends[0])).astype(np.uint8)).resize((side, side))
    pen = ImageDraw.Draw(wall)
    for _ in range(int(random.integers(0, 5))):
        x, y, width, height = random.uniform(-0.2, 1, 2).tolist() + random.uniform(0.05, 0.6, 2).tolist()
        pen.rectangle([side * edge for edge in (x, y, x + width, y + height)], fill=_shade(random, 130, 90))
    return wall


def _photograph(random: Random, picture: Image.Image) -> Array:
    """Add uneven light, a tint and noise to a picture."""
    pixels = np.asarray(picture, np.float64)
    coordinates = np.linspace(-1, 1, len(pixels))
    light = 1 + random.normal(0, 0.15) * coordinates[:, None] + random.normal(0, 0.15) * coordinates
    tint = random.normal(1, 0.06, 3) * random.uniform(0.7, 1.15)
    noisy = pixels * light[..., None] * tint + random.normal(0, random.uniform(2, 9), pixels.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def _shade(random: Random, middle: float, spread: float) -> Colour:
    grey = middle + random.uniform(-spread, spread)
    red, green, blue = (int(np.clip(grey + random.normal(0, 18), 0, 255)) for _ in range(3))
    return red, green, blue


@check_ranges
def synthetic(
    train: SplitSize = 3000,
    val: SplitSize = 500,
    test: SplitSize = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(16, whole=True)] = 64,
    seed: NonNegativeInt = 0,
) -> Task:
    """Draw gauges that show a number from 0 to 100. The label distance is the difference of two numbers.

    Gauges differ in place, size, view, angle of the scale, marks, colours, light and background. The angle of the
    needle alone does not give the number. A gauge of 64 pixels takes about three milliseconds to draw. Drawn images are
    kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images. Test and validation images have the same share of queries.
        test: number of test images.
        queries: number of test images, drawn at random, that are queries. 0: each image is a query for all others.
        size: side of an image in pixels.
        seed: seed of the gauges and the queries.
    """
    num_queries = {"train": 0, "val": queries_like(queries, test, val), "test": queries}

    def make(part: str, images: list[Pixels], names: list[str], values: Array) -> Split:
        query_rows = query_split(draw_queries(num_queries[part], names, seed), len(names))
        return Split(images, names, NumberLabels(values.tolist()), *query_rows)

    return drawn_task(draw_gauge, seed, (train, val, test), size, "gauge", make)
