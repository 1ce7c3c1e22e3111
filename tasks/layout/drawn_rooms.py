"""The synthetic data set of layouts: drawn rooms with exact surface maps, the same on every machine.

Every pixel has the colour of the point that its ray hits: textures, windows and pictures lie in the planes of the
surfaces. A lamp lights the surfaces, and furniture stands in front. Furniture changes the picture but not the layout.
There are four rays per pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.random import Generator

from contml._support.validation import NonNegativeInt, Range, SplitSize, check_ranges
from contml.data import Pixels, Split, Task, check_queries

from .._readers.label_maps import make_split
from .._readers.splits import drawn_task
from . import furniture
from .furniture import Box, Colour, choose_colour, choose_wood, mix, recolour
from .views import CEILING_PLANE, FLOOR_PLANE, Array, Camera, cast, choose_view, meet, surface_map

Picture: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

#: Axes of a plane: first the axis perpendicular to the plane, then two axes along the plane, the upright one last.
_AXES = ((0, 2, 1), (0, 2, 1), (1, 0, 2), (1, 0, 2), (2, 0, 1), (2, 0, 1))
#: Brightness of the sides of furniture that look along x, y, z.
_SIDES = (0.78, 1.08, 0.92)


def draw_room(seed: int, index: int, size: int = 64) -> tuple[Picture, Picture]:
    """Draw one room. Return pixels `[size, size, 3]`, 0 to 255, and its surfaces `[size, size]` in ids 1 to 5.

    The ids are 1 frontal wall, 2 left wall, 3 right wall, 4 floor, 5 ceiling. The same (seed, index) is the same room
    at any size. `seed` and `index` must be at least 0, `size` at least 8.
    """
    Range(8).check("size", size)
    rng = np.random.default_rng([seed, index])
    view = choose_view(rng)
    boxes = furniture.furnish(rng, view)
    rays = cast(view, 2 * size)
    planes, lengths = meet(view, rays)
    picture = _paint_surfaces(rng, view, planes, lengths, rays, boxes)
    _paint_boxes(rng, view, picture, rays, lengths, boxes)
    # Sums with strides, since numpy's mean over two axes takes ten times as long.
    rows = picture[:, ::2] + picture[:, 1::2]
    return _expose(rng, (rows[:, :, ::2] + rows[:, :, 1::2]) * np.float32(0.25)), surface_map(view, size)


# Surfaces


def _paint_surfaces(
    rng: Generator, view: Camera, planes: Array, lengths: Array, rays: Array, boxes: list[Box]
) -> Array:
    """Paint walls, floor and ceiling `[3, S, S]`, lit by a lamp."""
    picture = np.zeros((3, planes.size), np.float32)
    x, z, height, strength = rng.random(4).tolist()
    width, top, depth = view.room
    lamp = width * (0.2 + 0.6 * x), top * (0.6 + 0.35 * height), depth * (0.2 + 0.6 * z), 0.35 + 0.75 * strength
    paint, accent, second_colour = choose_colour(rng, 0.45, 0.35), choose_colour(rng, 0.7), choose_colour(rng, 0.5, 0.3)
    wallpaper, skirting, cornice, ambient = rng.random(4).tolist()
    # Every plane has its own random numbers, visible or not, so turning the camera does not change the walls.
    seeds = rng.integers(0, 2**62, 6).tolist()
    for plane in range(6):
        pixels = np.flatnonzero(planes == plane)
        if not len(pixels):
            continue
        plane_rng = np.random.default_rng(seeds[plane])
        _, horizontal, upright = _AXES[plane]
        length = lengths.reshape(-1)[pixels]
        a, b = (rays[axis].reshape(-1)[pixels] * length + np.float32(view.eye[axis]) for axis in (horizontal, upright))
        blur = length * np.float32(1 / (view.zoom * len(planes)))  # width of a ray there, in metres
        light = _light(view, lamp, plane, a, b, (0.45 + 0.3 * ambient) * (0.7 + 0.45 * float(plane_rng.random())))
        if plane == FLOOR_PLANE:
            colours = furniture.floor(plane_rng, view, a, b, blur) * (light * _contact_shadows(boxes, a, b))
        elif plane == CEILING_PLANE:
            colours = furniture.ceiling(plane_rng, a, b, blur) * light
        else:
            ground = accent if plane_rng.random() < 0.15 else paint
            colours = furniture.wall(plane_rng, a, b, blur, ground, second_colour, wallpaper)
            if skirting < 0.5:
                recolour(colours, b < 0.09, second_colour if skirting < 0.2 else (236.0, 234.0, 228.0))
            if cornice < 0.3:
                recolour(colours, b > top - 0.07, (240.0, 240.0, 236.0))
            colours *= light
            _hang(plane_rng, view, colours, a, b, view.room[horizontal])
        picture[:, pixels] = colours
    return picture.reshape(3, *planes.shape)


def _light(view: Camera, lamp: Sequence[float], plane: int, a: Array, b: Array, ambient: float) -> Array:
    """Return the brightness of a plane by Lambert's law, plus ambient light. `lamp` is x, y, z and strength."""
    normal, horizontal, upright = _AXES[plane]
    gap = abs(lamp[normal] - (view.room[normal] if plane % 2 else 0.0))
    squared = (a - lamp[horizontal]) ** 2 + (b - lamp[upright]) ** 2 + (gap * gap + 0.3)
    lit = ambient + lamp[3] * 2.4 * gap / squared
    return np.asarray(1.75 * lit / (lit + 1.05))  # as on film, light saturates


