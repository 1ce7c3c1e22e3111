"""Draws people for the synthetic data set, from a seed, with exact joints.

A body is posed in three dimensions, seen by a camera, and dressed. Every part of it (limb, shoe, torso, head) is the
convex hull of one to four discs, placed by the same points that are returned as joints, so the picture and its joints
always agree. Lengths are in body heights, then in image widths; pixels appear only at the end, so the size of the image
never changes a pose. After the projection, a point of the image plane is a complex number x + iy in plain Python: tiny
arrays would take most of the time.
"""

from __future__ import annotations

import cmath
import colorsys
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.floating[Any]]]"
Colour: TypeAlias = "tuple[float, float, float]"  # r, g, b in 0..255

SUPERSAMPLING = 3
_DIRECTIONS = 20  # corners of a hull's outline
_ANGLES = np.arange(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS)
_UNIT = np.cos(_ANGLES) + 1j * np.sin(_ANGLES)  # [K]

# Key poses in degrees. Trunk: lean forward, lean to the left, twist, nod, roll in the image plane. Right arm, left arm:
# forward, sideways, elbow forward, elbow sideways. Right leg, left leg: forward, sideways, knee, shin sideways.
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
# A pose lies anywhere between two key poses of a movement: from, to, how common.
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
_COMMON = np.cumsum([w for _, _, w in _MOVES]) / sum(w for _, _, w in _MOVES)
_SPREAD = np.concatenate(
    [(6, 4, 7, 6, 5), *[(10, 6, 10, 5)] * 2, *[(7, 3, 8, 3)] * 2]
)  # degrees, one standard deviation
_MIRRORED = np.array([0, 1, 2, 3, 4, 9, 10, 11, 12, 5, 6, 7, 8, 17, 18, 19, 20, 13, 14, 15, 16])
_MIRROR_SIGN = np.where(np.isin(np.arange(21), (1, 2, 4)), -1.0, 1.0)

_SKIN = ((246, 214, 190), (228, 182, 148), (196, 146, 108), (150, 102, 70), (96, 62, 42))
_HAIR = ((28, 22, 20), (62, 42, 28), (110, 74, 42), (190, 150, 90), (150, 146, 142), (120, 52, 30))
_ARM = frozenset({6, 7, 8, 9, 10, 11})
_LIT = -0.25 - 0.3j  # light comes from the upper left
_ROWS = np.linspace(0, 1, 32)[:, None]


class Body(NamedTuple):
    """A posed body as the camera sees it: lengths in image widths, x right, y down, z towards the camera."""

    xy: list[complex]  # 14 joints in LSP order, then right toe, left toe, right hand, left hand
    z: list[float]  # of the same 18 points
    face: complex  # unit vector to where the face looks, in the image plane
    from_behind: bool
    up: complex  # unit vector from the pelvis to the neck, in the image plane
    scale: float  # image widths per body height
    thickness: float  # of limbs and trunk against the usual one
    head: float  # head size against the usual one
    seated: bool


class Clothes(NamedTuple):
    """Colours, and how far cloth reaches: 0 = none, 1 = to the elbow or knee, 2 = to the wrist or ankle."""

    skin: Colour
    hair: Colour
    shirt: Colour
    stripe: Colour | None
    trousers: Colour
    shoes: Colour
    sleeve: float
    leg: float
    hem: float  # lower end of the shirt: 0 = shoulders, 1 = hips
    long_hair: float  # 0 = short, 1 = to the shoulders


class Part(NamedTuple):
    """One convex piece of a picture: the hull of discs, in one colour."""

    name: str
    depth: float  # parts are drawn from small to large
    discs: tuple[tuple[complex, float], ...]  # four centres and radii, in image widths
    colour: Colour


