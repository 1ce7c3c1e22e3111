"""People as a reader found them, to splits of crops: who is left out and why, which of them are queries."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml._support.validation import check_at_least
from contml.data import Split, Square, SquareCrop

from .._readers.folders import Files, Missing, refuse_absent
from .._readers.splits import check_queries
from .bodies import Body
from .crops import in_crop, square_round
from .split import make_split

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Person(NamedTuple):
    """One person in one image."""

    name: str  # the image and which of its people, for errors and galleries
    file: Path
    joints: Array  # [J,2] x, y in pixels of the image, centres at integers
    marked: Array  # [J] whether the joint has coordinates
    seen: Array  # [J] whether the joint is not hidden, as far as the annotation says
    group: str  # people of one group stay together when the test split and the queries are drawn
    place: tuple[float, float, float] | None = None  # x, y of the centre and size, as annotated
    image_size: tuple[int, int] | None = None  # width and height of the image that the joints belong to
    excluded: str = ""  # why the person is left out; empty for a person who is kept


@dataclass(frozen=True)
class Options:
    """The options that every reader of official files has."""

    min_joints: int
    occluded: bool
    margin: float
    side: int
    squared: bool
    normalize: bool
    missing: Missing
    by_place: bool = False
    min_size: int = 1

    def check(self, joints: int) -> None:
        """Refuse values that no body with this number of joints allows.

        Raises:
            InputError: an option is out of range.
        """
        least = joints // 2 + 1
        if not least <= self.min_joints <= joints:
            raise InputError(
                f"min_joints is {self.min_joints}; it must be {least} to {joints}, so that any two people have a "
                "joint in common"
            )
        if not 1 <= self.margin <= 10:
            raise InputError(f"margin is {self.margin}; it must be 1 to 10, where 1 leaves no space around a person")
        check_at_least(8, side=self.side)
        check_at_least(1, min_size=self.min_size)


def exclude_unusable(source: Path, people: Sequence[Person], options: Options) -> list[Person]:
    """All the people; those with too few joints, too small or without an image say in `excluded` why they are left out.

    Args:
        source: the file that lists them, for errors.
        people: as the reader found them.
        options: what a person must have.

    Raises:
        InputError: images are missing and missing is refuse, or nobody is left.
    """
    files = Files()
    checked = [person._replace(excluded=_reason(person, options, files)) for person in people]
    if options.missing == "refuse":
        away = dict.fromkeys(person.file for person in checked if person.excluded == _NO_IMAGE)
        refuse_absent([*away], len({person.file for person in people}), f"images of {source.name}")
    if not kept(checked):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in reasons_of(checked).items())
        raise InputError(f"{source}: none of its {len(people):,} people is left ({reasons or 'it lists nobody'})")
    return checked


def kept(people: Iterable[Person]) -> list[Person]:
    """Those who are not left out."""
    return [person for person in people if not person.excluded]


def reasons_of(people: Iterable[Person]) -> Counter[str]:
    """How many people are left out, by reason."""
    return Counter(person.excluded for person in people if person.excluded)


def make_crop_split(
    source: Path,
    people: Sequence[Person],
    body: Body,
    options: Options,
    queries: int,
    excluded: Mapping[str, int] | None = None,
) -> Split:
    """A split of the people who are kept, each cut out of the image; the others are counted in `Split.excluded`.

    Args:
        source: the file that lists the people, for errors.
        people: all of the split; who of them are left out is in `Person.excluded`.
        body: names and limbs of the joints.
        options: how people are cut out and compared.
        queries: how many of the first people are queries for the others; 0: each is a query for all others.
        excluded: annotations that were left out before, by reason.

    Raises:
        InputError: there are too few people, or so many queries that fewer than two people are left to find.
    """
    left_out = Counter(excluded or {}) + reasons_of(people)
    people = kept(people)
    if len(people) < 3:
        raise InputError(f"{source}: {len(people)} people are left; a split needs at least 3")
    check_queries(queries, len(people))
    visible = np.stack([_visible(person, options) for person in people])
    squares = [_square(person, row, options) for person, row in zip(people, visible, strict=True)]
    pixels = "person scale" if options.normalize else "pixel"
    crop = "" if options.normalize else f" of a crop of {options.side}"
    split = make_split(
        [
            SquareCrop(person.file, square, options.side, person.image_size)
            for person, square in zip(people, squares, strict=True)
        ],
        [person.name for person in people],
        in_crop(np.stack([person.joints for person in people]), squares, options.side),
        visible,
        queries,
        body,
        squared=options.squared,
        normalize=options.normalize,
        unit=f"squared {pixels}s{crop}, summed over {len(body.names)} joints"
        if options.squared
        else f"{pixels}s{crop}, over {len(body.names)} joints",
    )
    return replace(split, excluded=dict(left_out))


def shuffled(people: Sequence[Person], seed: int) -> list[Person]:
    """The people in an order drawn by seed, groups whole; a group's position depends only on the seed and its name."""
    return sorted(people, key=lambda person: draw(person.group, seed))


def draw(group: str, seed: int) -> float:
    """A number from 0 to 1 for a group: the same on every machine, whatever other groups there are."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{group}".encode()).digest()[:8], "big") / 2**64


_NO_IMAGE = "without an image file"


def _reason(person: Person, options: Options, files: Files) -> str:
    visible = _visible(person, options)
    if visible.sum() < options.min_joints:
        return f"with fewer than {options.min_joints} of {len(visible)} joints"
    if options.by_place and person.place is None:
        return "without an annotated position and size"
    if np.ptp(person.joints[visible], axis=0).max() < options.min_size:
        return f"smaller than {options.min_size} pixels"
    return "" if files.has(person.file) else _NO_IMAGE


def _visible(person: Person, options: Options) -> Array:
    """Which joints count `[J]`."""
    return person.marked if options.occluded else person.marked & person.seen


def _square(person: Person, visible: Array, options: Options) -> Square:
    if not options.by_place or person.place is None:
        return square_round(person.joints[visible], options.margin)
    x, y, size = person.place
    side = options.margin * size
    return Square(x + 0.5 - side / 2, y + 0.5 - side / 2, side)