def _contact_shadows(boxes: list[Box], a: Array, b: Array) -> Array:
    """Return the brightness of the floor: lower under and near furniture, 1 elsewhere."""
    light = np.ones_like(a)
    for box in boxes:
        (left, bottom, near), (right, _, far) = box.low, box.high
        if bottom < 0.2:
            beside = np.abs(a - (left + right) / 2) - (right - left) / 2
            distance = np.maximum(beside, np.abs(b - (near + far) / 2) - (far - near) / 2)
            np.minimum(light, np.clip(0.6 + 1.6 * distance, 0.6, 1), out=light)
    return light


def _hang(rng: Generator, view: Camera, colours: Array, a: Array, b: Array, length: float) -> None:
    """Paint windows, a door and pictures on a wall, one beside the other."""
    top = view.room[1]
    slots = max(1, int(length / 1.7))
    for slot in range(slots):
        kind, shift, wide, tall, level, tone = rng.random(6).tolist()
        half = min(0.25 + 0.5 * wide, 0.45 * length / slots)
        middle = length * (slot + 0.5) / slots + (shift - 0.5) * (length / slots - 2 * half)
        if kind < 0.25:  # a window
            low, high = 0.8 + 0.3 * level, min(1.7 + 0.6 * tall, top - 0.15)
            sky = (200.0 + 55 * tone, 220.0 + 35 * tone, 250.0)
            inside = _frame(colours, a, b, (middle, half, low, high), (238.0, 238.0, 234.0), 0.06)
            u, v = a[inside] - middle, (b[inside] - low) / (high - low)
            glass = mix((150.0 + 90 * shift, 180.0, 140.0), sky, np.clip(4 * v - 0.8 * tall - 0.4, 0, 1))
            recolour(glass, (np.abs(u) < 0.025) | (np.abs(v - 0.6) < 0.02), (225.0, 225.0, 222.0))
            colours[:, inside] = glass
        elif kind < 0.36:  # a door
            colour = choose_wood(rng) if tone < 0.5 else choose_colour(rng, 0.2, 0.6)
            inside = _frame(colours, a, b, (middle, min(half, 0.45), -1.0, 2.0), choose_colour(rng, 0.1, 0.6), 0.07)
            recolour(colours, inside, colour)
        elif kind < 0.6:  # a picture, of two colours
            half, high = 0.7 * half, min(1.5 + 0.5 * level + 0.35 * tall, top - 0.1)
            low = high - 0.25 - 0.5 * tall
            frame = choose_wood(rng) if tone < 0.5 else (30.0, 30.0, 32.0)
            inside = _frame(colours, a, b, (middle, half, low, high), frame, 0.04)
            horizon = (b[inside] < low + (0.3 + 0.4 * shift) * (high - low)).astype(np.float32)
            colours[:, inside] = mix(choose_colour(rng, 0.9), choose_colour(rng, 0.9), horizon)


