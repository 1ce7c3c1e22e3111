"""Colours, materials and furniture of rooms. Pieces of furniture are boxes, which hide some borders of surfaces.

`a` is the position along the plane. On a wall, `b` points up. `blur` is the width of the ray at each point, in metres.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator

from .views import WALL_PLANES, Array, Camera

Colour: TypeAlias = "tuple[float, float, float]"  # r, g, b in 0..255


def choose_colour(rng: Generator, vivid: float, dark: float = 0.15, light: float = 0.95) -> Colour:
    """Draw any colour between two brightnesses. A small `vivid` keeps the colour near grey."""
    hue, saturation, value = rng.random(3).tolist()
    r, g, b = colorsys.hsv_to_rgb(hue, vivid * saturation**1.2, dark + (light - dark) * value)
    return 255 * r, 255 * g, 255 * b


def choose_wood(rng: Generator) -> Colour:
    """Draw a brown between pale ash and wenge."""
    tone, warm, value = rng.random(3).tolist()
    r, g, b = colorsys.hsv_to_rgb(0.055 + 0.05 * tone, 0.25 + 0.4 * warm, 0.25 + 0.6 * value)
    return 255 * r, 255 * g, 255 * b


def mix(a: Colour, b: Colour, share: Array) -> Array:
    """Mix two colours into colours `[3, n]`: `a` at share 0, `b` at share 1."""
    start, change = np.array(a, np.float32), np.subtract(b, a).astype(np.float32)
    return np.asarray(start[:, None] + change[:, None] * share)


def recolour(colours: Array, where: Array, colour: Colour) -> None:
    """Set some of the colours `[3, n]` to one colour."""
    colours[:, where] = np.array(colour, np.float32)[:, None]


def _fade(share: Array, mean: float, blur: Array, period: float) -> Array:
    """Fade a pattern to its mean as a ray becomes wider than half of a period."""
    return np.asarray(mean + (share - mean) * np.clip(1.7 - 2.4 * blur / period, 0, 1))


def _wave(x: Array, period: float, duty: float) -> Array:
    """Return 1 in the first part `duty` of each period, else 0."""
    turns = x / np.float32(period)
    return np.asarray((turns - np.floor(turns) < duty).astype(np.float32))


def _cells(rng: Generator, i: Array, j: Array) -> Array:
    """Draw a random number in 0..1 for each cell (i, j) of a grid."""
    return np.asarray(rng.random(256, np.float32)[(i.astype(np.int32) * 37 + j.astype(np.int32) * 101) & 255])


def wall(rng: Generator, a: Array, b: Array, blur: Array, ground: Colour, second: Colour, wallpaper: float) -> Array:
    """Paint a wall with paint or wallpaper. `wallpaper` chooses the kind, for all walls of a room.

    Sizes and contrast differ by wall.
    """
    fine, coarse, faint = rng.random(3).tolist()
    if wallpaper < 0.4:  # plain paint
        share = np.zeros_like(a)
    elif wallpaper < 0.55:  # stripes
        period = 0.15 + 0.5 * coarse
        share = _fade(_wave(a, period, 0.5), 0.5, blur, period) * (0.15 + 0.5 * faint)
    elif wallpaper < 0.7:  # panelling up to the waist
        share = (b < 0.5 + 0.8 * coarse).astype(np.float32) * (0.4 + 0.6 * faint)
    elif wallpaper < 0.82:  # bricks
        tall, long = 0.12 + 0.1 * fine, 0.3 + 0.2 * coarse
        row = np.floor(b / tall)
        joints = np.maximum(_wave(b, tall, 0.14), _wave(a + (row % 2) * (long / 2), long, 0.06))
        brick = _cells(rng, row, np.floor((a + (row % 2) * (long / 2)) / long))
        share = _fade(np.maximum(joints * 0.8, brick * 0.4), 0.35, blur, tall)
    elif wallpaper < 0.92:  # tiles
        side = 0.15 + 0.35 * coarse
        share = _fade(np.maximum(_wave(a, side, 0.07), _wave(b, side, 0.07)), 0.13, blur, side) * (0.3 + 0.5 * faint)
    else:  # a dotted paper
        side = 0.2 + 0.3 * coarse
        dots = _wave(a + side / 4, side, 0.4) * _wave(b + (np.floor(a / side) % 2) * (side / 2), side, 0.4)
        share = _fade(dots, 0.16, blur, side) * (0.3 + 0.6 * faint)
    return mix(ground, second, share)


def floor(rng: Generator, view: Camera, a: Array, b: Array, blur: Array) -> Array:
    """Paint boards, tiles or a carpet, and perhaps a rug on the floor."""
    kind, turned, coarse, faint, rug, *rug_layout = rng.random(10).tolist()
    if turned < 0.5:
        a, b = b, a
    if kind < 0.5:  # boards
        wide, long = 0.1 + 0.18 * coarse, 1.2 + 1.2 * faint
        row = np.floor(a / wide)
        shifted = b + row * (0.37 * long)
        tint = _cells(rng, row, np.floor(shifted / long)) * 0.5
        share = np.maximum(tint, 0.9 * np.maximum(_wave(a, wide, 0.07), _wave(shifted, long, 0.01)))
        colour = choose_wood(rng)
        dark = (0.55 * colour[0], 0.5 * colour[1], 0.45 * colour[2])
        colours = mix(colour, dark, _fade(share, 0.3, blur, wide))
    elif kind < 0.75:  # tiles, some as a chessboard
        side = 0.25 + 0.4 * coarse
        joints = np.maximum(_wave(a, side, 0.06), _wave(b, side, 0.06))
        board = (np.floor(a / side) + np.floor(b / side)) % 2 * (1.0 if faint < 0.4 else 0.0)
        share = _fade(np.maximum(0.5 * joints, board), 0.5 if faint < 0.4 else 0.06, blur, side)
        colours = mix(choose_colour(rng, 0.25, 0.4), choose_colour(rng, 0.35, 0.1, 0.7), share)
    else:  # carpet
        mottle = _cells(rng, np.floor(a * 9), np.floor(b * 9))
        colour = choose_colour(rng, 0.6)
        colours = mix(colour, (0.8 * colour[0], 0.8 * colour[1], 0.8 * colour[2]), _fade(mottle, 0.5, blur, 0.11))
    if rug < 0.35:
        u, v, half_u, half_v, _ = rug_layout
        along, across = (2, 0) if turned < 0.5 else (0, 2)
        inside = np.abs(a - view.room[along] * (0.3 + 0.4 * u)) / (0.5 + 0.7 * half_u)
        inside = np.maximum(inside, np.abs(b - view.room[across] * (0.3 + 0.4 * v)) / (0.5 + 0.7 * half_v))
        recolour(colours, inside < 1, choose_colour(rng, 0.8))
        recolour(colours, inside < 0.8, choose_colour(rng, 0.8))
    return colours


def ceiling(rng: Generator, a: Array, b: Array, blur: Array) -> Array:
    """Paint a plain white ceiling, beams, or panels."""
    kind, coarse, turned = rng.random(3).tolist()
    white = choose_colour(rng, 0.08, 0.8, 1.0)
    if kind < 0.7:
        return mix(white, white, np.zeros_like(a))
    if kind < 0.88:  # beams
        period = 0.5 + 0.7 * coarse
        return mix(white, choose_wood(rng), _fade(_wave(a if turned < 0.5 else b, period, 0.22), 0.22, blur, period))
    side = 0.6  # panels
    joints = np.maximum(_wave(a, side, 0.04), _wave(b, side, 0.04))
    return mix(white, (150.0, 150.0, 150.0), _fade(joints, 0.08, blur, side))


#: The largest share of the picture for one piece, and the largest sum over all pieces, which may overlap.
_LARGEST, _COVERED = 0.5, 1.1
#: The eight corners of a box: low or high in each direction.
_CORNERS = np.array([(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)])


class Box(NamedTuple):
    """An axis-parallel box in a room, in one colour."""

    low: Sequence[float]  # x, y, z
    high: Sequence[float]
    colour: Colour
    glow: bool = False  # a lamp: not shaded


class FurniturePart(NamedTuple):
    """A box of a piece of furniture, with its extents along the wall, away from it and up, and its colour number."""

    along: tuple[float, float]
    out: tuple[float, float]
    up: tuple[float, float]
    colour: int


def furnish(rng: np.random.Generator, view: Camera) -> list[Box]:
    """Draw the furniture of a room as boxes: up to five pieces along the visible walls, or free on the floor."""
    boxes: list[Box] = []
    pieces: list[Box] = []  # the bounding box of each
    covered = 0.0
    for _ in range(int(6 * rng.random())):
        new_boxes = _piece(rng, view)
        if new_boxes:
            low, high = np.min([part.low for part in new_boxes], 0), np.max([part.high for part in new_boxes], 0)
            piece = Box(low.tolist(), high.tolist(), new_boxes[0].colour)
            left, top, right, bottom = picture_boxes(view, [piece])[0].tolist()
            share = max(right - left, 0) * max(bottom - top, 0)  # of the picture
            overlaps = any(_overlap(piece, other) for other in pieces)
            if share < _LARGEST and covered + share < _COVERED and not overlaps:
                boxes += new_boxes
                pieces.append(piece)
                covered += share
    if rng.random() < 0.3:
        boxes += _pendant(rng, view)
    return boxes


def picture_boxes(view: Camera, boxes: list[Box]) -> Array:
    """Return bounding boxes `[N, 4]` in the picture: left, top, right, bottom of each box, in image widths.

    The bounding box is the whole picture if a box reaches behind the camera. A box is not visible if left >= right or
    top >= bottom.
    """
    corners = np.array([(box.low, box.high) for box in boxes])[:, _CORNERS, (0, 1, 2)]  # [N,8,3]
    x, y, z = np.moveaxis((corners - view.eye) @ view.turn, 2, 0)
    ahead = np.maximum(z, 0.05)
    across, down = 0.5 + view.zoom * x / ahead, 0.5 - view.zoom * y / ahead
    bounds = np.stack((across.min(1), down.min(1), across.max(1), down.max(1)), 1)
    bounds[z.min(1) <= 0.05] = (0, 0, 1, 1)
    bounds[z.max(1) <= 0.05] = 0
    return np.asarray(np.clip(bounds, 0, 1))


def _overlap(a: Box, b: Box) -> bool:
    """Return True if two pieces overlap on the floor."""
    return all(a.low[axis] < b.high[axis] and b.low[axis] < a.high[axis] for axis in (0, 2))


def _piece(rng: np.random.Generator, view: Camera) -> list[Box]:
    """Draw one piece of furniture at a wall or at a distance from it. Return no boxes if the piece does not fit."""
    kind, wall, along, out, free = rng.random(5).tolist()
    length, parts = _KINDS[int(kind * len(_KINDS))](rng.random(4).tolist())
    colours = [choose_colour(rng, 0.75), choose_colour(rng, 0.5), choose_wood(rng)]
    walls = [plane for plane in WALL_PLANES if view.surfaces[plane]]
    plane = walls[int(len(walls) * wall)]
    across = 2 if plane < 2 else 0
    inward, depth = 2 - across, view.room[2 - across]
    space_along, space_out = view.room[across] - length, depth - max(part.out[1] for part in parts)
    if space_along < 0 or space_out < 0:
        return []
    start, gap = space_along * along, space_out * out if free < 0.25 else 0.0
    boxes = []
    for part in parts:
        low, high = [0.0, part.up[0], 0.0], [0.0, min(part.up[1], view.room[1] - 0.02), 0.0]
        low[across], high[across] = start + part.along[0], start + part.along[1]
        near, far = gap + part.out[0], gap + part.out[1]
        low[inward], high[inward] = (near, far) if plane in (0, 4) else (depth - far, depth - near)
        boxes.append(Box(low, high, colours[part.colour]))
    return boxes


def _pendant(rng: np.random.Generator, view: Camera) -> list[Box]:
    """Draw a lamp under the ceiling."""
    x, z, drop, size = rng.random(4).tolist()
    width, height, depth = view.room
    x, z, half = width * (0.3 + 0.4 * x), depth * (0.4 + 0.4 * z), 0.08 + 0.12 * size
    bottom = height - 0.15 - 0.5 * drop
    cord = Box((x - 0.015, bottom, z - 0.015), (x + 0.015, height, z + 0.015), (40.0, 40.0, 40.0))
    return [cord, Box((x - half, bottom - 0.14, z - half), (x + half, bottom, z + half), (255.0, 244.0, 214.0), True)]


def _sofa(r: list[float]) -> tuple[float, list[FurniturePart]]:
    length, arm = 0.9 + 1.5 * r[0], 0.12 + 0.12 * r[1]
    back = 0.7 + 0.25 * r[2]
    return length, [
        FurniturePart((0, length), (0.05, 0.9), (0.06, 0.42), 0),
        FurniturePart((0, length), (0.05, 0.27), (0.4, back), 0),
        FurniturePart((0, arm), (0.05, 0.9), (0.06, 0.62), 0),
        FurniturePart((length - arm, length), (0.05, 0.9), (0.06, 0.62), 0),
        FurniturePart((arm, length / 2), (0.3, 0.85), (0.42, 0.5), 0 if r[3] < 0.6 else 1),
    ]


def _bed(r: list[float]) -> tuple[float, list[FurniturePart]]:
    length, level = 0.9 + 0.9 * r[0], 0.4 + 0.15 * r[1]
    return length, [
        FurniturePart((0, length), (0.02, 0.1), (0, 0.7 + 0.6 * r[2]), 2),
        FurniturePart((0, length), (0.1, 2.1), (0.08, level), 1),
        FurniturePart((0.08, length - 0.08), (0.15, 0.5), (level, level + 0.12), 1),
        FurniturePart((0, length), (0.6 + 0.5 * r[3], 2.12), (0.15, level + 0.04), 0),
    ]


def _wardrobe(r: list[float]) -> tuple[float, list[FurniturePart]]:
    length, top, deep = 0.7 + 1.4 * r[0], 1.7 + 0.9 * r[1], 0.4 + 0.25 * r[2]
    wood, half = 2 if r[3] < 0.6 else 1, length / 2
    return length, [
        FurniturePart((0, length), (0.0, deep), (0, top), wood),
        FurniturePart((0.04, half - 0.015), (deep, deep + 0.02), (0.1, top - 0.05), wood),
        FurniturePart((half + 0.015, length - 0.04), (deep, deep + 0.02), (0.1, top - 0.05), wood),
    ]


def _sideboard(r: list[float]) -> tuple[float, list[FurniturePart]]:
    length, top = 0.8 + 1.2 * r[0], 0.45 + 0.5 * r[1]
    screen, middle = min(0.3 + 0.3 * r[2], 0.35 * length), length * (0.35 + 0.3 * r[3])
    return length, [
        FurniturePart((0, length), (0.02, 0.45), (0.05, top), 2),
        FurniturePart((middle - screen, middle + screen), (0.15, 0.2), (top + 0.05, top + 0.05 + 1.15 * screen), 1),
    ]


def _table(r: list[float]) -> tuple[float, list[FurniturePart]]:
    length, deep, top = 0.8 + 1.0 * r[0], 0.6 + 0.4 * r[1], 0.42 if r[2] < 0.3 else 0.75
    colour = 2 if r[3] < 0.7 else 1
    feet = [(a, d) for a in (0.03, length - 0.09) for d in (0.02, deep - 0.08)]
    return length, [
        FurniturePart((0, length), (0.1, 0.1 + deep), (top - 0.05, top), colour),
        *(FurniturePart((a, a + 0.06), (0.1 + d, 0.16 + d), (0, top - 0.05), colour) for a, d in feet),
    ]


def _shelf(r: list[float]) -> tuple[float, list[FurniturePart]]:
    length, top, boards = 0.6 + 0.9 * r[0], 1.1 + 1.1 * r[1], 3 + int(2 * r[2])
    levels = [top * level / boards for level in range(boards)]
    return length, [
        FurniturePart((0, length), (0, 0.04), (0, top), 2),
        FurniturePart((0, 0.04), (0.04, 0.32), (0, top), 2),
        FurniturePart((length - 0.04, length), (0.04, 0.32), (0, top), 2),
        *(FurniturePart((0.04, length - 0.04), (0.04, 0.32), (level + 0.1, level + 0.14), 2) for level in levels),
        FurniturePart((0.08, length * (0.3 + 0.6 * r[3])), (0.06, 0.25), (levels[1] + 0.14, levels[1] + 0.36), 0),
        FurniturePart((length * 0.4, length - 0.08), (0.06, 0.25), (levels[2] + 0.14, levels[2] + 0.34), 1),
    ]


_KINDS = (_sofa, _bed, _wardrobe, _sideboard, _table, _shelf, _sofa, _table)