def draw_person(
    seed: int, index: int, size: int = 64
) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.float32]]]:
    """One person in a scene: pixels `[size, size, 3]` in 0..255, and 14 joints `[14, 2]` as x, y.

    Joints are in LSP order, in pixels with centres at integers. The same (seed, index) is the same figure at any size.
    `seed` and `index` must be >= 0, `size` >= 8; else ValueError.
    """
    if size < 8:
        raise InputError(f"size = {size} is too small for a person; give at least 8 pixels")
    rng = np.random.default_rng([seed, index])
    body = _pose_body(rng)
    figure = _dress(body, _choose_clothes(rng))
    backdrop, behind = _choose_scene(rng, body)
    front = [_clutter(rng, 0.03, 0.12)] if rng.random() < 0.2 else []
    # Nearest and back again: the backdrop is as fine as the final pixels, only the parts are supersampled.
    canvas = Image.fromarray(backdrop).resize((size, size), Image.Resampling.BILINEAR)
    canvas = canvas.resize((size * SUPERSAMPLING, size * SUPERSAMPLING), Image.Resampling.NEAREST)
    _paint(canvas, [*behind, *figure, *front])
    pixels = _light(rng, np.asarray(canvas.reduce(SUPERSAMPLING)))
    joints = np.array([(point.real, point.imag) for point in body.xy[:14]])
    return pixels, (joints * size - 0.5).astype(np.float32)


# The body


def _choose_pose(rng: np.random.Generator) -> Array:
    """A pose `[21]` in degrees, laid out as in `_KEYS`: between two key poses, with joint angles of its own."""
    pick, along, other, mix, flip = rng.random(5)
    move = int(np.searchsorted(_COMMON, pick))
    pose = _FROM[move] + along * (_TO[move] - _FROM[move])
    if abs(_FROM[move, 4]) < 90 and mix < 0.2:
        # Arms of another movement: what people do with their hands says little about their feet.
        borrowed = int(np.searchsorted(_COMMON, other))
        pose[5:13] += (0.4 + 2.5 * mix) * (_TO[borrowed, 5:13] - pose[5:13])
    pose += _SPREAD * rng.standard_normal(21)
    pose[[7, 11]] = np.clip(pose[[7, 11]], 0, 140)  # elbows and knees bend one way
    pose[[15, 19]] = np.clip(pose[[15, 19]], 0, 145)
    if flip < 0.5:
        return np.asarray(pose[_MIRRORED] * _MIRROR_SIGN)
    return np.asarray(pose)


def _rotation(x: float, y: float, z: float) -> Array:
    """Rotation `[3,3]` about y, then x, then z, in degrees."""
    (cx, sx), (cy, sy), (cz, sz) = ((math.cos(math.radians(a)), math.sin(math.radians(a))) for a in (x, y, z))
    return np.array(
        [
            (cz * cy - sz * sx * sy, -sz * cx, cz * sy + sz * sx * cy),
            (sz * cy + cz * sx * sy, cz * cx, sz * sy - cz * sx * cy),
            (-cx * sy, sx, cx * cy),
        ]
    )


def _limbs(angles: Array) -> tuple[Array, Array]:
    """Directions `[2,3]` of upper and lower pieces, right limb then left, from `[2,4]` angles in degrees."""
    forward, sideways, bend, sway = np.radians(angles).T
    forward, sideways = np.concatenate([forward, forward + bend]), np.concatenate([sideways, sideways + sway])
    down = np.cos(sideways)
    directions = np.empty((4, 3))
    directions[:, 0] = np.sin(sideways) * (-1, 1, -1, 1)
    directions[:, 1] = -down * np.cos(forward)
    directions[:, 2] = down * np.sin(forward)
    return directions[:2], directions[2:]


