"""A split of images with label maps: all tasks of this package use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from contml import InputError
from contml.data import ImageSource, Split, View
from contml.data.renderers.labels import LabelMapExplainer, LabelMapRenderer, map_legend
from contml.labels import SegmentationLabels

from .._readers.splits import kept_split

#: The names of the surfaces of a room by their class ids; 0 is unknown.
SURFACES = ("unknown", "frontal wall", "left wall", "right wall", "floor", "ceiling")


def make_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    maps: np.ndarray[Any, Any],
    *,
    classes: int,
    ignore: int | None,
    queries: int = 0,
    excluded: Mapping[str, int] | None = None,
    class_names: Sequence[str] = (),
) -> Split:
    """A split of images with their label maps; items with at most half of their map labelled are excluded and counted.

    If more than half of every map is labelled, any two maps have labelled pixels in common. With less, a label distance
    may not exist.

    Args:
        images: one per item.
        names: one per item.
        maps: `[N, H, W]`: whole numbers 0 to classes - 1, or `ignore`; each covers its whole image.
        classes: the number of classes.
        ignore: the value of pixels that do not count.
        queries: this many of the first items are queries, the others the gallery; 0: every item is a query.
        excluded: items that were excluded before, by reason.
        class_names: the name of each class, for the legend; default its number.

    Raises:
        InputError: no item, or none of the queries, has enough labelled pixels.
    """
    shares = np.array([1.0 if ignore is None else np.mean(labels != ignore) for labels in maps])
    kept_rows: list[int] = np.flatnonzero(shares > 0.5).tolist()
    kept_queries = sum(row < queries for row in kept_rows)
    if not kept_rows or (queries and not kept_queries):
        problem = f"{shares[0]:.0%} of its label map is labelled"
        hint = "check ignore, or choose other queries" if kept_rows else "check ignore"
        raise InputError(names[0], problem, f"one {'query' if kept_rows else 'item'} must have more than 50%", hint)
    counts = {**(excluded or {}), "without enough labelled pixels": len(names) - len(kept_rows)}
    labels = SegmentationLabels(maps[kept_rows], classes, ignore, side=None)
    renderer = LabelMapRenderer(labels, height=int(maps.shape[1]), width=int(maps.shape[2]))
    labels.part_names = class_names or [f"class {number}" for number in range(classes)]
    view = View(renderer, map_legend(labels.part_names, ignore), LabelMapExplainer(renderer))
    return kept_split(images, names, labels, kept_rows, range(kept_queries), counts, view)
