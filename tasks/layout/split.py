"""A split of images with label maps: what every task of this package consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from contml import InputError
from contml.data import ImageSource, Split, query_split
from contml.data.renderers.label_maps import LabelMapRenderer
from contml.labels import SegmentationLabels

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def make_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    maps: Array,
    *,
    classes: int,
    ignore: int | None,
    queries: int = 0,
    min_labelled: float = 0.5,
    excluded: Mapping[str, int] | None = None,
) -> Split:
    """A split of images with their label maps; items with too few labelled pixels are left out and counted.

    If more than half of every map is labelled, any two maps have labelled pixels in common. With less, a label distance
    may not exist.

    Args:
        images: one per item.
        names: one per item.
        maps: `[N, H, W]`: whole numbers 0 to classes - 1, or `ignore`; each covers its whole image.
        classes: the number of classes.
        ignore: the value of pixels that do not count.
        queries: this many of the first items are queries, the others the gallery; 0: every item is a query.
        min_labelled: an item is kept if more than this share of its pixels is labelled.
        excluded: what was left out before, by reason.

    Raises:
        InputError: no item, or none of the queries, has enough labelled pixels.
    """
    shares = np.array([1.0 if ignore is None else np.mean(one != ignore) for one in maps])
    kept: list[int] = np.flatnonzero(shares > min_labelled).tolist()
    if not kept:
        raise InputError(
            f"{names[0]}: {shares[0]:.0%} of its label map is labelled, and no map has more than {min_labelled:.0%}; "
            "check which value is ignored"
        )
    kept_queries = sum(row < queries for row in kept)
    if queries and not kept_queries:
        raise InputError(
            f"{names[0]}: {shares[0]:.0%} of its label map is labelled, and no query has more than {min_labelled:.0%}; "
            "check which value is ignored, or choose other queries"
        )
    counts = {**(excluded or {}), "without enough labelled pixels": len(names) - len(kept)}
    query_rows, gallery_rows = query_split(range(kept_queries), len(kept))
    labels = SegmentationLabels(maps[kept], classes, ignore, side=None)
    return Split(
        images=[images[row] for row in kept],
        names=[names[row] for row in kept],
        labels=labels,
        queries=query_rows,
        gallery=gallery_rows,
        excluded={reason: count for reason, count in counts.items() if count},
        renderer=LabelMapRenderer(labels, height=int(maps.shape[1]), width=int(maps.shape[2])),
    )