def _frame(colours: Array, a: Array, b: Array, box: Sequence[float], colour: Colour, width: float) -> Array:
    """Paint a frame on a wall at (middle, half, low, high). Return the positions `[k]` of the points inside it."""
    middle, half, low, high = box
    outside = np.maximum(np.abs(a - middle) - half, np.abs(b - (low + high) / 2) - (high - low) / 2)
    recolour(colours, outside < 0, colour)
    return np.flatnonzero(outside < -width)


# Furniture


def _paint_boxes(rng: Generator, view: Camera, picture: Array, rays: Array, lengths: Array, boxes: list[Box]) -> None:
    """Paint furniture over the surfaces, nearest in front. Only pixels that a box can cover are tested."""
    depth = lengths.copy()
    gloom = 0.7 + 0.35 * float(rng.random())
    edges = (furniture.picture_boxes(view, boxes) * picture.shape[1]).tolist() if boxes else []
    for box, (left, top, right, bottom) in zip(boxes, edges, strict=True):
        region = slice(int(top), math.ceil(bottom)), slice(int(left), math.ceil(right))
        if region[0].start >= region[0].stop or region[1].start >= region[1].stop:
            continue
        near = np.full(depth[region].shape, -np.inf, np.float32)
        far = np.full(depth[region].shape, np.inf, np.float32)
        face = np.zeros(depth[region].shape, np.uint8)
        for axis in range(3):
            ray = rays[axis][region]
            direction = np.where(np.abs(ray) < 1e-6, np.float32(1e-6), ray)
            enter = np.float32(box.low[axis] - view.eye[axis]) / direction
            leave = np.float32(box.high[axis] - view.eye[axis]) / direction
            entry = np.minimum(enter, leave)
            face[entry > near] = axis
            np.maximum(near, entry, out=near)
            np.minimum(far, np.maximum(enter, leave), out=far)
        hit = (near < far) & (near > 0) & (near < depth[region])
        shade = np.array(_SIDES, np.float32) * gloom if not box.glow else np.ones(3, np.float32)
        colours = np.outer(np.array(box.colour, np.float32), shade)  # [3,axis]
        picture[:, region[0], region[1]][:, hit] = colours[:, face[hit]]
        depth[region][hit] = near[hit]


# The picture


def _expose(rng: Generator, picture: Array) -> Picture:
    """Apply contrast, brightness, colour cast and sensor noise to a picture `[3, S, S]`. Return pixels `[S, S, 3]`."""
    contrast, brightness, grain, *cast_ = rng.random(6).tolist()
    gain = np.array([(0.75 + 0.35 * contrast) * (0.9 + 0.2 * c) for c in cast_], np.float32)[:, None, None]
    lit = picture * gain + (110 * (1 - gain) + np.float32(50 * (brightness - 0.5)))
    noise = rng.integers(-128, 128, picture.shape, np.int8)
    lit += noise * np.float32((1 + 4 * grain**2) / 74)  # 74: the standard deviation of the integers
    return np.ascontiguousarray(np.clip(lit, 0, 255, out=lit).astype(np.uint8).transpose(1, 2, 0))


@check_ranges
def synthetic(
    train: SplitSize = 3000,
    val: SplitSize = 500,
    test: SplitSize = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(8, whole=True)] = 64,
    seed: NonNegativeInt = 0,
) -> Task:
    """Draw furnished rooms from a seed, seen by cameras of varied position, direction and focal length.

    The label map gives the surface that each pixel would show if the room were empty: 1 frontal wall, 2 left wall, 3
    right wall, 4 floor, 5 ceiling. A view of two walls has a left and a right wall. Drawing takes about two
    milliseconds per image of 64 pixels. Drawn images are kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images. Each is a query for all others.
        test: number of test images.
        queries: number of test images that are queries; the others are the gallery. 0: every test image is a query.
        size: side of an image and of its label map in pixels.
        seed: seed of the data set.
    """
    check_queries(queries, test)

    def make(part: str, images: list[Pixels], names: list[str], surfaces: Array) -> Split:
        return make_split(images, names, surfaces, queries if part == "test" else 0, {})

    return drawn_task(draw_room, seed, (train, val, test), size, "room", make)
