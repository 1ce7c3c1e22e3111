"""Rows of a table as a split: images, one label space, queries and gallery, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from contml._support.text import number
from contml.data import ImageFile, Split, query_split
from contml.data.renderers.captions import CaptionExplainer, CaptionRenderer
from contml.data.renderers.classes import ClassRenderer
from contml.data.renderers.label_maps import LabelMapRenderer
from contml.data.split import Explainer, Renderer
from contml.labels import ClassLabels, LabelSpace, SegmentationLabels, WeightedLabels

from .described import CaptionsLabel, MapLabel
from .drawing import TableExplainer, TableRenderer
from .items import Items

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def make_split(
    items: Items, rows: Array, queries: Array, excluded: Mapping[str, int], groups: Sequence[str] | None = None
) -> Split:
    """A split of some rows of a table.

    Args:
        items: the items of the table.
        rows: the rows of the table that are in the split.
        queries: which of these rows are queries, by their positions; none: every row is a query.
        excluded: how many rows were left out, by reason.
        groups: the group of each row of the table, where a query's own group is left out of its gallery.
    """
    names = [items.paths[row] for row in rows]
    space = _label_space(items, rows)
    query_rows, gallery = query_split(queries.tolist(), len(rows))
    return Split(
        images=[ImageFile(Path(name)) for name in names],
        names=names,
        labels=space,
        queries=query_rows,
        gallery=gallery,
        excluded=excluded,
        groups=None if groups is None else _numbered([groups[row] for row in rows]),
        renderer=_renderer(items, rows, space),
        explainer=_explainer(items, rows, names),
    )


def _numbered(groups: Sequence[str]) -> torch.Tensor:
    return torch.from_numpy(np.unique(groups, return_inverse=True)[1])


def _label_space(items: Items, rows: Array) -> LabelSpace:
    spaces = [label.space(rows) for label in items.labels]
    if len(spaces) == 1:
        return spaces[0]
    terms = [
        f"{'' if label.weight == 1 else f'{label.weight:g} x '}{label.name} / {number(mean)}"
        for label, mean in zip(items.labels, items.means, strict=True)
    ]
    return WeightedLabels(dict(zip(spaces, items.weights, strict=True)), unit=" + ".join(terms))


def _renderer(items: Items, rows: Array, space: LabelSpace) -> Renderer:
    label = items.labels[0]
    if isinstance(space, ClassLabels):
        return ClassRenderer(space.class_ids, space.names)
    if isinstance(space, SegmentationLabels) and isinstance(label, MapLabel):
        height, width = label.maps.shape[1:]
        return LabelMapRenderer(space, height, width)
    if len(items.labels) == 1 and isinstance(label, CaptionsLabel):
        return CaptionRenderer([label.values[row] for row in rows])
    return TableRenderer(items.labels, rows)


def _explainer(items: Items, rows: Array, names: list[str]) -> Explainer | None:
    label = items.labels[0]
    if len(items.labels) > 1:
        return TableExplainer(items.labels, items.weights, rows)
    if isinstance(label, CaptionsLabel):
        return CaptionExplainer([label.values[row] for row in rows], names, label.vectors, label.options.normalize)
    return None
