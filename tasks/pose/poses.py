"""Random poses for the synthetic data set: a body posed in three dimensions and seen by a camera.

Lengths are in body heights before the projection, and in image widths after it. A projected point is a complex number x
+ iy in plain Python, as tiny arrays would take most of the time.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]

#: Key poses in degrees. Trunk: lean forward, lean to the left, twist, nod, roll in the image plane. Right arm, left
#: arm: forward, sideways, elbow forward, elbow sideways. Right leg, left leg: forward, sideways, knee, shin sideways.
_KEYS = {
    "stand": ((2, 0, 0, 0, 0), (0, 8, 12, 0), (0, 8, 12, 0), (2, 4, 3, 0), (0, 4, 3, 0)),
    "akimbo": ((0, 3, 0, 0, 0), (-10, 45, 15, -85), (-10, 45, 15, -85), (0, 14, 2, -2), (0, 14, 2, -2)),
    "stride": ((6, 0, 8, 0, 0), (-32, 8, 20, 0), (28, 8, 30, 0), (32, 2, 8, 0), (-24, 2, 18, 0)),
    "pass": ((4, 0, 0, 0, 0), (4, 8, 20, 0), (-4, 8, 20, 0), (4, 3, 4, 0), (18, 3, 52, 0)),
    "sprint": ((18, 0, 12, -8, 0), (-55, 12, 85, 0), (45, 12, 85, -10), (75, 2, 80, 0), (-28, 2, 35, 0)),
    "recover": ((14, 0, -6, -6, 0), (30, 10, 85, 0), (-30, 12, 80, 0), (8, 3, 18, 0), (-12, 3, 105, 0)),
    "squat": ((42, 0, 0, -20, 0), (85, 8, 10, 0), (85, 8, 10, 0), (100, 16, 118, -6), (100, 16, 118, -6)),
    "sit": ((4, 0, 0, 0, 0), (30, 10, 45, 0), (30, 10, 45, 0), (86, 8, 86, 0), (86, 8, 86, 0)),
    "lounge": ((-18, 0, 0, 5, 0), (-15, 25, 10, 0), (20, 14, 60, -10), (72, 8, 38, 0), (78, 8, 62, 0)),
    "reach": ((-4, 0, 0, 8, 0), (168, 12, 8, 0), (168, 12, 8, 0), (3, 8, 3, 0), (-3, 8, 3, 0)),
    "cross": ((0, 0, 0, 0, 0), (0, 92, 6, 0), (0, 92, 6, 0), (2, 16, 3, 0), (0, 16, 3, 0)),
    "bend": ((82, 0, 0, -15, 0), (85, 6, 8, 0), (85, 6, 8, 0), (-4, 7, 8, 0), (-4, 7, 8, 0)),
    "lunge": ((12, 0, 10, 0, 0), (-25, 20, 40, 0), (45, 20, 40, 0), (82, 5, 80, 0), (-38, 5, 22, 0)),
    "sideways": ((18, -18, 0, 0, 0), (25, 60, 30, 0), (30, 50, 30, -30), (35, 50, 62, -30), (8, 48, 6, 0)),
    "star": ((0, 0, 0, 4, 0), (0, 132, 5, 5), (0, 132, 5, 5), (0, 36, 8, 0), (0, 36, 8, 0)),
    "tuck": ((24, 0, 0, 0, 0), (110, 25, 25, 0), (110, 25, 25, 0), (92, 12, 112, 0), (76, 12, 112, 0)),
    "kick": ((-16, 0, -12, 6, 0), (-35, 45, 20, 0), (45, 60, 20, 0), (92, 4, 12, 0), (-8, 4, 14, 0)),
    "sidekick": ((0, 34, 0, 0, 0), (20, 55, 70, 0), (40, 20, 80, 0), (10, 84, 14, 0), (0, 6, 10, 0)),
    "throw": ((6, -10, -25, 0, 0), (-12, 105, 30, 60), (70, 30, 15, 0), (-22, 14, 22, 0), (40, 14, 16, 0)),
    "serve": ((-8, 8, -15, 14, 0), (-10, 110, 20, 75), (162, 10, 4, 0), (-6, 10, 20, 0), (16, 10, 22, 0)),
    "swing": ((22, 0, 35, 0, 0), (60, -24, 15, 0), (62, 2, 15, -15), (14, 16, 24, -6), (14, 16, 24, -6)),
    "guard": ((10, 0, 15, 0, 0), (30, 22, 115, -25), (45, 16, 95, -20), (-16, 12, 22, 0), (26, 12, 24, 0)),
    "kneel": ((6, 0, 0, 0, 0), (25, 14, 50, 0), (35, 14, 50, 0), (92, 8, 94, 0), (0, 8, 92, 0)),
    "climb": ((10, 6, 0, 16, 0), (158, 16, 16, 0), (95, 30, 70, 0), (84, 22, 84, 0), (6, 8, 10, 0)),
    "handstand": ((-6, 0, 0, 15, 180), (172, 8, 4, 0), (172, 8, 4, 0), (6, 5, 6, 0), (-2, 5, 6, 0)),
    "splitstand": ((-8, 0, 0, 12, 180), (170, 12, 4, 0), (170, 12, 4, 0), (62, 8, 12, 0), (-38, 8, 26, 0)),
    "cartwheel": ((0, 0, 0, 6, 105), (0, 150, 4, 0), (0, 150, 4, 0), (0, 46, 4, 0), (0, 46, 4, 0)),
    "pike": ((65, 0, 0, 0, 120), (110, 10, 6, 0), (110, 10, 6, 0), (62, 5, 4, 0), (62, 5, 4, 0)),
}
#: Movements between two key poses: from, to, relative frequency. A pose lies anywhere between its key poses.
_MOVES = (
    ("stand", "akimbo", 7), ("stand", "pass", 6), ("stride", "pass", 12), ("stride", "sprint", 6),
    ("sprint", "recover", 10), ("stand", "squat", 5), ("squat", "tuck", 2), ("sit", "lounge", 7),
    ("sit", "stand", 4), ("stand", "reach", 5), ("cross", "reach", 3), ("akimbo", "cross", 3),
    ("stand", "bend", 5), ("stride", "lunge", 4), ("lunge", "guard", 4), ("sideways", "cross", 3),
    ("star", "cross", 4), ("star", "tuck", 2), ("recover", "kick", 5), ("guard", "sidekick", 3),
    ("guard", "throw", 4), ("throw", "serve", 4), ("swing", "serve", 3), ("stand", "swing", 4),
    ("kneel", "lunge", 3), ("climb", "reach", 3), ("kneel", "sit", 2), ("handstand", "splitstand", 2),
    ("cartwheel", "star", 2), ("pike", "bend", 1),
)  # fmt: skip
_FROM = np.array([np.concatenate(_KEYS[a]) for a, _, _ in _MOVES], np.float64)  # [M,21]
_TO = np.array([np.concatenate(_KEYS[b]) for _, b, _ in _MOVES], np.float64)  # [M,21]
_CUMULATIVE = np.cumsum([w for _, _, w in _MOVES]) / sum(w for _, _, w in _MOVES)
#: The standard deviation of each angle around the pose of the movement.
_SPREAD = np.concatenate([(6, 4, 7, 6, 5), *[(10, 6, 10, 5)] * 2, *[(7, 3, 8, 3)] * 2])
_MIRRORED = np.array([0, 1, 2, 3, 4, 9, 10, 11, 12, 5, 6, 7, 8, 17, 18, 19, 20, 13, 14, 15, 16])
_MIRROR_SIGN = np.where(np.isin(np.arange(21), (1, 2, 4)), -1.0, 1.0)


class PosedBody(NamedTuple):
    """A posed body as the camera sees it: lengths in image widths, x right, y down, z towards the camera."""

    xy: list[complex]  # 14 joints in LSP order, then right toe, left toe, right hand, left hand
    z: list[float]  # depth of the same 18 points
    face: complex  # direction of view of the face, projected to the image plane
    from_behind: bool
    up: complex  # unit vector from the pelvis to the neck, projected to the image plane
    scale: float  # image widths per body height
    thickness: float  # thickness of limbs and trunk, relative to the average
    head: float  # head size, relative to the average
    seated: bool


def _choose_pose(rng: np.random.Generator) -> Array:
    """Draw a pose `[21]` in degrees between two key poses, with random changes of each angle.

    The angles are in the order of `_KEYS`.
    """
    pick, fraction, arm_pick, mix, flip = rng.random(5)
    move = int(np.searchsorted(_CUMULATIVE, pick))
    pose = _FROM[move] + fraction * (_TO[move] - _FROM[move])
    if abs(_FROM[move, 4]) < 90 and mix < 0.2:
        # The arms come from another movement, as people move arms and legs nearly independently.
        arm_move = int(np.searchsorted(_CUMULATIVE, arm_pick))
        pose[5:13] += (0.4 + 2.5 * mix) * (_TO[arm_move, 5:13] - pose[5:13])
    pose += _SPREAD * rng.standard_normal(21)
    pose[[7, 11]] = np.clip(pose[[7, 11]], 0, 140)  # elbows and knees bend one way
    pose[[15, 19]] = np.clip(pose[[15, 19]], 0, 145)
    return np.asarray(pose[_MIRRORED] * _MIRROR_SIGN if flip < 0.5 else pose)


def _rotation(x: float, y: float, z: float) -> Array:
    """Return the rotation `[3,3]` about y, then x, then z, in degrees."""
    (cx, sx), (cy, sy), (cz, sz) = ((math.cos(math.radians(a)), math.sin(math.radians(a))) for a in (x, y, z))
    first = cz * cy - sz * sx * sy, -sz * cx, cz * sy + sz * sx * cy
    second = sz * cy + cz * sx * sy, cz * cx, sz * sy - cz * sx * cy
    return np.array([first, second, (-cx * sy, sx, cx * cy)])


def _limbs(angles: Array) -> tuple[Array, Array]:
    """Return directions `[2,3]` of upper and lower pieces, right limb first, from angles `[2,4]` in degrees."""
    forward, sideways, bend, sway = np.radians(angles).T
    forward, sideways = np.concatenate([forward, forward + bend]), np.concatenate([sideways, sideways + sway])
    down = np.cos(sideways)
    directions = np.empty((4, 3))
    directions[:, 0] = np.sin(sideways) * (-1, 1, -1, 1)
    directions[:, 1] = -down * np.cos(forward)
    directions[:, 2] = down * np.sin(forward)
    return directions[:2], directions[2:]


def choose_body(rng: np.random.Generator) -> PosedBody:
    """Draw a random body in a random pose, seen by a camera and placed in the frame."""
    pose = _choose_pose(rng)
    lean, lateral, twist, nod, roll = pose[:5].tolist()
    legs = pose[13:].reshape(2, 4) * (1, 1, -1, 1)  # a knee bends backward
    build = 1 + np.array([0.05, 0.05, 0.05, 0.07, 0.08, 0.16, 0.1, 0.05]) * (2 * rng.random(8) - 1)
    leg, arm, torso, hip, shoulder, thickness, head, zoom = build.tolist()
    turn, behind, tilt, *shift = rng.random(5)
    # Most people are seen from the front or a side, few from behind.
    yaw = 150 * turn - 75 + (180 if behind < 0.03 else 0)

    # Frame of the pelvis: x to the person's left, y up, z forward. The chest turns in it, and the head in the chest.
    chest = _rotation(lean, 0, -lateral) @ _rotation(0, twist, 0)
    skull = chest @ _rotation(-nod, 0.6 * twist, 0)
    thigh, shin = _limbs(legs)
    upper_arm, forearm = _limbs(pose[5:13].reshape(2, 4))
    points = np.empty((20, 3))
    points[[2, 3]] = hips = np.array([(-0.058 * hip, 0, 0), (0.058 * hip, 0, 0)])
    points[[1, 4]] = knees = hips + 0.245 * leg * thigh
    points[[0, 5]] = ankles = knees + 0.235 * leg * shin
    # A foot is at a right angle to its shin. If the knee is bent further, the foot points down more.
    foot = shin[:, [0, 2, 1]] * (0, 1, -1) + shin * np.clip(legs[:, 2:3] / -100, 0.1, 0.8)
    points[14:16] = ankles + 0.07 * foot + 0.02 * shin
    # In the frame of the chest. It has the same origin as the frame of the pelvis.
    points[12] = 0, 0.295 * torso, 0
    points[[8, 9]] = shoulders = points[12] + np.array([(-0.1 * shoulder, -0.03, 0), (0.1 * shoulder, -0.03, 0)])
    points[[7, 10]] = elbows = shoulders + 0.168 * arm * upper_arm
    points[[6, 11]] = wrists = elbows + 0.15 * arm * forearm
    points[16:18] = wrists + 0.045 * forearm
    points[19] = 0, 1, 0
    upper_body = [6, 7, 8, 9, 10, 11, 12, 16, 17, 19]
    points[upper_body] = points[upper_body] @ chest.T
    points[13] = points[12] + skull @ (0, 0.18 * head, 0.012)
    points[18] = skull @ (0, 0, 1)
    seated = abs(roll) < 60 and lean < 35 and legs[:, 0].min() > 55 and ankles[:, 1].max() < -0.15

    camera = _rotation(0, 0, roll) @ _rotation(12 * tilt, yaw, 0)
    points = points @ camera.T * (1, -1, 1)
    low, high = points[:18, :2].min(axis=0), points[:18, :2].max(axis=0)
    extent = high - low + 0.08  # the body is larger than the box of its joints
    # Photographs keep neither body height nor extent of the pose constant. A power of -0.5 lies between the two.
    scale = min(0.88 * zoom * float(extent.max()) ** -0.5, 0.94 / float(extent.max()))
    slack = np.maximum((0.97 - scale * extent) / 2, 0)
    centre = 0.5 + np.minimum(slack, 0.07) * (2 * np.array(shift) - 1)
    points[:18] *= scale
    points[:18, :2] += centre - scale * (low + high) / 2
    *xy, face, up = (complex(x, y) for x, y in points[:, :2].tolist())
    thickness, from_behind = 1 + 1.6 * (thickness - 1), bool(points[18, 2] < 0)
    return PosedBody(xy, points[:18, 2].tolist(), face, from_behind, up, scale, thickness, head, bool(seated))
