"""The synthetic data set of poses: drawn persons with exact joints, from a seed.

A posed body is dressed and painted before a backdrop. Every part of the body (limb, shoe, torso, head) is the convex
hull of one to four discs. The discs are placed by the same points that are returned as joints, so picture and joints
always agree. Lengths are in image widths. They become pixels only at the end, so the size of the image never changes a
pose.
"""

from __future__ import annotations

import cmath
import colorsys
import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from contml._support.validation import NonNegativeInt, Range, SplitSize, check_ranges
from contml.data import Pixels, Split, Task, check_queries, query_split

from .._readers.splits import drawn_task
from .bodies import LSP
from .people import labels_and_view
from .poses import PosedBody, choose_body

Picture: TypeAlias = NDArray[np.uint8]
Colour: TypeAlias = "tuple[float, float, float]"  # r, g, b in 0..255

SUPERSAMPLING = 3
_DIRECTIONS = 20  # corners of a hull's outline
_ANGLES = np.arange(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS)
_UNIT = np.cos(_ANGLES) + 1j * np.sin(_ANGLES)  # [K]

_SKIN = ((246, 214, 190), (228, 182, 148), (196, 146, 108), (150, 102, 70), (96, 62, 42))
_HAIR = ((28, 22, 20), (62, 42, 28), (110, 74, 42), (190, 150, 90), (150, 146, 142), (120, 52, 30))
_ARM = frozenset({6, 7, 8, 9, 10, 11})
_LIT = -0.25 - 0.3j  # offset of the lit strip of a limb, in radii: light comes from the upper left
_ROWS = np.linspace(0, 1, 32)[:, None]


class Clothes(NamedTuple):
    """Colours, and the reach of cloth along limbs: 0 = none, 1 = to the elbow or knee, 2 = to the wrist or ankle."""

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


class Piece(NamedTuple):
    """One convex piece of a picture: the hull of discs, in one colour."""

    name: str
    depth: float  # parts are drawn from small to large
    discs: tuple[tuple[complex, float], ...]  # four centres and radii, in image widths
    colour: Colour


def draw_person(seed: int, index: int, size: int = 64) -> tuple[Picture, NDArray[np.float32]]:
    """Draw one person in a scene. Return pixels `[size, size, 3]`, 0 to 255, and 14 joints `[14, 2]` as x, y.

    Joints are in LSP order, in pixels with centres at integers. The same (seed, index) is the same person at any size.
    `seed` and `index` must be at least 0, `size` at least 8.
    """
    Range(8).check("size", size)
    rng = np.random.default_rng([seed, index])
    body = choose_body(rng)
    person = _dress(body, _choose_clothes(rng))
    backdrop, behind = _choose_scene(rng, body)
    front = [_clutter(rng, 0.03, 0.12)] if rng.random() < 0.2 else []
    # Pixels of the backdrop are repeated: it is as fine as the final image. Only the parts are supersampled.
    canvas = Image.fromarray(backdrop).resize((size, size), Image.Resampling.BILINEAR)
    canvas = canvas.resize((size * SUPERSAMPLING, size * SUPERSAMPLING), Image.Resampling.NEAREST)
    _paint(canvas, [*behind, *person, *front])
    pixels = _light(rng, np.asarray(canvas.reduce(SUPERSAMPLING)))
    return pixels, (np.array([(point.real, point.imag) for point in body.xy[:14]]) * size - 0.5).astype(np.float32)


# The parts of a person


def _choose_colour(rng: np.random.Generator, vivid: float = 1.0) -> Colour:
    """Draw any colour. A small `vivid` keeps the colour near grey."""
    hue, saturation, value = rng.random(3).tolist()
    r, g, b = colorsys.hsv_to_rgb(hue, vivid * saturation**1.3, 0.12 + 0.86 * value)
    return 255 * r, 255 * g, 255 * b


def _choose_clothes(rng: np.random.Generator) -> Clothes:
    tone, hair, sleeve, leg, striped, hem, long_hair, grey = rng.random(8).tolist()
    lower, share = divmod(tone * (len(_SKIN) - 1), 1)
    light, dark = _SKIN[int(lower)], _SKIN[int(lower) + 1]
    body = _mix(light, dark, share), _HAIR[int(hair**1.4 * len(_HAIR))]
    shirt, stripe = _choose_colour(rng), _choose_colour(rng) if striped < 0.25 else None
    trousers, shoes = _choose_colour(rng, 0.35 if grey < 0.5 else 1.0), _choose_colour(rng, 0.4)
    sleeve = 0.25 if sleeve < 0.12 else 0.55 + 0.4 * sleeve if sleeve < 0.6 else 2.0
    leg = 0.5 + leg if leg < 0.42 else 1.5 if leg < 0.48 else 2.0
    lengths = sleeve, leg, 0.85 + 0.27 * hem, max(0.0, 2.2 * long_hair - 1.2)
    return Clothes(*body, shirt, stripe, trousers, shoes, *lengths)


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    """Mix two colours: `a` at share 0, `b` at share 1."""
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]), a[2] + share * (b[2] - a[2])


