"""Synthetic scenes of two to four things, and their pictures. A thing is a few polygons, ellipses and arcs.

As in the real world, kinds have typical colours and places: cats are orange, grey or black and sit on rugs, cars are on
streets and in snow. From this, word vectors learn which words have similar meanings. Lengths are in image widths, y
points down.

Shapes are in the thing's own box: x from -0.5 to 0.5 of its width, y from 0 at its foot to 1 at its top. Things are
drawn three times larger and averaged down. The backdrop is smooth and is drawn at the final size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageChops, ImageDraw

Random: TypeAlias = np.random.Generator
Table: TypeAlias = "dict[str, float]"  # a choice and its weight


class ThingKind(NamedTuple):
    """Properties of a kind of thing. Sizes are for a large thing. A small thing is scaled by `SMALL`."""

    width: float
    height: float
    places: Table
    colours: Table
    patterns: Table
    carried: bool  # may be on a box or a table


class Thing(NamedTuple):
    """One thing: the middle of its foot is at (x, base). Things are drawn in the order of their depth."""

    kind: str
    colour: str
    pattern: str
    large: bool
    x: float
    base: float
    width: float
    height: float
    depth: float
    flying: bool

    @property
    def looks(self) -> str:
        """The kind, or "flying bird"."""
        return "flying bird" if self.flying and self.kind == "bird" else self.kind


class Relation(NamedTuple):
    """The position of thing `first` relative to thing `second`. "between" also uses a thing `third`."""

    first: int
    word: str
    second: int
    third: int = -1


class Scene(NamedTuple):
    """A place, the things in it, and all relations between them."""

    place: str
    things: tuple[Thing, ...]
    relations: tuple[Relation, ...]


SMALL = 0.6
_ANY = {"plain": 5.0, "striped": 2.0, "spotted": 2.0, "checked": 1.5}
KINDS = {
    "ball": ThingKind(0.28, 0.28, {"grass": 3, "beach": 3, "snow": 1, "room": 2, "street": 1},
        {"red": 4, "yellow": 3, "blue": 3, "white": 2, "green": 1}, _ANY, True),
    "box": ThingKind(0.31, 0.31, {"grass": 1, "beach": 1, "snow": 1, "room": 4, "street": 3},
        {"brown": 5, "blue": 2, "red": 2, "grey": 2, "green": 1}, {"plain": 5, "striped": 2, "checked": 2}, True),
    "cone": ThingKind(0.26, 0.34, {"grass": 1, "beach": 1, "snow": 1, "street": 4},
        {"orange": 6, "red": 2, "yellow": 2}, {"plain": 3, "striped": 5}, False),
    "mug": ThingKind(0.27, 0.25, {"room": 5, "beach": 1},
        {"white": 4, "blue": 3, "yellow": 2, "pink": 1}, {"plain": 4, "striped": 2, "spotted": 3}, True),
    "bottle": ThingKind(0.15, 0.40, {"room": 3, "beach": 3, "street": 1},
        {"green": 5, "brown": 3, "blue": 1, "white": 1}, {"plain": 5, "striped": 1}, True),
    "lamp": ThingKind(0.27, 0.42, {"room": 5, "street": 1},
        {"yellow": 4, "white": 3, "red": 2, "purple": 2}, {"plain": 4, "striped": 2, "spotted": 1}, True),
    "balloon": ThingKind(0.22, 0.38, {"grass": 3, "beach": 2, "snow": 1, "room": 1, "street": 2},
        {"red": 4, "pink": 4, "purple": 3, "yellow": 2, "blue": 1}, {"plain": 5, "striped": 2, "spotted": 3}, False),
    "cat": ThingKind(0.32, 0.33, {"grass": 2, "room": 5, "street": 2, "snow": 1},
        {"orange": 4, "black": 4, "grey": 4, "white": 2, "brown": 2}, {"plain": 5, "striped": 4, "spotted": 2}, True),
    "bird": ThingKind(0.29, 0.23, {"grass": 4, "beach": 3, "snow": 4, "street": 1},
        {"blue": 4, "yellow": 4, "black": 3, "red": 2, "green": 2}, {"plain": 5, "spotted": 2}, True),
    "car": ThingKind(0.42, 0.23, {"street": 6, "snow": 2, "beach": 1},
        {"red": 3, "blue": 3, "white": 3, "black": 3, "grey": 3}, {"plain": 5, "striped": 2}, False),
    "table": ThingKind(0.44, 0.25, {"room": 4, "grass": 2, "beach": 1},
        {"brown": 6, "white": 3, "green": 1}, {"plain": 4, "checked": 3}, False),
    "tree": ThingKind(0.32, 0.52, {"grass": 5, "snow": 4, "street": 3, "beach": 1},
        {"green": 6, "orange": 2, "yellow": 2, "pink": 1}, {"plain": 1}, False),
}  # fmt: skip
PLACES = ("grass", "beach", "snow", "room", "street")
#: Kinds that can carry another thing, and the height of their top as a share of their height.
_CARRIERS = {"box": 0.86, "table": 0.9}
_FLIERS = ("balloon", "bird")
#: The positions of columns and the scale of things, by the number of columns.
_COLUMNS = {1: (0.5,), 2: (0.27, 0.74), 3: (0.18, 0.51, 0.83)}
_SCALES = {1: 1.3, 2: 1.18, 3: 0.98}


def choose_scene(random: Random) -> Scene:
    """Draw a scene of two to four things of different kinds."""
    place = PLACES[int(random.integers(len(PLACES)))]
    count = 2 + draw_weighted(random, [0.3, 0.45, 0.25])
    weights = {name: kind.places[place] for name, kind in KINDS.items() if place in kind.places}
    names: list[str] = []
    while len(names) < count:
        names.append(_pick(random, {name: weight for name, weight in weights.items() if name not in names}))
    return _arrange(random, place, names)


class _Spot(NamedTuple):
    """A position for a thing: on the ground in a column, or relative to the thing in the column."""

    word: str  # ground, on, above, front
    column: int
    other: int


def _arrange(random: Random, place: str, names: list[str]) -> Scene:
    spots, placed = list[_Spot](), list[int]()
    large = [bool(random.random() < 0.55) for _ in names]
    for number, name in enumerate(names):
        free_spots = _free(name, names, large, placed, spots)
        if free_spots:
            spot = free_spots[draw_weighted(random, [3.0 if s.word == "ground" else 4.0 for s in free_spots])]
            large[number] = large[number] and spot.word not in ("on", "front")
            placed.append(number)
            spots.append(spot)
    things = _place_things(random, [names[i] for i in placed], [large[i] for i in placed], spots)
    return Scene(place, tuple(things), tuple(_relations(things, spots)))


def _free(name: str, names: list[str], large: list[bool], kept: list[int], spots: list[_Spot]) -> list[_Spot]:
    """Return the spots that are free for a thing of this kind."""
    grounded = [spot_index for spot_index, spot in enumerate(spots) if spot.word == "ground"]
    taken = {(spot.word, spot.column) for spot in spots}
    free_spots = [_Spot("ground", len(grounded), -1)] if len(grounded) < 3 and name != "balloon" else []
    for spot_index in grounded:
        column, other_name, is_large = spots[spot_index].column, names[kept[spot_index]], large[kept[spot_index]]
        if {("on", column), ("above", column), ("front", column)} & taken:
            continue
        if other_name in _CARRIERS and KINDS[name].carried and name not in _CARRIERS:
            free_spots.append(_Spot("on", column, spot_index))
        height = KINDS[other_name].height * (1 if is_large else SMALL)
        if name in _FLIERS and height < 0.36:  # otherwise there is no room above
            free_spots.append(_Spot("above", column, spot_index))
        if is_large and KINDS[name].carried and other_name != "table":
            free_spots.append(_Spot("front", column, spot_index))
    return free_spots or ([_Spot("ground", len(grounded), -1)] if len(grounded) < 3 else [])


def _place_things(random: Random, names: list[str], large: list[bool], spots: list[_Spot]) -> list[Thing]:
    num_columns = sum(spot.word == "ground" for spot in spots)
    order = random.permutation(num_columns)  # the first thing need not be on the left
    things: list[Thing] = []
    for name, is_large, spot in zip(names, large, spots, strict=True):
        kind, draws = KINDS[name], random.random(3)
        scale = (1.0 if is_large else SMALL) * (0.93 + 0.14 * draws[2]) * _SCALES[num_columns]
        width, height = scale * kind.width, scale * kind.height
        x = _COLUMNS[num_columns][order[spot.column]] + 0.06 * (draws[0] - 0.5) * (3 if num_columns == 1 else 1)
        base = 0.76 + 0.1 * draws[1]
        flying = name == "balloon"
        if spot.word != "ground":
            below = things[spot.other]
            top = below.base - below.height
            if spot.word == "on":
                base = below.base - _CARRIERS[below.kind] * below.height
                x = below.x + 0.25 * (draws[0] - 0.5) * below.width
            elif spot.word == "above":
                x, flying = below.x + 0.1 * (draws[0] - 0.5), True
                room = max(top - 0.08, 0.16)
                scale = min(1.0, room / height)
                width, height = scale * width, scale * height
                base = 0.03 + height + 0.5 * (room - height)
            else:
                base = below.base + 0.09
                x = below.x + (0.3 if draws[0] < 0.5 else -0.3) * below.width
        elif flying:
            base = 0.1 + height + 0.15 * draws[1]
        x = float(np.clip(x, width / 2 + 0.01, 0.99 - width / 2))
        colour, pattern = _pick(random, kind.colours), _pick(random, kind.patterns)
        depth = things[spot.other].depth + 0.001 if spot.word == "on" else float(base)
        things.append(Thing(name, colour, pattern, is_large, x, float(base), width, height, depth, flying))
    return things


def _relations(things: list[Thing], spots: list[_Spot]) -> list[Relation]:
    relations: list[Relation] = []
    for number, spot in enumerate(spots):
        if spot.word == "ground":
            continue
        relations.append(Relation(number, spot.word, spot.other))
        if spot.word != "on":
            relations.append(Relation(spot.other, {"above": "under", "front": "behind"}[spot.word], number))
    ground = sorted((n for n, spot in enumerate(spots) if spot.word == "ground"), key=lambda n: things[n].x)
    for a, b in pairwise(ground):
        relations += [Relation(a, "left", b), Relation(b, "right", a)]
        relations += [Relation(a, "beside", b), Relation(b, "beside", a)]
    if len(ground) == 3:
        relations.append(Relation(ground[1], "between", ground[0], ground[2]))
    return relations


def _pick(random: Random, table: Table) -> str:
    return list(table)[draw_weighted(random, list(table.values()))]


def draw_weighted(random: Random, weights: Sequence[float]) -> int:
    """Draw an index with a probability proportional to its weight."""
    remaining = random.random() * sum(weights)
    for position, weight in enumerate(weights):
        remaining -= weight
        if remaining < 0:
            return position
    return len(weights) - 1


Array: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Colour: TypeAlias = "tuple[int, int, int]"
Box: TypeAlias = "tuple[int, int, int, int]"

SUPERSAMPLING = 3
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)
COLOURS: dict[str, Colour] = {
    "red": (205, 42, 38), "orange": (240, 132, 28), "yellow": (246, 210, 52), "green": (52, 140, 62),
    "blue": (44, 92, 200), "purple": (128, 66, 166), "pink": (242, 138, 178), "brown": (126, 80, 46),
    "black": (44, 44, 50), "grey": (140, 142, 148), "white": (240, 238, 232),
}  # fmt: skip
_FIXED: dict[str, Colour] = {
    "metal": (56, 56, 62), "wheel": (30, 30, 34), "hub": (186, 188, 194), "glass": (186, 216, 232),
    "bark": (98, 68, 44), "beak": (240, 160, 40), "eye": (24, 24, 28), "cork": (150, 110, 66),
    "string": (70, 70, 76), "wood": (116, 82, 52),
}  # fmt: skip
#: Colours at the top, just above the horizon, just below it, and at the bottom.
_BACKDROPS: dict[str, tuple[Colour, Colour, Colour, Colour]] = {
    "grass": ((150, 196, 236), (206, 228, 242), (128, 178, 84), (92, 148, 62)),
    "beach": ((120, 190, 232), (96, 164, 204), (236, 214, 160), (222, 194, 134)),
    "snow": ((172, 186, 206), (206, 214, 226), (238, 242, 248), (218, 226, 238)),
    "room": ((222, 204, 178), (212, 190, 160), (158, 92, 82), (136, 72, 66)),
    "street": ((196, 188, 180), (168, 160, 154), (112, 112, 118), (88, 88, 94)),
}


class Shape(NamedTuple):
    """One shape of a thing.

    The paint "body" has the pattern, "dark" and "light" are shades. Other paints are in `_FIXED`.
    """

    paint: str
    shape: str  # polygon, ellipse, arc
    at: tuple[float, ...]  # corners of a polygon; or left, bottom, right, top of an ellipse, and angles of an arc


def _oval(paint: str, *at: float) -> Shape:
    return Shape(paint, "ellipse", at)


def _poly(paint: str, *at: float) -> Shape:
    return Shape(paint, "polygon", at)


_SHAPES: dict[str, tuple[Shape, ...]] = {
    "ball": (_oval("body", -0.5, 0, 0.5, 1),),
    "box": (_poly("light", -0.5, 0.74, 0.22, 0.74, 0.5, 1, -0.22, 1),
        _poly("dark", 0.22, 0, 0.5, 0.24, 0.5, 1, 0.22, 0.74), _poly("body", -0.5, 0, 0.22, 0, 0.22, 0.74, -0.5, 0.74)),
    "cone": (_poly("body", -0.4, 0.1, -0.04, 1, 0.04, 1, 0.4, 0.1),
        _poly("dark", -0.5, 0, 0.5, 0, 0.42, 0.12, -0.42, 0.12)),
    "mug": (Shape("dark", "arc", (0.02, 0.2, 0.5, 0.82, -100, 100)),
        _poly("body", -0.5, 0.08, -0.44, 0, 0.14, 0, 0.2, 0.08, 0.2, 0.92, -0.5, 0.92),
        _oval("dark", -0.5, 0.84, 0.2, 1)),
    "bottle": (_poly("body", -0.5, 0.03, -0.4, 0, 0.4, 0, 0.5, 0.03, 0.5, 0.55, -0.5, 0.55),
        _poly("body", -0.5, 0.54, 0.5, 0.54, 0.2, 0.72, 0.2, 0.92, -0.2, 0.92, -0.2, 0.72),
        _poly("cork", -0.26, 0.9, 0.26, 0.9, 0.26, 1, -0.26, 1)),
    "lamp": (_oval("metal", -0.34, 0, 0.34, 0.1), _poly("metal", -0.06, 0.05, 0.06, 0.05, 0.06, 0.6, -0.06, 0.6),
        _poly("body", -0.5, 0.52, 0.5, 0.52, 0.26, 1, -0.26, 1)),
    "balloon": (_poly("string", -0.03, 0, 0.03, 0, 0.03, 0.36, -0.03, 0.36),
        _poly("dark", -0.12, 0.28, 0.12, 0.28, 0, 0.38), _oval("body", -0.5, 0.33, 0.5, 1)),
    "cat": (Shape("dark", "arc", (0.08, 0.04, 0.5, 0.66, -80, 100)), _oval("body", -0.36, 0, 0.28, 0.66),
        _poly("body", -0.46, 0.72, -0.46, 1, -0.26, 0.84), _poly("body", 0.06, 0.72, 0.06, 1, -0.14, 0.84),
        _oval("body", -0.5, 0.44, 0.1, 0.92), _oval("eye", -0.38, 0.64, -0.29, 0.75),
        _oval("eye", -0.12, 0.64, -0.03, 0.75)),
    "bird": (_poly("metal", -0.06, 0, -0.02, 0, -0.02, 0.25, -0.06, 0.25),
        _poly("metal", 0.08, 0, 0.12, 0, 0.12, 0.25, 0.08, 0.25), _poly("dark", -0.5, 0.62, -0.22, 0.34, -0.12, 0.6),
        _poly("beak", 0.36, 0.84, 0.5, 0.72, 0.36, 0.66), _oval("body", -0.32, 0.14, 0.28, 0.74),
        _oval("body", 0.08, 0.5, 0.42, 1), _oval("dark", -0.24, 0.28, 0.1, 0.58), _oval("eye", 0.25, 0.74, 0.34, 0.86)),
    "flying bird": (_poly("dark", -0.5, 0.3, -0.18, 0.2, -0.1, 0.5), _poly("beak", 0.38, 0.5, 0.5, 0.38, 0.38, 0.34),
        _oval("body", -0.28, 0.1, 0.26, 0.52), _oval("body", 0.14, 0.2, 0.42, 0.62),
        _poly("dark", -0.14, 0.42, -0.34, 1, 0.14, 0.4), _oval("eye", 0.28, 0.42, 0.35, 0.52)),
    "car": (_poly("body", -0.5, 0.22, 0.5, 0.22, 0.5, 0.5, 0.34, 0.6, -0.5, 0.62),
        _poly("dark", -0.38, 0.58, -0.24, 1, 0.14, 1, 0.32, 0.58),
        _poly("glass", -0.3, 0.62, -0.2, 0.92, -0.05, 0.92, -0.05, 0.62),
        _poly("glass", 0, 0.62, 0, 0.92, 0.11, 0.92, 0.23, 0.62), _oval("wheel", -0.38, 0, -0.14, 0.44),
        _oval("wheel", 0.16, 0, 0.4, 0.44), _oval("hub", -0.31, 0.13, -0.21, 0.31),
        _oval("hub", 0.23, 0.13, 0.33, 0.31)),
    "table": (_poly("wood", -0.4, 0, -0.32, 0, -0.32, 0.7, -0.4, 0.7),
        _poly("wood", 0.32, 0, 0.4, 0, 0.4, 0.7, 0.32, 0.7),
        _poly("wood", -0.28, 0.16, -0.22, 0.16, -0.22, 0.7, -0.28, 0.7),
        _poly("wood", 0.22, 0.16, 0.28, 0.16, 0.28, 0.7, 0.22, 0.7),
        _poly("body", -0.5, 0.74, 0.5, 0.74, 0.4, 1, -0.4, 1),
        _poly("dark", -0.5, 0.64, 0.5, 0.64, 0.5, 0.75, -0.5, 0.75)),
    "tree": (_poly("bark", -0.1, 0, 0.1, 0, 0.07, 0.5, -0.07, 0.5), _oval("body", -0.5, 0.3, 0.1, 0.72),
        _oval("body", -0.1, 0.3, 0.5, 0.72), _oval("body", -0.34, 0.5, 0.34, 1)),
}  # fmt: skip


def paint_scene(random: Random, scene: Scene, size: int) -> Array:
    """Paint a scene, `[size, size, 3]`. `random` draws its light, its backdrop and the shades of colours."""
    horizon = 0.5 + 0.1 * random.random()
    backdrop = Image.fromarray(_backdrop(random, scene.place, horizon)).resize((size, size), Image.Resampling.BICUBIC)
    canvas = backdrop.resize((size * SUPERSAMPLING,) * 2, Image.Resampling.NEAREST)
    light, tint = 1 + 0.06 * random.standard_normal(), 1 + 0.018 * random.standard_normal(3)
    shades = random.normal(0, 6, (len(scene.things), 3))
    for number in sorted(range(len(scene.things)), key=lambda n: scene.things[n].depth):
        _paint_thing(canvas, scene.things[number], shades[number])
    pixels = np.asarray(canvas.reduce(SUPERSAMPLING), np.float32) * (light * tint)
    pixels += random.normal(0, 2.5, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _backdrop(random: Random, place: str, horizon: float) -> Array:
    side = 32
    top, middle, near, front = (np.array(colour) + random.normal(0, 6, 3) for colour in _BACKDROPS[place])
    y = (np.arange(side)[:, None, None] + 0.5) / side
    above, below = np.clip(y / horizon, 0, 1), np.clip((y - horizon) / (1 - horizon), 0, 1)
    ground = np.clip((y - horizon) * side + 0.5, 0, 1)
    colours = (1 - ground) * (top + above * (middle - top)) + ground * (near + below * (front - near))
    roughness = {"grass": 9.0, "beach": 5.0, "snow": 3.0, "room": 3.0, "street": 5.0}[place]
    grain = random.normal(0, 1, (side, side, 1)) * (1.5 + ground * roughness)
    if place == "room":  # wallpaper
        grain = grain + (1 - ground) * 5 * ((np.arange(side)[None, :, None] // 2) % 2)
    return np.asarray(np.clip(colours + grain, 0, 255).astype(np.uint8))


def _paint_thing(canvas: Image.Image, thing: Thing, shade: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    side = canvas.width
    rim = max(1, round(side / 140))
    left, top = int((thing.x - thing.width / 2) * side), int((thing.base - thing.height) * side)
    right, bottom = int((thing.x + thing.width / 2) * side), int(thing.base * side)
    box = left - 2 * rim, top - 2 * rim, right + 2 * rim, bottom + 2 * rim
    if not thing.flying:
        _cast_shadow(canvas, thing, box)
    colour: Colour = tuple(int(np.clip(c + s, 0, 255)) for c, s in zip(COLOURS[thing.colour], shade, strict=True))  # type: ignore[assignment]
    extent = (box[2] - box[0], box[3] - box[1])
    # Adjacent body parts form one piece.
    shapes = enumerate(_SHAPES[thing.looks])
    for _, piece in groupby(shapes, key=lambda item: "body" if item[1].paint == "body" else item[0]):
        mask = Image.new("L", extent)
        pen = ImageDraw.Draw(mask)
        for _, part in piece:
            _draw_part(pen, part, thing, side, box)
        _fill(canvas, mask, box, part.paint, colour, thing, rim)


def _draw_part(pen: ImageDraw.ImageDraw, part: Shape, thing: Thing, side: int, box: Box) -> None:
    corners = part.at if part.shape == "polygon" else part.at[:4]
    xs = [(thing.x + x * thing.width) * side - box[0] for x in corners[::2]]
    ys = [(thing.base - y * thing.height) * side - box[1] for y in corners[1::2]]
    frame = (round(xs[0]), round(ys[1]), round(xs[1]), round(ys[0]))
    if part.shape == "polygon":
        pen.polygon([*zip(map(round, xs), map(round, ys), strict=True)], fill=255)
    elif part.shape == "ellipse":
        pen.ellipse(frame, fill=255)
    else:
        pen.arc(frame, part.at[4], part.at[5], fill=255, width=max(2, round(0.1 * thing.height * side)))


def _fill(canvas: Image.Image, mask: Image.Image, box: Box, paint: str, colour: Colour, thing: Thing, rim: int) -> None:
    shades = {"dark": _mix(colour, _BLACK, 0.3), "light": _mix(colour, _WHITE, 0.3)}
    base_colour = _FIXED.get(paint) or shades.get(paint, colour)
    corner = box[:2]
    if paint not in _FIXED:  # the outline, below the shape: the same mask, moved a little in four directions
        edge = _mix(base_colour, _BLACK, 0.55)
        for dx, dy in ((-rim, 0), (rim, 0), (0, -rim), (0, rim)):
            canvas.paste(edge, (corner[0] + dx, corner[1] + dy), mask)
    if paint != "body":
        canvas.paste(base_colour, corner, mask)
        return
    canvas.paste(_pattern(mask.size, base_colour, thing.pattern), corner, mask)
    width, height = mask.size
    lit = ImageChops.offset(mask, -max(1, width // 7), -max(1, height // 9))
    shadow = ImageChops.subtract(mask, lit).point(_HALF)
    canvas.paste(_mix(base_colour, _BLACK, 0.6), corner, shadow)


def _pattern(size: tuple[int, int], colour: Colour, pattern: str) -> Image.Image:
    texture = Image.new("RGB", size, colour)
    if pattern == "plain":
        return texture
    pen = ImageDraw.Draw(texture)
    pattern_colour = _mix(colour, _BLACK, 0.62) if sum(colour) > 400 else _mix(colour, _WHITE, 0.78)
    width, height = size
    if pattern == "striped":
        step = max(6, width // 4)
        top, half = height // 2, step // 2
        for left in range(-height, width, step):
            corners = [(left, height), (left + top, 0), (left + top + half, 0), (left + half, height)]
            pen.polygon(corners, fill=pattern_colour)
    elif pattern == "spotted":
        step = max(8, width // 3)
        radius = 0.27 * step
        for row, y in enumerate(np.arange(step // 3, height, step * 0.8)):
            for x in np.arange((row % 2) * step / 2, width + step, step):
                pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=pattern_colour)
    else:
        step = max(4, width // 5)
        for row, y in enumerate(range(0, height, step)):
            for x in range((row % 2) * step, width, 2 * step):
                pen.rectangle((x, y, x + step - 1, y + step - 1), fill=pattern_colour)
    return texture


def _cast_shadow(canvas: Image.Image, thing: Thing, box: Box) -> None:
    width, height = box[2] - box[0], max(3, (box[2] - box[0]) // 5)
    mask = Image.new("L", (width, height))
    ImageDraw.Draw(mask).ellipse((width // 12, 0, width - 1, height - 1), fill=95)
    canvas.paste((20, 20, 30), (box[0] + width // 14, round(thing.base * canvas.width) - height * 2 // 3), mask)


#: A lookup table that halves the values of a mask.
_HALF = [value // 2 for value in range(256)]


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    red, green, blue = (round(x + share * (y - x)) for x, y in zip(a, b, strict=True))
    return red, green, blue
