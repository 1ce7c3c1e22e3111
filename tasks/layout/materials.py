"""Colours, and the materials of walls, floors and ceilings: colours `[3, n]` of points (a, b) on a plane, in metres.

`a` is along the plane, `b` is up on a wall; `blur` is the width of the ray at each point, in metres.
"""

from __future__ import annotations

import colorsys
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

from .views import Array, Camera

Colour: TypeAlias = "tuple[float, float, float]"  # r, g, b in 0..255


def choose_colour(rng: Generator, vivid: float, dark: float = 0.15, light: float = 0.95) -> Colour:
    """Any colour between two brightnesses; a small `vivid` keeps it near grey."""
    hue, saturation, value = rng.random(3).tolist()
    r, g, b = colorsys.hsv_to_rgb(hue, vivid * saturation**1.2, dark + (light - dark) * value)
    return 255 * r, 255 * g, 255 * b


def choose_wood(rng: Generator) -> Colour:
    """A brown between pale ash and wenge."""
    tone, warm, value = rng.random(3).tolist()
    r, g, b = colorsys.hsv_to_rgb(0.055 + 0.05 * tone, 0.25 + 0.4 * warm, 0.25 + 0.6 * value)
    return 255 * r, 255 * g, 255 * b


def mix(a: Colour, b: Colour, share: Array) -> Array:
    """Colours `[3, n]`: `a` at share 0, `b` at share 1."""
    start, change = np.array(a, np.float32), np.subtract(b, a).astype(np.float32)
    return np.asarray(start[:, None] + change[:, None] * share)


def recolour(colours: Array, where: Array, colour: Colour) -> None:
    """Set some of the colours `[3, n]` to one colour."""
    colours[:, where] = np.array(colour, np.float32)[:, None]


def _fade(share: Array, mean: float, blur: Array, period: float) -> Array:
    """A pattern that fades to its mean as a ray becomes wider than half of a period."""
    strength = np.clip(1.7 - 2.4 * blur / period, 0, 1)
    return np.asarray(mean + (share - mean) * strength)


def _wave(x: Array, period: float, duty: float) -> Array:
    """1 in the first part `duty` of each period, else 0."""
    turns = x / np.float32(period)
    return np.asarray((turns - np.floor(turns) < duty).astype(np.float32))


def _cells(rng: Generator, i: Array, j: Array) -> Array:
    """A random number in 0..1 for each cell (i, j) of a grid."""
    table = rng.random(256, np.float32)
    return np.asarray(table[(i.astype(np.int32) * 37 + j.astype(np.int32) * 101) & 255])


def wall(rng: Generator, a: Array, b: Array, blur: Array, ground: Colour, second: Colour, wallpaper: float) -> Array:
    """Paint or wallpaper: `wallpaper` chooses the kind, for all walls; sizes and contrast differ by wall."""
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
    """Boards, tiles or a carpet, and perhaps a rug on it."""
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
        inside = np.maximum(
            np.abs(a - view.room[2 if turned < 0.5 else 0] * (0.3 + 0.4 * u)) / (0.5 + 0.7 * half_u),
            np.abs(b - view.room[0 if turned < 0.5 else 2] * (0.3 + 0.4 * v)) / (0.5 + 0.7 * half_v),
        )
        recolour(colours, inside < 1, choose_colour(rng, 0.8))
        recolour(colours, inside < 0.8, choose_colour(rng, 0.8))
    return colours


def ceiling(rng: Generator, a: Array, b: Array, blur: Array) -> Array:
    """A plain white ceiling, beams, or panels."""
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
