"""Synthetic scenes: two to four things in a place, with colours, sizes, patterns and positions.

As in the real world, kinds have typical colours and places: cats are orange, grey or black and sit on rugs, cars are on
streets and in snow. From this, word vectors learn which words mean nearly the same. Lengths are in image widths, y
points down.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

Random: TypeAlias = np.random.Generator
Table: TypeAlias = "dict[str, float]"  # a choice and its weight


class ThingKind(NamedTuple):
    """Properties of a kind of thing; sizes are those of a large one, a small one is scaled by `SMALL`."""

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


class Relation(NamedTuple):
    """The position of thing `first` relative to thing `second`; `between` has a `third`."""

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
    """A scene of two to four things of different kinds."""
    place = PLACES[int(random.integers(len(PLACES)))]
    count = 2 + draw_weighted(random, [0.3, 0.45, 0.25])
    weights = {name: kind.places[place] for name, kind in KINDS.items() if place in kind.places}
    names: list[str] = []
    while len(names) < count:
        names.append(_pick(random, {name: weight for name, weight in weights.items() if name not in names}))
    return _arrange(random, place, names)


class _Spot(NamedTuple):
    """The position of a thing: a column of the ground, or relative to the thing in that column."""

    word: str  # ground, on, above, front
    column: int
    other: int


def _arrange(random: Random, place: str, names: list[str]) -> Scene:
    spots: list[_Spot] = []
    large = [bool(random.random() < 0.55) for _ in names]
    placed: list[int] = []
    for number, name in enumerate(names):
        free_spots = _free(name, names, large, placed, spots)
        if not free_spots:
            continue
        spot = free_spots[draw_weighted(random, [3.0 if s.word == "ground" else 4.0 for s in free_spots])]
        if spot.word in ("on", "front"):
            large[number] = False
        placed.append(number)
        spots.append(spot)
    things = _place_things(random, [names[i] for i in placed], [large[i] for i in placed], spots)
    return Scene(place, tuple(things), tuple(_relations(things, spots)))


def _free(name: str, names: list[str], large: list[bool], kept: list[int], spots: list[_Spot]) -> list[_Spot]:
    """The spots where a thing of this kind could stand."""
    grounded = [spot_index for spot_index, spot in enumerate(spots) if spot.word == "ground"]
    taken = {(spot.word, spot.column) for spot in spots}
    free_spots = [_Spot("ground", len(grounded), -1)] if len(grounded) < 3 and name != "balloon" else []
    for spot_index in grounded:
        column, other_name = spots[spot_index].column, names[kept[spot_index]]
        if {("on", column), ("above", column), ("front", column)} & taken:
            continue
        if other_name in _CARRIERS and KINDS[name].carried and name not in _CARRIERS:
            free_spots.append(_Spot("on", column, spot_index))
        height = KINDS[other_name].height * (1 if large[kept[spot_index]] else SMALL)
        if name in _FLIERS and height < 0.36:  # else there is no room above
            free_spots.append(_Spot("above", column, spot_index))
        if large[kept[spot_index]] and KINDS[name].carried and other_name != "table":
            free_spots.append(_Spot("front", column, spot_index))
    return free_spots or ([_Spot("ground", len(grounded), -1)] if len(grounded) < 3 else [])


def _place_things(random: Random, names: list[str], large: list[bool], spots: list[_Spot]) -> list[Thing]:
    num_columns = sum(spot.word == "ground" for spot in spots)
    order = random.permutation(num_columns)  # the thing chosen first need not be on the left
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
    for a, b in itertools.pairwise(ground):
        relations += [Relation(a, "left", b), Relation(b, "right", a)]
        relations += [Relation(a, "beside", b), Relation(b, "beside", a)]
    if len(ground) == 3:
        relations.append(Relation(ground[1], "between", ground[0], ground[2]))
    return relations


def _pick(random: Random, table: Table) -> str:
    return list(table)[draw_weighted(random, list(table.values()))]


def draw_weighted(random: Random, weights: Sequence[float]) -> int:
    """A position, drawn with a probability proportional to its weight."""
    remaining = random.random() * sum(weights)
    for position, weight in enumerate(weights):
        remaining -= weight
        if remaining < 0:
            return position
    return len(weights) - 1
