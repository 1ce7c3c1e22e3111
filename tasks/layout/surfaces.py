"""Surfaces of the LSUN room-layout types: from corner points to label maps in canonical ids.

A layout type defines which surfaces are visible, and in which order the corner points are listed (RoomLayoutTypes.m of
the challenge's toolkit). Each surface but one lies on one side of a line through some of the points, which is extended
beyond the picture at both ends; the last surface is all other pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .views import CEILING, FLOOR, FRONTAL, LEFT, RIGHT, Array

#: A component smaller than this share of the picture is a speck that a line cut off.
_SPECK = 0.002
#: How far lines are extended, in image sides. For each surface, a point far outside the picture on its side.
_FAR = 1000.0
_SIDES = {LEFT: (-_FAR, 0.5), RIGHT: (_FAR, 0.5), FLOOR: (0.5, _FAR), CEILING: (0.5, -_FAR)}


class LayoutType(NamedTuple):
    """How many corner points a type has, the surface of the remaining pixels, and the lines of the others (1-based)."""

    points: int
    rest: int
    lines: dict[int, tuple[int, ...]]
    #: Points that are swapped in some of the published annotations.
    swaps: tuple[tuple[int, int], ...] = ()


#: Every layout type by its number.
TYPES = {
    0: LayoutType(8, FRONTAL, {LEFT: (2, 1, 3, 4), RIGHT: (8, 7, 5, 6), FLOOR: (4, 3, 5, 6), CEILING: (2, 1, 7, 8)}),
    1: LayoutType(6, FRONTAL, {LEFT: (2, 1, 3), RIGHT: (5, 4, 6), FLOOR: (3, 1, 4, 6)}, ((2, 3), (5, 6))),
    2: LayoutType(6, FRONTAL, {LEFT: (2, 1, 3), RIGHT: (5, 4, 6), CEILING: (2, 1, 4, 5)}, ((2, 3), (5, 6))),
    3: LayoutType(4, RIGHT, {LEFT: (2, 1, 3), CEILING: (2, 1, 4)}),
    4: LayoutType(4, RIGHT, {LEFT: (3, 1, 2), FLOOR: (2, 1, 4)}),
    5: LayoutType(6, RIGHT, {LEFT: (2, 1, 4, 5), FLOOR: (5, 4, 6), CEILING: (2, 1, 3)}),
    6: LayoutType(4, FRONTAL, {FLOOR: (3, 4), CEILING: (1, 2)}),
    7: LayoutType(4, FRONTAL, {LEFT: (1, 2), RIGHT: (3, 4)}),
    8: LayoutType(2, FRONTAL, {CEILING: (1, 2)}),
    9: LayoutType(2, FRONTAL, {FLOOR: (1, 2)}),
    10: LayoutType(2, RIGHT, {LEFT: (1, 2)}),
}  # fmt: skip


def draw_surfaces(kind: int, points: Array, height: int, width: int) -> Array:
    """The label map `[height, width]` of a layout in canonical ids, uint8.

    kind: a layout type of `TYPES`. points `[n, 2]`: x, y in the picture, 0 to 1, in the order of the type.
    """
    from matplotlib.path import Path as Outline

    layout = TYPES[kind]
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    pixels = np.stack((x.ravel(), y.ravel()), 1)
    labels = np.full(height * width, layout.rest, np.uint8)
    for surface, line in layout.lines.items():
        labels[Outline(_outline(points[np.array(line) - 1], surface)).contains_points(pixels)] = surface
    return labels.reshape(height, width)


def name_components(kind: int, points: Array, components: Array) -> tuple[Array, float]:
    """Canonical ids `[H, W]` for a map of numbered components, 0 = unknown, and the share that agrees with the points.

    The published maps number the regions between the lines in any order. Each gets the surface that
    covers most of it in the map drawn from the points. For a type with swaps, the order that agrees best is taken.
    """
    shape, known_pixels = components.shape, components > 0
    ids, id_indices, areas = np.unique(components, return_inverse=True, return_counts=True)
    id_indices = id_indices.reshape(shape)
    num_components = int(((ids > 0) & (areas > _SPECK * components.size)).sum())
    best = np.zeros(shape, np.uint8), -1.0
    for order in _orders(TYPES[kind]):
        expected = draw_surfaces(kind, points[order], *shape)
        overlap = np.zeros((len(ids), CEILING + 1), np.int64)
        np.add.at(overlap, (id_indices, expected), 1)
        surfaces = np.where(known_pixels, overlap.argmax(1).astype(np.uint8)[id_indices], 0)
        agreement = float((surfaces == expected)[known_pixels].mean()) if known_pixels.any() else 0.0
        # Components and surfaces must match one to one; if they do not, the score is lower.
        agreement *= len(np.unique(surfaces[known_pixels])) / max(num_components, len(np.unique(expected)))
        if agreement > best[1]:
            best = surfaces, agreement
    return best


def _orders(layout: LayoutType) -> list[list[int]]:
    """The possible orders of the points of a type, 0-based: as listed, then with some of its swaps."""
    orders = [[*range(layout.points)]]
    for a, b in reversed(layout.swaps):
        swap = {a - 1: b - 1, b - 1: a - 1}
        orders += [[swap.get(point, point) for point in order] for order in orders]
    return orders


def _outline(line: Array, surface: int) -> Array:
    """A closed outline `[n, 2]` of a surface's side of a line, which is extended at both ends."""
    start, end = (_beyond(line[1], line[0]), _beyond(line[-2], line[-1]))
    return np.vstack((start, line[1:-1], end, _SIDES[surface]))


def _beyond(inner: Array, end: Array) -> Array:
    """A far point on the line from an inner point through an end; the end itself if both are the same point."""
    direction = end - inner
    length = float(np.hypot(*direction))
    return np.asarray(end + direction * (_FAR / length) if length else end)