def _pose_body(rng: np.random.Generator) -> Body:
    """A body in a pose, seen by a camera and placed in the frame."""
    pose = _choose_pose(rng)
    lean, lateral, twist, nod, roll = pose[:5].tolist()
    legs = pose[13:].reshape(2, 4) * (1, 1, -1, 1)  # a knee bends backward
    build = 1 + np.array([0.05, 0.05, 0.05, 0.07, 0.08, 0.16, 0.1, 0.05]) * (2 * rng.random(8) - 1)
    leg, arm, torso, hip, shoulder, thickness, head, zoom = build.tolist()
    turn, behind, tilt, *shift = rng.random(5)
    # Most people are seen from the front or a side, few from behind.
    yaw = 150 * turn - 75 + (180 if behind < 0.03 else 0)

    # Frame of the pelvis: x to the person's left, y up, z forward. The chest turns against it, the head against both.
    chest = _rotation(lean, 0, -lateral) @ _rotation(0, twist, 0)
    skull = chest @ _rotation(-nod, 0.6 * twist, 0)
    thigh, shin = _limbs(legs)
    upper, lower = _limbs(pose[5:13].reshape(2, 4))
    points = np.empty((20, 3))
    points[[2, 3]] = hips = np.array([(-0.058 * hip, 0, 0), (0.058 * hip, 0, 0)])
    points[[1, 4]] = knees = hips + 0.245 * leg * thigh
    points[[0, 5]] = ankles = knees + 0.235 * leg * shin
    # A foot stands at a right angle to its shin; the further the knee is bent, the more it points.
    foot = shin[:, [0, 2, 1]] * (0, 1, -1) + shin * np.clip(legs[:, 2:3] / -100, 0.1, 0.8)
    points[14:16] = ankles + 0.07 * foot + 0.02 * shin
    # In the frame of the chest, whose origin is the pelvis' too.
    points[12] = 0, 0.295 * torso, 0
    points[[8, 9]] = shoulders = points[12] + np.array([(-0.1 * shoulder, -0.03, 0), (0.1 * shoulder, -0.03, 0)])
    points[[7, 10]] = elbows = shoulders + 0.168 * arm * upper
    points[[6, 11]] = wrists = elbows + 0.15 * arm * lower
    points[16:18] = wrists + 0.045 * lower
    points[19] = 0, 1, 0
    turned = [6, 7, 8, 9, 10, 11, 12, 16, 17, 19]
    points[turned] = points[turned] @ chest.T
    points[13] = points[12] + skull @ (0, 0.18 * head, 0.012)
    points[18] = skull @ (0, 0, 1)
    seated = abs(roll) < 60 and lean < 35 and legs[:, 0].min() > 55 and ankles[:, 1].max() < -0.15

    camera = _rotation(0, 0, roll) @ _rotation(12 * tilt, yaw, 0)
    points = points @ camera.T * (1, -1, 1)
    low, high = points[:18, :2].min(axis=0), points[:18, :2].max(axis=0)
    extent = high - low + 0.08  # flesh round the joints
    # Photographers frame what a person does as much as how tall the person is: half way between the two.
    scale = min(0.88 * zoom * float(extent.max()) ** -0.5, 0.94 / float(extent.max()))
    slack = np.maximum((0.97 - scale * extent) / 2, 0)
    centre = 0.5 + np.minimum(slack, 0.07) * (2 * np.array(shift) - 1)
    points[:18] *= scale
    points[:18, :2] += centre - scale * (low + high) / 2
    *xy, face, up = (complex(x, y) for x, y in points[:, :2].tolist())
    return Body(
        xy=xy,
        z=points[:18, 2].tolist(),
        face=face,
        from_behind=bool(points[18, 2] < 0),
        up=up,
        scale=scale,
        thickness=1 + 1.6 * (thickness - 1),
        head=head,
        seated=bool(seated),
    )


# Its parts


def _choose_colour(rng: np.random.Generator, vivid: float = 1.0) -> Colour:
    """Any colour; a small `vivid` keeps it near grey."""
    hue, saturation, value = rng.random(3).tolist()
    r, g, b = colorsys.hsv_to_rgb(hue, vivid * saturation**1.3, 0.12 + 0.86 * value)
    return 255 * r, 255 * g, 255 * b


def _choose_clothes(rng: np.random.Generator) -> Clothes:
    tone, hair, sleeve, leg, striped, hem, long_hair, grey = rng.random(8).tolist()
    lower, share = divmod(tone * (len(_SKIN) - 1), 1)
    light, dark = _SKIN[int(lower)], _SKIN[int(lower) + 1]
    return Clothes(
        skin=_mix(light, dark, share),
        hair=_HAIR[int(hair**1.4 * len(_HAIR))],
        shirt=_choose_colour(rng),
        stripe=_choose_colour(rng) if striped < 0.25 else None,
        trousers=_choose_colour(rng, 0.35 if grey < 0.5 else 1.0),
        shoes=_choose_colour(rng, 0.4),
        sleeve=0.25 if sleeve < 0.12 else 0.55 + 0.4 * sleeve if sleeve < 0.6 else 2.0,
        leg=0.5 + leg if leg < 0.42 else 1.5 if leg < 0.48 else 2.0,
        hem=0.85 + 0.27 * hem,
        long_hair=max(0.0, 2.2 * long_hair - 1.2),
    )


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    """`a` at share 0, `b` at share 1."""
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]), a[2] + share * (b[2] - a[2])


def _shade(colour: Colour, light: float) -> Colour:
    return colour[0] * light, colour[1] * light, colour[2] * light


