"""Images of people and their joints, as a split: every task of this package makes its splits here."""

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
        InputError: an item has too few visible joints and `hidden` is "refuse", or no query is left.
    """
    if visible is not None:
        visible = np.asarray(visible, dtype=bool)
        if hidden == "refuse":
            _refuse_hidden(visible, names)
    labels = PoseLabels(joints, visible, squared=squared, normalize=normalize, hidden=hidden, unit=unit)
    kept: list[int] = labels.kept.tolist()
    kept_queries = sum(row < queries for row in kept)
    if queries and not kept_queries:
        raise InputError(
            f"all {queries} queries have too few visible joints; a pose needs more than half: choose other queries"
        )
    query_rows, gallery_rows = query_split(range(kept_queries), len(kept))
    return Split(
        [images[row] for row in kept],
        [names[row] for row in kept],
        labels,
        query_rows,
        gallery_rows,
        excluded={"with too few visible joints": len(names) - len(kept)} if len(kept) < len(names) else {},
        renderer=PoseRenderer(
            np.asarray(joints)[kept], None if visible is None else visible[kept], body.skeleton, body.names
        ),
    )


def _refuse_hidden(visible: Array, names: Sequence[str]) -> None:
    few = visible.sum(1) * 2 <= visible.shape[1]
    if few.any():
        row = int(few.argmax())
        raise InputError(
            f"{names[row]}: {int(visible[row].sum())} of {visible.shape[1]} joints are visible "
            f"({int(few.sum())} such items); a pose needs more than half: leave these out, or set hidden=drop"
        )
