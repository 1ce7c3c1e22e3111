"""Rows of a table as a split: images, one label space, queries and gallery, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from contml._support.text import number
from contml._support.texts import Texts
from contml.data import Split, View, query_split
from contml.data.renderers.labels import CaptionExplainer, LabelMapRenderer
from contml.data.sources import ImageFiles
from contml.labels import CaptionLabels, LabelSpace, WeightedLabels

from .drawing import SumRenderer
from .items import Items
from .label import Array


def make_split(items: Items, part: str, queries: Array, group: str | None, *, exclude_group: bool) -> Split:
    """The training, validation or test split of a table.

    Args:
        items: the items of the table.
        part: "train", "val" or "test".
        queries: the positions of the queries among its rows; empty: every row is a query.
        group: the column of the groups; None: there are none.
        exclude_group: the gallery of a query excludes its own group.
    """
    rows = items.parts.used[part]
    names = items.names.taken(rows)
    space = _label_space(items, rows).with_texts(identity=items.texts.taken(rows))
    query_rows, gallery = query_split(queries.tolist(), len(rows))
    return Split(
        images=ImageFiles(items.paths.taken(rows)),
        names=names,
        labels=space,
        queries=query_rows,
        gallery=gallery,
        excluded=items.excluded[part],
        groups=None if group is None else torch.from_numpy(_in_order(items.groups.taken(rows))),
        exclude_group=exclude_group,
        group_name=group or "",
        view=_view(items, rows, space, names),
        # Of the split that a page shows: a training split goes to worker processes.
        metadata={} if part == "train" else {name: column.values(rows) for name, column in items.metadata.items()},
    )


def _in_order(groups: Texts) -> Array:
    """The number of each row's group in the order of their names `[N]`."""
    different_groups, numbers = groups.numbered()
    order = different_groups.order()
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places[numbers]


def _label_space(items: Items, rows: Array) -> LabelSpace:
    if len(items.labels) == 1:
        return items.labels[0].space(rows)
    present = np.stack([label.present[rows] for label in items.labels], 1)
    # A row without a label takes the place of a row that has one; it does not count.
    fillers = [items.parts.train[label.present[items.parts.train]][0] for label in items.labels]
    filled_rows = [np.where(is_present, rows, filler) for is_present, filler in zip(present.T, fillers, strict=True)]
    spaces = [label.space(label_rows) for label, label_rows in zip(items.labels, filled_rows, strict=True)]
    for label, space in zip(items.labels, spaces, strict=True):
        if label.name not in space.unit:  # a report has a row for each label
            space.unit = f"{label.name}: {space.unit}"
    terms = [
        f"{'' if label.kind.weight == 1 else f'{label.kind.weight:g} x '}{label.name} / {number(mean)}"
        for label, mean in zip(items.labels, items.means, strict=True)
    ]
    weights, unit = dict(zip(spaces, items.weights, strict=True)), " + ".join(terms)
    return WeightedLabels(weights, unit, present=None if present.all() else torch.from_numpy(present))


def _view(items: Items, rows: Array, space: LabelSpace, names: Sequence[str]) -> View:
    if isinstance(space, CaptionLabels):
        return View(explainer=CaptionExplainer(space, names))
    if len(items.labels) == 1 or not isinstance(space, WeightedLabels):
        return items.labels[0].view(rows, space)
    views = [label.view(rows, each) for label, each in zip(items.labels, space.spaces, strict=True)]
    maps = {n: view.renderer for n, view in enumerate(views) if isinstance(view.renderer, LabelMapRenderer)}
    if not maps:
        return View()
    return View(SumRenderer(space, maps), max((views[n].legend for n in maps), key=len))