def _hull(*discs: tuple[complex, float]) -> tuple[tuple[complex, float], ...]:
    """One to four discs, the last repeated up to four."""
    return discs + discs[-1:] * (4 - len(discs))


def _dress(body: Body, clothes: Clothes) -> list[Part]:
    """The parts of a person, furthest first."""
    width = body.scale * body.thickness
    leg_radii = (0.054 * width, 0.038 * width, 0.025 * width)
    arm_radii = (0.036 * width, 0.027 * width, 0.019 * width)
    parts = _torso_parts(body, clothes) + _head_parts(body, clothes)
    for side, leg, arm, toe, hand in (
        ("right", (2, 1, 0), (8, 7, 6), 14, 16),
        ("left", (3, 4, 5), (9, 10, 11), 15, 17),
    ):
        parts += _limb_parts(body, f"{side}_leg", leg, leg_radii, clothes.leg, clothes.skin, clothes.trousers)
        parts += _limb_parts(body, f"{side}_arm", arm, arm_radii, clothes.sleeve, clothes.skin, clothes.shirt)
        parts += [
            _shoe(body, f"{side}_foot", leg[2], toe, clothes.shoes),
            _palm(body, f"{side}_hand", arm, hand, clothes),
        ]
    return sorted(parts, key=lambda part: part.depth)


def _limb_parts(
    body: Body, name: str, chain: tuple[int, ...], radii: tuple[float, ...], reach: float, skin: Colour, cloth: Colour
) -> list[Part]:
    """A limb along three joints: skin, cloth over it as far as `reach`, and a lit side on each piece."""
    parts = []
    for piece, label in enumerate((f"{name}_upper", f"{name}_lower")):
        a, b = body.xy[chain[piece]], body.xy[chain[piece + 1]]
        ra, rb = radii[piece], radii[piece + 1]
        depth, light = _limb_depth(body, chain[piece], chain[piece + 1])
        covered = min(max(reach - piece, 0.0), 1.0)
        layers = [(b, ra, rb, skin)] if covered < 1 else []
        if covered > 0:
            loose = 0.004 * body.scale
            layers.append((a + covered * (b - a), ra + loose, ra + covered * (rb - ra) + loose, cloth))
        for end, r0, r1, colour in layers:
            parts.append(Part(label, depth, _hull((a, r0), (end, r1)), _shade(colour, 0.82 * light)))
            lit = _hull((a + r0 * _LIT, 0.62 * r0), (end + r1 * _LIT, 0.62 * r1))
            parts.append(Part(label, depth, lit, _shade(colour, light)))
    return parts


def _limb_depth(body: Body, a: int, b: int) -> tuple[float, float]:
    """When to draw the piece between two points, and its light: limbs on the far side lie in the body's shade."""
    z = (body.z[a] + body.z[b]) / 2
    on_top = 0.022 * body.scale if a in _ARM else 0.0  # arms at the side hang before the trunk
    return z + on_top, min(max(0.94 + 0.9 * z / body.scale, 0.74), 1.04)


def _shoe(body: Body, name: str, ankle: int, toe: int, colour: Colour) -> Part:
    at, tip, scale = body.xy[ankle], body.xy[toe], body.scale
    depth = (body.z[ankle] + body.z[toe]) / 2 + 0.002 * scale
    sole = at + 0.25 * (tip - at)
    return Part(name, depth, _hull((at, 0.023 * scale), (sole, 0.024 * scale), (tip, 0.017 * scale)), colour)


def _palm(body: Body, name: str, arm: tuple[int, ...], hand: int, clothes: Clothes) -> Part:
    depth, light = _limb_depth(body, arm[1], arm[2])
    discs = _hull((body.xy[arm[2]], 0.019 * body.scale), (body.xy[hand], 0.021 * body.scale))
    return Part(name, depth - 0.001 * body.scale, discs, _shade(clothes.skin, light))


