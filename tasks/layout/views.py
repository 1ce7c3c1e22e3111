"""Cameras in box rooms: the surface that every ray hits, and the canonical ids of the surfaces.

A room is a box with corners (0, 0, 0) and (width, height, depth) in metres. x is right, y up, and z away from the
camera. Its six planes are numbered in order: x = 0, x = width, y = 0 (floor), y = height (ceiling), z = 0, z = depth.
The same rays give the label map and paint the picture, so the two always agree.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Canonical ids of surfaces. A view of two walls has a left and a right wall. A single wall is frontal.
FRONTAL, LEFT, RIGHT, FLOOR, CEILING = 1, 2, 3, 4, 5
#: Ids of the walls of a view from left to right, by the number of walls.
_WALLS: dict[int, tuple[int, ...]] = {1: (FRONTAL,), 2: (LEFT, RIGHT), 3: (LEFT, FRONTAL, RIGHT)}
#: Numbers of planes.
FLOOR_PLANE, CEILING_PLANE, WALL_PLANES = 2, 3, (0, 1, 4, 5)
#: Rays along a side of the grid that tests a view, the same for any size of the picture.
_GRID = 32
#: A surface with a smaller share of the picture is a sliver. People would not annotate a sliver.
_SLIVER = 0.05
#: If a surface covers more than this share, the view shows no layout.
_FULL = 0.85


class Camera(NamedTuple):
    """A camera in a room, and the canonical ids of the six planes. 0: the plane is not visible."""

    room: tuple[float, float, float]  # width, height, depth
    eye: tuple[float, float, float]
    turn: Array  # [3,3] from the camera's axes (right, up, forward) to the room's
    zoom: float  # focal length in image widths
    surfaces: tuple[int, ...]


def choose_view(rng: np.random.Generator) -> Camera:
    """Draw a random room and a camera in it that sees two to five surfaces, without slivers."""
    while True:
        width, height, depth, x, y, z, yaw, pitch, roll, zoom, straight, steep, close = rng.random(13).tolist()
        room = (1.3 + 4.5 * width, 2.2 + 1.6 * height**2, 2.4 + 4.6 * depth)
        eye = (room[0] * (0.12 + 0.76 * x), 0.7 + 1.2 * y, room[2] * (0.04 + 0.5 * z))
        # Half of the cameras look nearly straight ahead, some look up or down, some show only a part of the room.
        azimuth = 40 * (yaw - 0.5) if straight < 0.5 else 130 * (yaw - 0.5)
        tilt = 70 * (pitch - 0.5) if steep < 0.4 else 24 * (pitch - 0.6)
        focal = 0.9 + 1.5 * zoom if close < 0.25 else 0.5 * 2 ** (1.1 * zoom)
        turn = _rotation(math.radians(tilt), math.radians(azimuth), math.radians(5 * (roll - 0.5)))
        view = Camera(room, eye, turn, focal, (1,) * 6)
        surfaces = _judge(meet(view, cast(view, _GRID))[0])
        if surfaces is not None:
            return view._replace(surfaces=surfaces)


def surface_map(view: Camera, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the label map `[size, size]` of a view: the canonical id of the surface at each pixel's centre."""
    planes, _ = meet(view, cast(view, size))
    return np.array(view.surfaces, np.uint8)[planes]


def cast(view: Camera, size: int) -> Array:
    """Return rays `[3, size, size]` through the centres of pixels, in the room's axes.

    The forward part of each ray has length 1.
    """
    across = ((np.arange(size, dtype=np.float32) + 0.5) / size - 0.5) / np.float32(view.zoom)
    turn = view.turn.astype(np.float32)[:, :, None, None]
    return np.asarray(turn[:, 0] * across + turn[:, 1] * -across[:, None] + turn[:, 2])


def meet(view: Camera, rays: Array) -> tuple[Array, Array]:
    """Return the number of the plane that each ray hits first, and the distance to it, `[S, S]` each.

    Planes without a surface id are left out.
    """
    nearest = np.full(rays.shape[1:], np.inf, np.float32)
    planes = np.zeros(rays.shape[1:], np.uint8)
    for axis in range(3):
        direction = np.where(np.abs(rays[axis]) < 1e-6, np.float32(1e-6), rays[axis])
        for plane, coordinate in ((2 * axis, 0.0), (2 * axis + 1, view.room[axis])):
            if view.surfaces[plane]:
                length = np.float32(coordinate - view.eye[axis]) / direction
                closer = (length > 0) & (length < nearest)
                np.copyto(nearest, length, where=closer)
                planes[closer] = plane
    return planes, nearest


def _judge(planes: Array) -> tuple[int, ...] | None:
    """Return canonical ids of the six planes, from the planes that a grid of rays hits.

    Return None if the view is not used.
    """
    counts = np.bincount(planes.ravel(), minlength=6)
    if counts.max() > _FULL * planes.size or counts[counts > 0].min() < _SLIVER * planes.size:
        return None
    walls = [plane for plane in WALL_PLANES if counts[plane]]
    if len(walls) not in _WALLS:
        return None
    columns = np.arange(planes.shape[1])
    walls.sort(key=lambda plane: float(((planes == plane).sum(0) * columns).sum() / counts[plane]))
    ids = [0] * 6
    for plane, surface in zip(walls, _WALLS[len(walls)], strict=True):
        ids[plane] = surface
    ids[FLOOR_PLANE] = FLOOR if counts[FLOOR_PLANE] else 0
    ids[CEILING_PLANE] = CEILING if counts[CEILING_PLANE] else 0
    return tuple(ids)


def _rotation(pitch: float, yaw: float, roll: float) -> Array:
    """Return the rotation `[3, 3]`: roll about the line of sight, then pitch, then yaw, in radians.

    Positive pitch is up, positive yaw is right.
    """
    (cp, sp), (cy, sy), (cr, sr) = ((math.cos(a), math.sin(a)) for a in (pitch, yaw, roll))
    roll_, pitch_ = np.array([(cr, -sr, 0), (sr, cr, 0), (0, 0, 1)]), np.array([(1, 0, 0), (0, cp, sp), (0, -sp, cp)])
    return np.asarray(np.array([(cy, 0, sy), (0, 1, 0), (-sy, 0, cy)]) @ pitch_ @ roll_)
