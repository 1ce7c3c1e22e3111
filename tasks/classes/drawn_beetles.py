"""The synthetic data set of classes: drawn beetles of many species, from a seed.

A species is a point in the unit cube of `TRAITS`: the shape of body, head, legs and antennae, the pattern on the back,
and the relations of its colours. Species of one genus are near each other. An image shows one specimen: rotated, bent,
scaled, with a random pose of the legs, light and shift in hue. Blades and pebbles lie around the beetle, and the image
has camera noise. Everything is drawn from distances to outlines, so edges are smooth without supersampling.

In the beetle's frame, x points to the side, and y from head (negative) to tail. 1 is half the width of the image.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.data import Pixels, Split, Task, drawn
from contml.labels import ClassLabels

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Traits: TypeAlias = "dict[str, float]"

#: The traits of a species and their ranges. Lengths are in half widths of the image. Hues are parts of a circle.
TRAITS = {
    "length": (0.30, 0.46),  # half the length of the body
    "aspect": (0.50, 0.95),  # width / length of the body
    "square": (1.7, 3.2),  # exponent of the body's outline: pointed to square
    "taper": (-0.35, 0.35),
    "thorax_length": (0.10, 0.22),
    "thorax_width": (0.50, 1.0),  # as a share of the body's width
    "head": (0.09, 0.17),
    "antenna": (0.16, 0.50),
    "antenna_angle": (0.25, 1.2),  # radians from straight ahead
    "antenna_curl": (-0.8, 0.8),
    "club": (-0.05, 0.07),  # radius of the antenna's tip; below 0: no tip
    "legs": (2.0, 4.999),  # pairs
    "leg": (0.24, 0.46),
    "knee": (0.4, 1.3),  # radians that the shin is turned backwards
    "leg_width": (0.018, 0.042),
    "pattern": (0.0, 4.0),  # bands, bars along the body, chevrons, spots
    "repeats": (1.0, 3.6),  # bands or rows of spots on half the body
    "phase": (0.0, 1.0),
    "cover": (0.25, 0.75),  # share of the back that the pattern takes
    "rim": (-0.12, 0.16),  # width of a seam round the back; below 0: no seam
    "hue": (0.0, 1.0),
    "pattern_hue": (0.0, 1.0),  # relative to the body's hue
    "thorax_hue": (-0.25, 1.25),  # 0: the body's colour, 1: the pattern's
    "value": (0.25, 0.9),
    "contrast": (-1.0, 1.0),  # of the pattern: darker or lighter than the body
    "saturation": (0.35, 0.95),
}
#: Number of species of a genus, and their distance as a share of each trait's range.
GENUS, SPREAD = 4, 0.4

#: Beginnings of words, syllables, endings of genera, endings of species.
_WORDS = """\
ab bel cal cor dis en fal gri har lam men nor or pel quin scar tor ul ver zab
ca ro li tu ve mo sa pe ni do ra lu me ti go ba xi no cy la fe hy ma du re so pi ta ze
us is er ops aea on
atus ensis icola inus osus ula ifer ator ix"""
_BEGINNINGS, _SYLLABLES, _GENERA, _EPITHETS = map(str.split, _WORDS.splitlines())
_GENUS_STREAM, _SPECIES_STREAM, _SPECIMEN_STREAM = 1, 2, 3


class Species(NamedTuple):
    """A class: the seed, its number in the data set of that seed, its name, and its traits."""

    seed: int
    number: int
    name: str
    traits: Traits


def species(seed: int, number: int) -> Species:
    """Return species `number` of the data set of a seed."""
    genus_random = np.random.default_rng([seed, _GENUS_STREAM, number // GENUS])
    species_random = np.random.default_rng([seed, _SPECIES_STREAM, number])
    position = genus_random.uniform(size=len(TRAITS)) + SPREAD * species_random.uniform(-1, 1, len(TRAITS))
    position = 1 - np.abs(1 - np.abs(position))  # reflected at the walls of the unit cube
    values = zip(TRAITS.items(), position.tolist(), strict=True)
    traits = {name: low + (high - low) * u for (name, (low, high)), u in values}
    name = f"{_word(genus_random, _GENERA).capitalize()} {_word(species_random, _EPITHETS)}"
    return Species(seed, number, name, traits)


def _word(random: np.random.Generator, endings: list[str]) -> str:
    middle = "".join(random.choice(_SYLLABLES, random.integers(1, 3)))
    return str(random.choice(_BEGINNINGS)) + middle[:-1] + str(random.choice(endings))


def draw_specimen(kind: Species, item: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw pixels `[size, size, 3]` of specimen `item` of a species."""
    random, traits = np.random.default_rng([kind.seed, _SPECIMEN_STREAM, kind.number, item]), kind.traits
    axis = ((np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1).astype(np.float32)
    x, y = np.meshgrid(axis, axis)
    edge = 2 / size  # a pixel
    picture = _ground(random, x, y, edge)
    scale, turn = random.uniform(0.85, 1.15), random.normal(0, 0.35)
    right, down = random.uniform(-0.12, 0.12), random.uniform(-0.02, 0.2)
    cos, sin = math.cos(turn) / scale, math.sin(turn) / scale
    dx, dy = x - right, y - down
    u, v = cos * dx + sin * dy, cos * dy - sin * dx
    v = v / random.uniform(0.86, 1.0)  # seen a little from behind
    u = u + random.normal(0, 0.18) * v * v  # bent
    light = random.uniform(0, 2 * math.pi)
    across, along = u - 0.09 * math.cos(light - turn), v - 0.09 * math.sin(light - turn) + 0.12
    radius = _length(across / (traits["length"] * traits["aspect"]), along / (traits["length"] + 0.12))
    shadow = np.clip(0.5 - (radius - 1) * 3, 0, 1)
    picture *= 1 - random.uniform(0.2, 0.55) * shadow[..., None]
    _paint(picture, traits, u, v, edge / scale, light - turn, random)
    _litter(picture, random, x, y, edge, int(random.integers(0, 2)), outside=True)
    return _photograph(picture, random, x, y)


def _paint(
    picture: Array, t: Traits, u: Array, v: Array, edge: float, light: float, random: np.random.Generator
) -> None:
    """Draw the beetle, limbs first."""
    shell, pattern_colour, thorax = _colours(t, random)
    dark = 0.35 * shell + 0.02
    front, half = -t["length"], t["length"] * t["aspect"]
    neck = front - 0.75 * t["thorax_length"]
    limbs, tips = _limbs(t, front, neck, random.normal(0, 0.16, 20).tolist())
    _lay(picture, _cover(_segments(u, v, limbs), edge), dark)
    if t["club"] > 0:
        for tip in tips:
            _lay(picture, _cover(_length(u - tip[0], v - tip[1]) - t["club"], edge), dark)

    for centre, width, height, square, taper, colour in (
        (neck - 0.75 * t["thorax_length"] - 0.5 * t["head"], t["head"], t["head"], 2.0, 0.0, dark + 0.1 * shell),
        (front - 0.2 * t["thorax_length"], half * t["thorax_width"], t["thorax_length"] * 1.15, 2.4, 0.15, thorax),
        (0.0, half, t["length"], t["square"], t["taper"], None),
    ):
        a, b = u / (width * (1 + taper * np.clip((v - centre) / height, -1, 1))), (v - centre) / height
        radius = (np.abs(a) ** square + np.abs(b) ** square) ** (1 / square)
        surface = _pattern(t, a, b, radius, edge / t["length"], shell, pattern_colour) if colour is None else colour
        _lay(picture, _cover((radius - 1) * min(width, height), edge), _lit(surface, a, b, radius, light, random))


def _pattern(t: Traits, a: Array, b: Array, radius: Array, edge: float, shell: Array, second: Array) -> Array:
    """Return colours `[H, W, 3]` of the back. a and b are positions on the back, from -1 to 1."""
    side, kind = np.abs(a), int(min(t["pattern"], 3))
    if kind == 3:
        rows = b * t["repeats"] + t["phase"]
        distance = _length((rows - np.floor(rows) - 0.5) / t["repeats"], (side - 0.45) * t["aspect"])
        wave, step = (0.1 + 0.35 * t["cover"]) / t["repeats"] ** 0.5 - distance, edge
    else:
        across, along = ((0.0, 1.0), (1.0, 0.15), (0.7, 0.8))[kind]
        wave = np.cos(math.pi * t["repeats"] * (across * side + along * b) * 1.3 + 2 * math.pi * t["phase"])
        wave, step = wave - math.cos(math.pi * t["cover"]), 4 * t["repeats"] * edge
    share = np.clip(0.5 + wave / step, 0, 1)
    if t["rim"] > 0:
        share = np.maximum(share, np.clip(0.5 + (radius - 1 + t["rim"]) / edge, 0, 1))
    share = share * 0.95 * np.clip(side / (1.5 * edge), 0.25, 1)  # the seam between the wing cases
    return np.asarray(shell + share[..., None] * (second - shell), np.float32)


def _colours(t: Traits, random: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return colours of shell, pattern and thorax, `[3]` each. One shift changes all hues of a specimen."""
    hue_shift, gain = random.uniform(-0.1, 0.1), random.uniform(0.85, 1.15)
    shell = _rgb(t["hue"] + hue_shift, t["saturation"], gain * t["value"])
    lift = math.copysign(0.3 + 0.5 * abs(t["contrast"]), t["contrast"])
    value = min(max(t["value"] + lift if -0.1 < t["value"] + lift < 1.1 else t["value"] - lift, 0.08), 1)
    pattern_colour = _rgb(t["hue"] + hue_shift + t["pattern_hue"], 0.35 + 0.6 * t["saturation"], gain * value)
    return shell, pattern_colour, shell + np.float32(np.clip(t["thorax_hue"], 0, 1)) * (pattern_colour - shell)


def _limbs(t: Traits, front: float, neck: float, gait: list[float]) -> tuple[Array, list[tuple[float, float]]]:
    """Return legs and antennae as segments `[S, 5]` (from, to, half width), and the tips of the antennae."""
    segments, tips = [], []
    num_pairs, half_width = int(t["legs"]), t["length"] * t["aspect"]
    for side in (-1, 1):
        for pair in range(num_pairs):
            position = (pair + 0.5) / num_pairs  # from the thorax to the middle of the body
            angle = 0.75 - 1.5 * position + gait[2 * pair + (side > 0)]
            root = (side * 0.6 * half_width, front * (1.1 - 1.1 * position))
            knee = _step(root, side, angle, t["leg"] * 0.5 + 0.4 * half_width)
            foot = _step(knee, side, angle - t["knee"] + gait[8 + pair], t["leg"] * 0.7)
            segments += [(*root, *knee, t["leg_width"]), (*knee, *foot, 0.7 * t["leg_width"])]
        base = (side * 0.4 * t["head"], neck - 0.8 * t["thorax_length"])
        angle = math.pi / 2 - t["antenna_angle"] + 0.8 * gait[16 + (side > 0)]
        middle = _step(base, side, angle, 0.5 * t["antenna"] + t["head"])
        tip = _step(middle, side, angle - t["antenna_curl"] + 0.8 * gait[18], 0.6 * t["antenna"])
        segments += [(*base, *middle, 0.02), (*middle, *tip, 0.015)]
        tips.append(tip)
    return np.array(segments, np.float32), tips


def _step(start: tuple[float, float], side: int, angle: float, length: float) -> tuple[float, float]:
    """Return the end of a segment that points outwards on a side. The angle is measured towards the head."""
    return start[0] + side * length * math.cos(angle), start[1] - length * math.sin(angle)


def _segments(x: Array, y: Array, segments: Array) -> Array:
    """Return the signed distance `[H, W]` to the nearest of segments `[S, 5]` with round ends."""
    x0, y0, x1, y1, width = segments.T[:, :, None, None]
    dx, dy = x1 - x0, y1 - y0
    share = np.clip(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy), 0, 1)
    return np.asarray((_length(x - x0 - share * dx, y - y0 - share * dy) - width).min(0), np.float32)


def _length(x: Array, y: Array) -> Array:
    return np.asarray(np.sqrt(x * x + y * y))


def _lit(colour: Array, a: Array, b: Array, radius: Array, light: float, random: np.random.Generator) -> Array:
    """Return a colour on a dome over the unit disc, with a highlight. The light comes from an angle in the image."""
    height = np.sqrt(np.clip(1 - 0.9 * radius * radius, 0.02, 1))
    facing = -0.5 * (math.cos(light) * a + math.sin(light) * b) + 0.8 * height
    gloss = np.clip(facing, 0, 1) ** 14 * random.uniform(0.05, 0.45)
    return np.asarray(colour * (0.45 + 0.6 * np.clip(facing, 0, 1))[..., None] + gloss[..., None], np.float32)


def _ground(random: np.random.Generator, x: Array, y: Array, edge: float) -> Array:
    """Paint soil, sand or leaf, with clutter."""
    base = _rgb(random.uniform(), random.uniform(0.05, 0.4), random.uniform(0.4, 0.9))
    coarse, fine = _clouds(random, 3, len(x)), _clouds(random, 9, len(x))
    tone = 1 + 0.16 * coarse + random.uniform(0, 0.12) * fine
    picture = np.asarray(base * tone[..., None], np.float32)
    _litter(picture, random, x, y, edge, int(random.integers(1, 6)))
    return picture


def _clouds(random: np.random.Generator, grains: int, size: int) -> Array:
    """Return smooth noise `[size, size]` with `grains` grains per side."""
    noise = random.normal(0, 1, (grains, grains)).astype(np.float32)
    return np.asarray(Image.fromarray(noise).resize((size, size), Image.Resampling.BICUBIC))


def _litter(
    picture: Array, random: np.random.Generator, x: Array, y: Array, edge: float, count: int, *, outside: bool = False
) -> None:
    """Draw blades and pebbles anywhere. If `outside`, draw them only near the edge of the image, on top."""
    for _ in range(count):
        colour = _rgb(random.uniform(), random.uniform(0.1, 0.7), random.uniform(0.2, 0.95))
        angle = random.uniform(0, 2 * math.pi)
        radius = random.uniform(0.95, 1.2) if outside else random.uniform(0.1, 1.2)
        cx, cy = radius * math.cos(angle), radius * math.sin(angle)
        if random.uniform() < 0.6:
            turn = angle + math.pi / 2 + random.normal(0, 0.4) if outside else random.uniform(0, math.pi)
            dx, dy = 0.7 * math.cos(turn), 0.7 * math.sin(turn)
            blade = np.array([[cx - dx, cy - dy, cx + dx, cy + dy, random.uniform(0.015, 0.07)]], np.float32)
            distance = _segments(x, y, blade)
        else:
            distance = _length(x - cx, (y - cy) * random.uniform(0.7, 1.4)) - random.uniform(0.06, 0.24)
        _lay(picture, _cover(distance, edge), colour * (1 - 0.25 * np.clip(1 + distance / 0.1, 0, 1))[..., None])


def _photograph(picture: Array, random: np.random.Generator, x: Array, y: Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Apply exposure, a colour cast, light that falls off to one side, and noise."""
    angle = random.uniform(0, 2 * math.pi)
    falloff = 1 + random.uniform(0, 0.25) * (math.cos(angle) * x + math.sin(angle) * y)
    cast = random.uniform(0.72, 1.18) * random.uniform(0.92, 1.08, 3)
    picture = picture * falloff[..., None] * cast + random.normal(0, random.uniform(0.01, 0.04), picture.shape)
    return np.asarray(np.rint(np.clip(picture, 0, 1) * 255), np.uint8)


def _cover(distance: Array, edge: float) -> Array:
    return np.asarray(np.clip(0.5 - distance / edge, 0, 1))


def _lay(picture: Array, cover: Array, colour: Array) -> None:
    picture += cover[..., None] * (colour - picture)


def _rgb(hue: float, saturation: float, value: float) -> Array:
    """Return red, green and blue, 0 to 1, `[3]`."""
    k = (np.array([5.0, 3.0, 1.0]) + 6 * hue) % 6
    return np.asarray(value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1), np.float32)


#: Numbers of the first validation and test species. Training sets never reach them. They are multiples of a genus.
_FIRST_VAL, _FIRST_TEST = 500_000, 1_000_000


#: Classes of a split, or items of a class.
_Number: TypeAlias = Annotated[int, Range(2, whole=True)]


@check_ranges
def synthetic(
    classes: _Number = 60,
    per_class: _Number = 25,
    val_classes: _Number = 20,
    val_per_class: _Number = 20,
    test_classes: _Number = 40,
    test_per_class: _Number = 20,
    size: Annotated[int, Range(8, whole=True)] = 48,
    seed: NonNegativeInt = 0,
) -> Task:
    """Draw beetles of many species, in any pose and light, with clutter. No species is in two splits.

    The seed draws the traits of each species (shape, legs, pattern, relations of colours), four species per genus. No
    genus is in two splits. A beetle of 48 pixels takes about two milliseconds to draw. Drawn images are kept in
    ~/.cache/contml.

    Args:
        classes: number of training species.
        per_class: images per training species.
        val_classes: number of validation species.
        val_per_class: images per validation species.
        test_classes: number of test species.
        test_per_class: images per test species.
        size: side of an image in pixels.
        seed: seed of the species and the images.
    """

    def draw(first: int, classes: int, per_class: int) -> Split:
        numbers = range(first, first + classes)  # no test species is a training species
        items = [(number, item) for number in numbers for item in range(per_class)]
        (pixels,) = drawn(_draw, seed, items, size, "beetles")
        kinds = {number: species(seed, number).name for number in numbers}
        labels = ClassLabels([number for number, _ in items]).with_texts([kinds[number] for number, _ in items])
        return Split([Pixels(image) for image in pixels], [f"{kinds[n]} {item + 1}" for n, item in items], labels)

    train, val = draw(0, classes, per_class), draw(_FIRST_VAL, val_classes, val_per_class)
    return Task(train, draw(_FIRST_TEST, test_classes, test_per_class), val)


def _draw(seed: int, specimen: tuple[int, int], size: int) -> tuple[Array]:
    """Draw pixels `[size, size, 3]` of a specimen. `specimen` is the number of its species, and its own number."""
    return (draw_specimen(species(seed, specimen[0]), specimen[1], size),)
