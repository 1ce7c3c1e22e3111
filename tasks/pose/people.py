"""People as a reader found them, to splits of crops: who is left out, why, and who queries whom."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from contml import InputError

from .bodies import Body
from .crops import Crop, Square, in_crop, square_round
from .split import PoseSplit

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Person(NamedTuple):
    """One person in one image."""

    name: str  # the image and which of its people, as errors and galleries tell it
    file: Path
    joints: Array  # [J,2] x, y in pixels of the image, centres at integers
    marked: Array  # [J] whether there are coordinates
    seen: Array  # [J] whether the joint is not hidden, as far as that is told
    group: str  # people of one group stay together where a split or the queries are drawn
    place: tuple[float, float, float] | None = None  # centre and size of the person, as the annotation tells them
    image_size: tuple[int, int] | None = None  # width and height that the joints are told in


@dataclass(frozen=True)
class Options:
    """What every reader of official files lets a config set."""

    min_joints: int
    occluded: bool
    margin: float
    side: int
    squared: bool
    normalize: bool
    missing: Literal["refuse", "drop"]
    by_place: bool = False
    min_size: int = 1

    def check(self, joints: int) -> None:
        """Refuse what fits no body of so many joints.

        Raises:
            InputError: an option is out of range.
        """
        least = joints // 2 + 1
        if not least <= self.min_joints <= joints:
            raise InputError(
                f"task.min_joints={self.min_joints}: allowed are {least} to {joints}, so that any two people have one "
                "in common"
            )
        if not 1 <= self.margin <= 10:
            raise InputError(f"task.margin={self.margin}: allowed are 1 (nothing beside the person) to 10")
        for name, value, low in (("side", self.side, 8), ("min_size", self.min_size, 1)):
            if value < low:
                raise InputError(f"task.{name}={value}: allowed are {low} and more")


class Chosen(NamedTuple):
    """Who is kept, and how many were left out for which reason."""

    people: list[Person]
    left_out: Counter[str]

    def fact(self, found: int, images: int) -> str:
        """In words: how many of those that were found are kept, and why the others are not."""
        kept = f"{len(self.people):,} kept of {found:,} in {images:,} images"
        return f"{kept}; left out: {reasons}" if (reasons := _words(self.left_out)) else kept


def choose(source: Path, people: Sequence[Person], options: Options) -> Chosen:
    """The people that have joints, size and image enough; `source` is the file that tells of them.

    Raises:
        InputError: images are missing and task.missing is refuse, or nobody is left.
    """
    files, left_out = _Files(), Counter[str]()
    kept, away = [], []
    for person in people:
        known = _known(person, options)
        if known.sum() < options.min_joints:
            left_out[f"with fewer than {options.min_joints} of {len(known)} joints"] += 1
        elif options.by_place and person.place is None:
            left_out["without scale or place"] += 1
        elif np.ptp(person.joints[known], axis=0).max() < options.min_size:
            left_out[f"smaller than {options.min_size} pixels"] += 1
        elif not files.has(person.file):
            away.append(person.file)
        else:
            kept.append(person)
    if away and options.missing == "refuse":
        raise InputError(
            f"{away[0]}: no such image ({len(set(away)):,} images of {source} are missing); check task.root and "
            "the folders of images, or set task.missing=drop to leave their people out"
        )
    left_out["whose image is missing"] = len(away)
    if not kept:
        raise InputError(f"{source}: nobody is left of {len(people):,} people ({_words(left_out) or 'it has none'})")
    return Chosen(kept, left_out)


def make_split(source: Path, people: Sequence[Person], body: Body, options: Options, queries: int) -> PoseSplit:
    """A split of crops; the first `queries` people query the others, 0: each queries all others.

    Raises:
        InputError: too few people, or more queries than leave two to find.
    """
    if len(people) < 3:
        raise InputError(f"{source}: {len(people)} people are left; a split needs at least 3")
    if not 0 <= queries <= len(people) - 2:
        raise InputError(
            f"task.queries={queries}: {source} leaves {len(people):,} test people; allowed are 0 to "
            f"{len(people) - 2:,}, so that two are left to find"
        )
    known = np.stack([_known(person, options) for person in people])
    squares = [_square(person, seen, options) for person, seen in zip(people, known, strict=True)]
    pixels = "person scale" if options.normalize else "pixel"
    crop = "" if options.normalize else f" of a crop of {options.side}"
    return PoseSplit(
        [Crop(who.file, square, options.side, who.image_size) for who, square in zip(people, squares, strict=True)],
        [person.name for person in people],
        in_crop(np.stack([person.joints for person in people]), squares, options.side),
        known,
        queries,
        joint_names=body.names,
        skeleton=body.skeleton,
        squared=options.squared,
        normalize=options.normalize,
        hidden="refuse",
        unit=f"squared {pixels}s{crop}, summed over {len(body.names)} joints"
        if options.squared
        else f"{pixels}s{crop}, over {len(body.names)} joints",
    )


def shuffled(people: Sequence[Person], seed: int) -> list[Person]:
    """The people in an order drawn by seed, groups whole; a group's place depends on nothing but seed and name."""
    return sorted(people, key=lambda person: draw(person.group, seed))


def draw(group: str, seed: int) -> float:
    """A number from 0 to 1 for a group: the same on every machine, whoever else there is."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{group}".encode()).digest()[:8], "big") / 2**64


def a_folder(root: str) -> Path:
    """The folder of a data set.

    Raises:
        InputError: there is none.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"task.root={root}: no such folder; give the folder of the data set")
    return folder


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)


def _known(person: Person, options: Options) -> Array:
    return person.marked if options.occluded else person.marked & person.seen


def _square(person: Person, known: Array, options: Options) -> Square:
    if not options.by_place or person.place is None:
        return square_round(person.joints[known], options.margin)
    x, y, size = person.place
    side = options.margin * size
    return Square(x + 0.5 - side / 2, y + 0.5 - side / 2, side)


class _Files:
    """Which files there are: every folder is listed once, which is faster than to ask for many thousand files."""

    def __init__(self) -> None:
        self._names: dict[Path, frozenset[str]] = {}

    def has(self, path: Path) -> bool:
        if path.parent not in self._names:
            try:
                self._names[path.parent] = frozenset(file.name for file in path.parent.iterdir())
            except OSError:
                self._names[path.parent] = frozenset()
        return path.name in self._names[path.parent]
