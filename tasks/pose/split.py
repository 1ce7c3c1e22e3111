"""A split of images of people with their joints: all tasks of this package use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml.data import ImageSource, Split, query_split
from contml.data.renderers.poses import PoseRenderer
from contml.labels import PoseLabels

from .bodies import Body

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def make_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    joints: Array,
    visible: Array | None,
    queries: int,
    body: Body,
    *,
    squared: bool,
    normalize: bool,
    hidden: Literal["refuse", "drop"] = "refuse",
    unit: str = "",
) -> Split:
    """A split of people; those with too few visible joints are refused, or dropped and counted in `Split.excluded`.

    Args:
        images: one per item.
        names: one per item.
        joints: `[N, J, 2]` in pixels of the images.
        visible: `[N, J]`; None: every joint is visible.
        queries: how many of the first items are queries for the others; 0: every item is a query for all others.
        body: names and limbs of the joints.
        squared: as in `PoseLabels`.
        normalize: as in `PoseLabels`.
        hidden: as in `PoseLabels`.
        unit: as in `PoseLabels`.

    Raises:
        InputError: an item has too few visible joints and `hidden` is "refuse", or no query is kept.
    """
    counts = np.full(len(names), joints.shape[1]) if visible is None else visible.sum(1)
    few = counts * 2 <= joints.shape[1]
    if hidden == "refuse" and few.any():
        row = int(few.argmax())
        got = f"{counts[row]} of {joints.shape[1]} joints are visible ({few.sum()} such items)"
        raise InputError(names[row], got, "must be more than half", "omit these items, or set hidden=drop")
    labels = PoseLabels(joints, visible, squared=squared, normalize=normalize, hidden=hidden, unit=unit)
    kept: list[int] = labels.kept.tolist()
    kept_queries = sum(row < queries for row in kept)
    if queries and not kept_queries:
        got = f"all {queries} have at most half of their joints visible"
        raise InputError("queries", got, hint="choose other queries")
    query_rows, gallery_rows = query_split(range(kept_queries), len(kept))
    return Split(
        [images[row] for row in kept],
        [names[row] for row in kept],
        labels,
        query_rows,
        gallery_rows,
        excluded={"with too few visible joints": int(few.sum())} if few.any() else {},
        renderer=PoseRenderer(joints[kept], None if visible is None else visible[kept], body.skeleton, body.names),
    )