def _shade(colour: Colour, light: float) -> Colour:
    return colour[0] * light, colour[1] * light, colour[2] * light


def _hull(*discs: tuple[complex, float]) -> tuple[tuple[complex, float], ...]:
    """Return one to four discs as exactly four, by repeating the last disc."""
    return discs + discs[-1:] * (4 - len(discs))


def _dress(body: PosedBody, clothes: Clothes) -> list[Piece]:
    """Return the parts of a person, furthest first."""
    width = body.scale * body.thickness
    leg_radii = (0.054 * width, 0.038 * width, 0.025 * width)
    arm_radii = (0.036 * width, 0.027 * width, 0.019 * width)
    parts = _torso_parts(body, clothes) + _head_parts(body, clothes)
    limbs = (("right", (2, 1, 0), (8, 7, 6), 14, 16), ("left", (3, 4, 5), (9, 10, 11), 15, 17))
    for side, leg, arm, toe, hand in limbs:
        parts += _limb_parts(body, f"{side}_leg", leg, leg_radii, clothes.leg, (clothes.skin, clothes.trousers))
        parts += _limb_parts(body, f"{side}_arm", arm, arm_radii, clothes.sleeve, (clothes.skin, clothes.shirt))
        parts.append(_shoe(body, f"{side}_foot", leg[2], toe, clothes.shoes))
        parts.append(_palm(body, f"{side}_hand", arm, hand, clothes))
    return sorted(parts, key=lambda part: part.depth)


def _limb_parts(
    body: PosedBody, name: str, chain: Sequence[int], radii: Sequence[float], reach: float, colours: Sequence[Colour]
) -> list[Piece]:
    """Return the parts of a limb along three joints: skin, cloth, and a lit strip on each piece.

    `colours` are the colours of skin and cloth. The cloth covers the skin up to `reach`, as in `Clothes`.
    """
    (skin, cloth), parts = colours, []
    for piece, part_name in enumerate((f"{name}_upper", f"{name}_lower")):
        a, b = body.xy[chain[piece]], body.xy[chain[piece + 1]]
        ra, rb = radii[piece], radii[piece + 1]
        depth, light = _depth_and_light(body, chain[piece], chain[piece + 1])
        covered = min(max(reach - piece, 0.0), 1.0)
        layers = [(b, ra, rb, skin)] if covered < 1 else []
        if covered > 0:
            loose = 0.004 * body.scale
            layers.append((a + covered * (b - a), ra + loose, ra + covered * (rb - ra) + loose, cloth))
        for end, r0, r1, colour in layers:
            parts.append(Piece(part_name, depth, _hull((a, r0), (end, r1)), _shade(colour, 0.82 * light)))
            lit_strip = _hull((a + r0 * _LIT, 0.62 * r0), (end + r1 * _LIT, 0.62 * r1))
            parts.append(Piece(part_name, depth, lit_strip, _shade(colour, light)))
    return parts


def _depth_and_light(body: PosedBody, a: int, b: int) -> tuple[float, float]:
    """Return the depth and the brightness of the piece between two points. Limbs behind the body are in its shadow."""
    z = (body.z[a] + body.z[b]) / 2
    on_top = 0.022 * body.scale if a in _ARM else 0.0  # arms at the side hang before the trunk
    return z + on_top, min(max(0.94 + 0.9 * z / body.scale, 0.74), 1.04)


def _shoe(body: PosedBody, name: str, ankle: int, toe: int, colour: Colour) -> Piece:
    start, tip, scale = body.xy[ankle], body.xy[toe], body.scale
    depth = (body.z[ankle] + body.z[toe]) / 2 + 0.002 * scale
    sole = start + 0.25 * (tip - start)
    return Piece(name, depth, _hull((start, 0.023 * scale), (sole, 0.024 * scale), (tip, 0.017 * scale)), colour)


