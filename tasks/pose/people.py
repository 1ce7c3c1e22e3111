"""Splits of people with their joints: reasons to exclude annotated people, and crops of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml._support.validation import Range
from contml.data import Split, Square, SquareCrop, View, check_queries, draw_queries, query_split
from contml.data.renderers.poses import LEGEND, PoseExplainer, PoseRenderer
from contml.data.values import refuse_outside
from contml.labels import PoseLabels

from .._readers.folders import DiskFiles, Missing, refuse_absent
from .._readers.label_maps import image_size
from .bodies import Body

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: The side of a crop, relative to the extent of the person: 1 leaves no space around it.
Margin: TypeAlias = Annotated[float, Range(1, most=10)]
#: The side of a crop in pixels.
Side: TypeAlias = Annotated[int, Range(8, whole=True)]

_NO_IMAGE = "without an image file"


class Person(NamedTuple):
    """One person in one image."""

    name: str  # the image and the number of the person in it, for errors and galleries
    file: Path
    joints: Array  # [J,2] x, y in pixels of the image, centres at integers
    marked: Array  # [J] True if the joint has coordinates
    seen: Array  # [J] False if the joint is annotated as hidden
    group: str = ""  # people of one group stay together when the test split and the queries are drawn
    image_size: tuple[int, int] | None = None  # width and height of the image that the joints belong to
    excluded: str = ""  # the reason to exclude the person; "" for a person who is kept


@dataclass(frozen=True)
class PoseOptions:
    """The options that all readers of published annotations share."""

    min_joints: int
    occluded: bool
    margin: float
    side: int
    normalize: bool
    missing: Missing
    min_size: int = 1

    def check(self, joints: int) -> None:
        """Refuse values that are out of range for a body with this number of joints."""
        min_allowed = joints // 2 + 1
        if not min_allowed <= self.min_joints <= joints:
            hint = "any two people need a joint in common"
            raise InputError("min_joints", str(self.min_joints), f"must be {min_allowed} to {joints}", hint)

    def visible(self, person: Person) -> Array:
        """Return True for the joints of a person that count, bool `[J]`."""
        return person.marked if self.occluded else person.marked & person.seen

    def square(self, person: Person) -> Square:
        """Return the square around the joints of a person that count."""
        return square_around(person.joints[self.visible(person)], self.margin)


def square_around(points: Array, margin: float) -> Square:
    """Return the square around points `[n, 2]`, with `margin` times their extent and at least 1 pixel.

    Pixel centres are at integers.
    """
    low, high = points.min(0), points.max(0)
    side = margin * max(1.0, float((high - low).max()))
    left, top = ((low + high) / 2 + 0.5 - side / 2).tolist()
    return Square(left, top, side)


def in_crop(joints: Array, squares: Sequence[Square], side: int) -> Array:
    """Convert joints `[N, J, 2]` in images to joints in their crops of `side` pixels. Pixel centres are at integers."""
    left, top, size = np.asarray(squares, np.float64).T[:, :, None, None]  # [N,1,1] each
    corner = np.concatenate([left, top], 2)  # [N,1,2]
    return np.asarray((joints + 0.5 - corner) * (side / size) - 0.5)


def exclude_unusable(source: Path, people: Sequence[Person], options: PoseOptions) -> list[Person]:
    """Return all people, with `Person.excluded` set to the reason if a person cannot be used.

    A person is excluded with too few joints, if too small, or without an image.

    Args:
        source: the file that lists the people, for errors.
        people: as the reader found them; people who are already excluded stay excluded.
        options: the requirements for a person.

    Raises:
        InputError: images do not exist and `missing` is "refuse", or no person is kept.
    """
    files = DiskFiles()
    checked = [person._replace(excluded=person.excluded or _reason(person, options, files)) for person in people]
    if options.missing == "refuse":
        missing_files = dict.fromkeys(person.file for person in checked if person.excluded == _NO_IMAGE)
        refuse_absent([*missing_files], len({person.file for person in people}), f"images of {source.name}")
    if not kept(checked):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in _count_excluded(checked).items())
        is_share = all(np.abs(person.joints[person.marked]).max(initial=0) <= 1 for person in people)
        hint = "joints are at most 1, and must be in pixels" if people and is_share else ""
        got = f"all {len(people):,} people are excluded ({reasons or 'the file lists nobody'})"
        raise InputError(str(source), got, hint=hint)
    return checked


def refuse_misplaced(people: Iterable[tuple[str, Path, Array, Array]], body: Body) -> None:
    """Refuse marked joints that cannot be in their image. The size of the image is read from its file.

    Args:
        people: for each person, the place in a file for errors, the image, the joints `[J, 2]` in pixels, and the mask
            `[J]` of marked joints.
        body: names of the joints.
    """
    sizes: dict[Path, tuple[int, int] | None] = {}
    for where, file, joints, marked in people:
        if file not in sizes:
            sizes[file] = image_size(file)  # None if the file is broken (see images.broken)
        if (size := sizes[file]) is not None:
            refuse_outside(joints, marked, size, body.names, where, file.name)


def kept(people: Iterable[Person]) -> list[Person]:
    """Return the people who are not excluded."""
    return [person for person in people if not person.excluded]


def labels_and_view(
    joints: Array, visible: Array | None, body: Body, normalize: bool, pixels: str = "pixels"
) -> tuple[PoseLabels, View]:
    """Return the labels of people with one image each, and their view in reports.

    Args:
        joints: `[N, J, 2]` in pixels of the images.
        visible: `[N, J]`, True for more than half of each row. None: every joint is visible.
        body: names and limbs of the joints.
        normalize: as in `PoseLabels`.
        pixels: the name of a pixel in the unit of label distances.
    """
    labels = PoseLabels(joints, visible, normalize=normalize, skeleton=body.skeleton)
    labels.unit, labels.part_names = labels.unit.replace("pixels", pixels), body.names
    return labels, pose_view(labels, joints, visible, body)


def pose_view(labels: PoseLabels, joints: Array, visible: Array | None, body: Body) -> View:
    """Return the view of people in reports. The arguments are as in `labels_and_view`."""
    legend = LEGEND if any(name.startswith(("right_", "left_")) for name in body.names) else ()
    renderer = PoseRenderer(joints, visible, body.skeleton, body.names)
    return View(renderer, legend, PoseExplainer(labels, renderer))


def make_crop_split(
    source: Path,
    people: Sequence[Person],
    body: Body,
    options: PoseOptions,
    queries: int | None,
    excluded: Mapping[str, int] | None = None,
    seed: int | None = None,
) -> Split:
    """Build a split of the people who are kept, each cropped from the image.

    The other people are counted in `Split.excluded`.

    Args:
        source: the file that lists the people, for errors.
        people: all people of the split, with `Person.excluded` set.
        body: names and limbs of the joints.
        options: the options of crops and comparisons.
        queries: number of people who are queries for the others. None: a fifth. 0: each is a query for all others.
        excluded: number of annotations that the reader has already excluded, by reason.
        seed: seed of the draw of queries. The draw takes whole groups, except the last. None: the first people.

    Raises:
        InputError: there are too few people, fewer than two of them are not queries, or a joint cannot be in its
            image.
    """
    counts = Counter(excluded or {}) + _count_excluded(people)
    people = kept(people)
    # If the annotations contain the size of the image, their reader has compared the sizes.
    unchecked = [person for person in people if person.image_size is None]
    refuse_misplaced(((f"{source}: {p.name}", p.file, p.joints, p.marked) for p in unchecked), body)
    if len(people) < 3:
        raise InputError(str(source), f"{len(people)} people are kept", "a split needs at least 3")
    queries = len(people) // 5 if queries is None else queries
    check_queries(queries, len(people))
    query_rows = range(queries) if seed is None else draw_queries(queries, [person.group for person in people], seed)
    squares = [options.square(person) for person in people]
    crops = [SquareCrop(p.file, square, options.side, p.image_size) for p, square in zip(people, squares, strict=True)]
    joints = in_crop(np.stack([person.joints for person in people]), squares, options.side)
    visible = np.stack([options.visible(person) for person in people])
    labels, view = labels_and_view(joints, visible, body, options.normalize, f"pixels of a crop of {options.side}")
    names, rows = [person.name for person in people], query_split(query_rows, len(people))
    return Split(crops, names, labels, *rows, excluded=dict(counts), view=view)


def _count_excluded(people: Iterable[Person]) -> Counter[str]:
    return Counter(person.excluded for person in people if person.excluded)


def _reason(person: Person, options: PoseOptions, files: DiskFiles) -> str:
    visible = options.visible(person)
    if visible.sum() < options.min_joints:
        return f"with fewer than {options.min_joints} of {len(visible)} joints"
    if np.ptp(person.joints[visible], axis=0).max() < options.min_size:
        return f"smaller than {options.min_size} pixels"
    return "" if files.has(person.file) else _NO_IMAGE
