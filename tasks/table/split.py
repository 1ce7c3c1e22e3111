"""Rows of a table as a split: images, one label space, queries and gallery, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from contml._support.text import number
from contml.data import ImageFile, Split, query_split
from contml.data.renderers.captions import CaptionExplainer, CaptionRenderer
from contml.data.renderers.classes import ClassRenderer
from contml.data.renderers.label_maps import LabelMapRenderer
from contml.data.split import Explainer, Renderer
from contml.labels import ClassLabels, LabelSpace, SegmentationLabels, WeightedLabels

from .drawing import TableExplainer, TableRenderer
from .items import Items
from .labels import Array, CaptionsLabel, MapLabel


def make_split(items: Items, part: str, queries: Array, groups: Sequence[str] | None = None) -> Split:
    """The training, validation or test split of a table.

    Args:
        items: the items of the table.
        part: "train", "val" or "test".
        queries: the positions of the queries among its rows; empty: every row is a query.
        groups: the group of each row of the table, where the gallery of a query excludes its own group.
    """
    rows = items.parts.used[part]
    names = [items.paths[row] for row in rows]
    space = _label_space(items, rows)
    query_rows, gallery = query_split(queries.tolist(), len(rows))
    if groups is not None:
        numbers = torch.from_numpy(np.unique([groups[row] for row in rows], return_inverse=True)[1])
    return Split(
        images=[ImageFile(Path(name)) for name in names],
        names=names,
        labels=space,
        queries=query_rows,
        gallery=gallery,
        excluded=items.excluded[part],
        groups=None if groups is None else numbers,
        label_texts=[items.texts[row] for row in rows],
        renderer=_renderer(items, rows, space),
        explainer=_explainer(items, rows, names),
    )


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
        return LabelMapRenderer(space, *label.maps.shape[1:])
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