def _palm(body: PosedBody, name: str, arm: tuple[int, ...], hand: int, clothes: Clothes) -> Piece:
    depth, light = _depth_and_light(body, arm[1], arm[2])
    discs = _hull((body.xy[arm[2]], 0.019 * body.scale), (body.xy[hand], 0.021 * body.scale))
    return Piece(name, depth - 0.001 * body.scale, discs, _shade(clothes.skin, light))


def _torso_parts(body: PosedBody, clothes: Clothes) -> list[Piece]:
    xy, scale, width = body.xy, body.scale, body.scale * body.thickness
    depth = (body.z[8] + body.z[9] + body.z[2] + body.z[3]) / 4 + 0.01 * scale
    shoulders, hips, neck = (xy[8], xy[9]), (xy[2], xy[3]), xy[12]
    across = shoulders[1] - shoulders[0]
    chest = (shoulders[0] + 0.12 * across, shoulders[1] - 0.12 * across)  # arm discs round off the shoulders
    inward = 0.04 * (hips[1] - hips[0])
    waist = [c + 0.72 * (h - c) + w for c, h, w in zip(chest, hips, (inward, -inward), strict=True)]
    hem = [c + clothes.hem * (h - c) for c, h in zip(chest, hips, strict=True)]
    r_chest, r_waist, r_hip = 0.05 * width, 0.052 * width, 0.056 * width
    pelvis = _hull((waist[0], 0.9 * r_waist), (waist[1], 0.9 * r_waist), (hips[0], r_hip), (hips[1], r_hip))
    yoke = _hull((neck, 0.03 * width), (chest[0], r_chest), (chest[1], r_chest))
    torso = _hull((chest[0], r_chest), (chest[1], r_chest), (waist[0], r_waist), (waist[1], r_waist))
    belly = _hull((waist[0], r_waist), (waist[1], r_waist), (hem[0], r_waist), (hem[1], r_waist))
    parts = [Piece("pelvis", depth, pelvis, clothes.trousers)]
    parts += [Piece("torso", depth, hull, clothes.shirt) for hull in (yoke, torso, belly)]
    if clothes.stripe is not None:
        for share in (0.08, 0.3, 0.52):
            left, right = (c + share * (h - c) for c, h in zip(chest, hips, strict=True))
            # Bands go around the trunk. They are as wide as its outline, at a right angle to the spine.
            normal = 1j * body.up / (abs(body.up) + 1e-9)
            half = abs(((right - left) * normal.conjugate()).real) / 2 + 0.85 * r_chest
            middle, thin = (left + right) / 2, 0.011 * scale
            band = _hull((middle - half * normal, thin), (middle + half * normal, thin))
            parts.append(Piece("torso", depth, band, clothes.stripe))
    throat = neck + 0.35 * (xy[13] - neck)
    skin = _shade(clothes.skin, 0.85)
    return [*parts, Piece("neck", depth + 0.002 * scale, _hull((neck, 0.028 * width), (throat, 0.026 * width)), skin)]


def _head_parts(body: PosedBody, clothes: Clothes) -> list[Piece]:
    """Return a face, and hair that reaches around the crown. The top of the head lies just inside the hair."""
    neck, top, face, size = body.xy[12], body.xy[13], body.face, body.scale * body.head
    axis = top - neck
    depth = (body.z[12] + body.z[13]) / 2 + 0.02 * body.scale
    skull, jaw = neck + 0.68 * axis, neck + 0.43 * axis
    crown = top - axis / (abs(axis) + 1e-9) * 0.03 * size - 0.006 * size * face
    nape = jaw - (0.03 + 0.03 * clothes.long_hair) * size * face - 0.07 * clothes.long_hair * size * body.up
    hair = _hull((crown, 0.04 * size), (skull - 0.012 * size * face, 0.055 * size), (nape, 0.028 * size))
    skin = _hull((skull - 0.008 * axis + 0.02 * size * face, 0.043 * size), (jaw + 0.022 * size * face, 0.032 * size))
    parts = [Piece("head", depth, hair, clothes.hair), Piece("head", depth, skin, clothes.skin)]
    return parts[::-1] if body.from_behind else parts


# The picture


def _paint(canvas: Image.Image, parts: Sequence[Piece]) -> None:
    """Draw parts onto a square canvas, in order."""
    discs = np.array([part.discs for part in parts])  # [P,4,2]
    centres, radii = discs[:, :, 0], discs[:, :, 1].real
    # Support function. In every direction, the disc that reaches furthest gives a corner of the outline.
    reach = (centres[:, :, None] * _UNIT.conj()).real + radii[:, :, None]  # [P,4,K]
    furthest = reach.argmax(axis=1)  # [P,K]
    rows = np.arange(len(parts))[:, None]
    corners = centres[rows, furthest] + radii[rows, furthest] * _UNIT  # [P,K]
    # Pixel n of the canvas covers n .. n + 1, and Pillow also fills the pixels of the outline.
    outlines = np.floor(corners.view(np.float64) * canvas.width).astype(np.int64).tolist()
    draw = ImageDraw.Draw(canvas)
    for part, outline in zip(parts, outlines, strict=True):
        r, g, b = part.colour
        draw.polygon(outline, fill=(min(int(r), 255), min(int(g), 255), min(int(b), 255)))


