"""Rows of a table as a split: images, one label space, queries and gallery, and a renderer of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from contml._support.packed_texts import Texts
from contml._support.text import number
from contml.data import Split, View, query_split
from contml.data.renderers.labels import LabelMapRenderer, map_colours
from contml.data.renderers.text import READABLE, draw_words
from contml.data.sources import BoxCrop, ImageFiles, ImageSource, box_of
from contml.labels import LabelSpace, WeightedLabels

from .items import Items
from .label import Array


@dataclass(frozen=True, eq=False)
class SumRenderer:
    """A renderer that draws the label maps of a row beside its picture, and its other labels below as text.

    Args:
        labels: the labels of each row.
        maps: the renderers of label maps, by the number of their label space.
    """

    labels: WeightedLabels
    maps: Mapping[int, LabelMapRenderer]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """Draw the picture with its labels, `size` pixels square."""
        if size >= READABLE:
            picture = beside(picture, [maps.map(row) for n, maps in self.maps.items() if self.labels.has(n, row)])
        return draw_words(picture, self.labels.text(row), size)


def beside(picture: Image.Image, maps: Sequence[Array]) -> Image.Image:
    """Draw a picture with label maps of its size beside it. Maps are `[H, W]` class ids. -1 is ignored and grey."""
    if not maps:
        return picture
    height = 240
    width = max(1, round(picture.width * height / picture.height))
    gap = height // 40
    canvas = Image.new("RGB", ((1 + len(maps)) * (width + gap) - gap, height), "#f4f3ef")
    canvas.paste(picture.resize((width, height), Image.Resampling.BICUBIC), (0, 0))
    for index, ids in enumerate(maps, start=1):
        map_image = Image.fromarray(map_colours(ids)).resize((width, height), Image.Resampling.NEAREST)
        canvas.paste(map_image, (index * (width + gap), 0))
    return canvas


def make_split(items: Items, part: str, queries: Array, group: str | None, *, exclude_group: bool) -> Split:
    """Build the training, validation or test split of a table.

    Args:
        items: the items of the table.
        part: "train", "val" or "test".
        queries: the positions of the queries among the rows of the part. Empty: every row is a query.
        group: the column of the groups, or None.
        exclude_group: True if the gallery of a query excludes its own group.
    """
    rows = items.parts.used[part]
    space = _label_space(items, rows).with_texts(identity=items.texts.taken(rows))
    # Only for the split that a report shows, as a training split goes to worker processes.
    metadata = {} if part == "train" else {name: column.values(rows) for name, column in items.metadata.items()}
    groups = None if group is None else torch.from_numpy(_in_order(items.groups.taken(rows)))
    searched: Any = (*query_split(queries.tolist(), len(rows)), groups, exclude_group, group or "")
    described: dict[str, Any] = {
        "excluded": items.excluded[part],
        "view": _view(items, rows, space),
        "metadata": metadata,
    }
    return Split(_images(items, rows), items.names.taken(rows), space, *searched, **described)


def _images(items: Items, rows: Array) -> Sequence[ImageSource]:
    """Return the images of some rows. A row with a box has the crop of its box."""
    paths = items.paths.taken(rows)
    if items.boxes is None:
        return ImageFiles(paths)
    return [BoxCrop(Path(path), box_of(box.tolist())) for path, box in zip(paths, items.boxes[rows], strict=True)]


def _in_order(groups: Texts) -> Array:
    """Return the number of each row's group `[N]`. Groups are numbered in the order of their names."""
    different_groups, numbers = groups.numbered()
    return np.argsort(different_groups.order())[numbers]


def _label_space(items: Items, rows: Array) -> LabelSpace:
    if len(items.labels) == 1:
        return items.labels[0].space(rows)
    present = np.stack([label.present[rows] for label in items.labels], 1)
    # A row without a label gets the label of another row, which does not count.
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


def _view(items: Items, rows: Array, space: LabelSpace) -> View:
    if len(items.labels) == 1 or not isinstance(space, WeightedLabels):
        return items.labels[0].view(rows, space)
    views = [label.view(rows, each) for label, each in zip(items.labels, space.spaces, strict=True)]
    maps = {n: view.renderer for n, view in enumerate(views) if isinstance(view.renderer, LabelMapRenderer)}
    if not maps:
        return View()
    return View(SumRenderer(space, maps), max((views[n].legend for n in maps), key=len))