def _torso_parts(body: Body, clothes: Clothes) -> list[Part]:
    xy, scale, width = body.xy, body.scale, body.scale * body.thickness
    depth = (body.z[8] + body.z[9] + body.z[2] + body.z[3]) / 4 + 0.01 * scale
    shoulders, hips, neck = (xy[8], xy[9]), (xy[2], xy[3]), xy[12]
    across = shoulders[1] - shoulders[0]
    chest = (shoulders[0] + 0.12 * across, shoulders[1] - 0.12 * across)  # the arms' own discs round the shoulders off
    inward = 0.04 * (hips[1] - hips[0])
    waist = [c + 0.72 * (h - c) + w for c, h, w in zip(chest, hips, (inward, -inward), strict=True)]
    hem = [c + clothes.hem * (h - c) for c, h in zip(chest, hips, strict=True)]
    r_chest, r_waist, r_hip = 0.05 * width, 0.052 * width, 0.056 * width
    pelvis = _hull((waist[0], 0.9 * r_waist), (waist[1], 0.9 * r_waist), (hips[0], r_hip), (hips[1], r_hip))
    yoke = _hull((neck, 0.03 * width), (chest[0], r_chest), (chest[1], r_chest))
    torso = _hull((chest[0], r_chest), (chest[1], r_chest), (waist[0], r_waist), (waist[1], r_waist))
    belly = _hull((waist[0], r_waist), (waist[1], r_waist), (hem[0], r_waist), (hem[1], r_waist))
    parts = [Part("pelvis", depth, pelvis, clothes.trousers)]
    parts += [Part("torso", depth, hull, clothes.shirt) for hull in (yoke, torso, belly)]
    if clothes.stripe is not None:
        for share in (0.08, 0.3, 0.52):
            left, right = (c + share * (h - c) for c, h in zip(chest, hips, strict=True))
            # Bands go round the trunk: as wide as its outline, at a right angle to the spine.
            normal = 1j * body.up / (abs(body.up) + 1e-9)
            half = abs(((right - left) * normal.conjugate()).real) / 2 + 0.85 * r_chest
            middle, thin = (left + right) / 2, 0.011 * scale
            band = _hull((middle - half * normal, thin), (middle + half * normal, thin))
            parts.append(Part("torso", depth, band, clothes.stripe))
    throat = neck + 0.35 * (xy[13] - neck)
    skin = _shade(clothes.skin, 0.85)
    return [*parts, Part("neck", depth + 0.002 * scale, _hull((neck, 0.028 * width), (throat, 0.026 * width)), skin)]


def _head_parts(body: Body, clothes: Clothes) -> list[Part]:
    """A face, and hair that reaches round the crown; the top of the head lies just inside the hair."""
    neck, top, face, size = body.xy[12], body.xy[13], body.face, body.scale * body.head
    axis = top - neck
    depth = (body.z[12] + body.z[13]) / 2 + 0.02 * body.scale
    skull, jaw = neck + 0.68 * axis, neck + 0.43 * axis
    crown = top - axis / (abs(axis) + 1e-9) * 0.03 * size - 0.006 * size * face
    nape = jaw - (0.03 + 0.03 * clothes.long_hair) * size * face - 0.07 * clothes.long_hair * size * body.up
    hair = _hull((crown, 0.04 * size), (skull - 0.012 * size * face, 0.055 * size), (nape, 0.028 * size))
    skin = _hull((skull - 0.008 * axis + 0.02 * size * face, 0.043 * size), (jaw + 0.022 * size * face, 0.032 * size))
    parts = [Part("head", depth, hair, clothes.hair), Part("head", depth, skin, clothes.skin)]
    return parts[::-1] if body.from_behind else parts


# The picture


def _paint(canvas: Image.Image, parts: Sequence[Part]) -> None:
    """Draw parts onto a square canvas, in order."""
    discs = np.array([part.discs for part in parts])  # [P,4,2]
    centres, radii = discs[:, :, 0], discs[:, :, 1].real
    # Support function: in every direction, the disc that reaches furthest gives the corner of the outline.
    reach = (centres[:, :, None] * _UNIT.conj()).real + radii[:, :, None]  # [P,4,K]
    furthest = reach.argmax(axis=1)  # [P,K]
    rows = np.arange(len(parts))[:, None]
    corners = centres[rows, furthest] + radii[rows, furthest] * _UNIT  # [P,K]
    # Pixel n of the canvas covers n .. n + 1, and Pillow fills every pixel that its outline names.
    outlines = np.floor(corners.view(np.float64) * canvas.width).astype(np.int64).tolist()
    draw = ImageDraw.Draw(canvas)
    for part, outline in zip(parts, outlines, strict=True):
        r, g, b = part.colour
        draw.polygon(outline, fill=(min(int(r), 255), min(int(g), 255), min(int(b), 255)))