def _clutter(rng: np.random.Generator, smallest: float, largest: float) -> Piece:
    """Draw a box, a pole or a rounded shape anywhere."""
    kind, x, y, w, h, turn = rng.random(6).tolist()
    w, h = smallest + (largest - smallest) * w, smallest + (largest - smallest) * h
    if kind < 0.35:  # a pole
        w, h = 0.012, 0.4 + h
    radius = 0.003 if kind < 0.75 else 0.35 * min(w, h)
    centre, axis = complex(1.1 * x - 0.05, 1.1 * y - 0.05), cmath.rect(0.5, (turn - 0.5) * 0.5)
    corners = [centre + axis * complex(*corner) for corner in ((-w, -h), (w, -h), (w, h), (-w, h))]
    return Piece("clutter", 0.0, _hull(*((corner, radius) for corner in corners)), _choose_colour(rng, 0.7))


def _choose_scene(rng: np.random.Generator, body: PosedBody) -> tuple[Picture, list[Piece]]:
    """Draw a backdrop `[32,32,3]` and the clutter behind the person.

    The backdrop is a wall or sky, a floor, blurry shapes and a texture.
    """
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
        left, right = _beside(body, 0, 5, 0.05)
        discs = _hull((complex(left, lowest), 0.018), (complex(right, lowest), 0.018))
        behind.append(Piece("shadow", 0.0, discs, _shade(floor, 0.75)))
    if body.seated:
        left, right = _beside(body, 2, 3, 0.09)
        high = (body.xy[2].imag + body.xy[3].imag) / 2 + 0.05 * body.scale
        corners = ((left, high), (right, high), (right, lowest), (left, lowest))
        seat = _hull(*((complex(x, y), 0.008) for x, y in corners))
        behind.append(Piece("seat", 0.0, seat, _choose_colour(rng, 0.6)))
    return np.clip(scene, 0, 255).astype(np.uint8), behind


def _beside(body: PosedBody, a: int, b: int, margin: float) -> tuple[float, float]:
    """Return the left and the right end of two points, with a margin in body heights."""
    left, right = sorted((body.xy[a].real, body.xy[b].real))
    return left - margin * body.scale, right + margin * body.scale


def _light(rng: np.random.Generator, pixels: Picture) -> Picture:
    """Change contrast, brightness and colour cast of pixels `[S,S,3]`, and add a little sensor noise."""
    contrast, brightness, grain, *cast = rng.random(6).tolist()
    gain = np.array([(0.7 + 0.45 * contrast) * (0.92 + 0.16 * c) for c in cast], np.float32)
    lit = pixels * gain + (118 * (1 - gain) + np.float32(50 * (brightness - 0.5)))
    noise = rng.integers(-128, 128, pixels.shape, np.int8)
    lit += noise * np.float32((1 + 5 * grain**2) / 74)  # 74: the standard deviation of the integers
    return np.clip(lit, 0, 255, out=lit).astype(np.uint8)


@check_ranges
def synthetic(
    train: SplitSize = 3000,
    val: SplitSize = 500,
    test: SplitSize = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(8, whole=True)] = 64,
    normalize: bool = False,
    seed: NonNegativeInt = 0,
) -> Task:
    """Draw synthetic people with varied pose, body, clothes, background and clutter, from a seed.

    Drawing takes about a millisecond per image of 64 pixels. Drawn images are kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images; each is a query for all others.
        test: number of test images.
        queries: number of test images that are queries for the others. 0: each is a query for all others.
        size: side of an image in pixels; label distances are in these pixels.
        normalize: compare poses in the frame of the person, so that neither position nor size counts.
        seed: seed of the data set.
    """
    check_queries(queries, test)

    def make(part: str, images: list[Pixels], names: list[str], joints: Picture) -> Split:
        labels, view = labels_and_view(joints, None, LSP, normalize)
        return Split(images, names, labels, *query_split(range(queries * (part == "test")), len(images)), view=view)

    return drawn_task(draw_person, seed, (train, val, test), size, "person", make)