def _clutter(rng: np.random.Generator, smallest: float, largest: float) -> Part:
    """A box, a pole or a rounded thing anywhere."""
    kind, x, y, w, h, turn = rng.random(6).tolist()
    w, h = smallest + (largest - smallest) * w, smallest + (largest - smallest) * h
    if kind < 0.35:  # a pole
        w, h = 0.012, 0.4 + h
    radius = 0.003 if kind < 0.75 else 0.35 * min(w, h)
    centre, axis = complex(1.1 * x - 0.05, 1.1 * y - 0.05), cmath.rect(0.5, (turn - 0.5) * 0.5)
    corners = [centre + axis * complex(*corner) for corner in ((-w, -h), (w, -h), (w, h), (-w, h))]
    return Part("clutter", 0.0, _hull(*((corner, radius) for corner in corners)), _choose_colour(rng, 0.7))


def _choose_scene(rng: np.random.Generator, body: Body) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], list[Part]]:
    """A backdrop `[32,32,3]` (wall or sky, floor, blurry shapes, texture), and things that stand behind the person."""
    top, bottom, floor = (_choose_colour(rng, 0.5) for _ in range(3))
    grain, blur, horizon, has_floor, clutter, shadow, cells = rng.random(7).tolist()
    lowest = max(body.xy[0].imag, body.xy[5].imag) + 0.02 * body.scale
    level = min(0.45 + 0.5 * horizon, lowest - 0.015) if has_floor < 0.75 else 1.0
    rows = np.empty((32, 1, 3), np.float32)
    rows[:, 0] = top + _ROWS * (0.6 * np.subtract(bottom, top))
    rows[int(level * 32) :, 0] = floor * (0.85 + 0.3 * _ROWS[int(level * 32) :])
    grid = 3 + int(cells * 6)
    colourful = rng.integers(0, 256, (grid, grid, 3), np.uint8)
    shapes = np.asarray(Image.fromarray(colourful).resize((32, 32), Image.Resampling.BICUBIC), np.float32)
    grey = shapes.mean(axis=2, keepdims=True)
    texture = rng.standard_normal((32, 32, 1), np.float32)
    scene = rows + (0.05 + 0.3 * blur**2) * (0.35 * shapes + 0.65 * grey - 128) + (1 + 9 * grain**2) * texture
    behind = [_clutter(rng, 0.05, 0.4) for _ in range(int(clutter**1.5 * 5))]
    if has_floor < 0.75 and shadow < 0.7:
        behind.append(_shadow(body, lowest, _shade(floor, 0.75)))
    if body.seated:
        behind.append(_seat(body, lowest, _choose_colour(rng, 0.6)))
    return np.clip(scene, 0, 255).astype(np.uint8), behind


def _shadow(body: Body, lowest: float, colour: Colour) -> Part:
    left, right = sorted((body.xy[0].real, body.xy[5].real))
    aside = 0.05 * body.scale
    discs = _hull((complex(left - aside, lowest), 0.018), (complex(right + aside, lowest), 0.018))
    return Part("shadow", 0.0, discs, colour)


def _seat(body: Body, lowest: float, colour: Colour) -> Part:
    left, right = sorted((body.xy[2].real, body.xy[3].real))
    aside, top = 0.09 * body.scale, (body.xy[2].imag + body.xy[3].imag) / 2 + 0.05 * body.scale
    corners = ((left - aside, top), (right + aside, top), (right + aside, lowest), (left - aside, lowest))
    return Part("seat", 0.0, _hull(*((complex(*corner), 0.008) for corner in corners)), colour)


def _light(
    rng: np.random.Generator, pixels: np.ndarray[Any, np.dtype[np.uint8]]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Contrast, brightness, colour cast and a little sensor noise; pixels `[S,S,3]`."""
    contrast, brightness, grain, *cast = rng.random(6).tolist()
    gain = np.array([(0.7 + 0.45 * contrast) * (0.92 + 0.16 * c) for c in cast], np.float32)
    lit = pixels * gain + (118 * (1 - gain) + np.float32(50 * (brightness - 0.5)))
    noise = rng.integers(-128, 128, pixels.shape, np.int8)
    lit += noise * np.float32((1 + 5 * grain**2) / 74)  # 74: the standard deviation of the integers
    return np.clip(lit, 0, 255, out=lit).astype(np.uint8)
