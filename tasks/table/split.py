"""Rows of a table as a split: images, one label space, who queries whom, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps

from contml.contracts import ImageItem
from contml.labels import LabelSpace

from ..captions.drawing import draw_captions, draw_match
from ..classes.split import class_colour, draw_class
from ..layout.drawing import draw_label_map
from .described import CaptionsLabel, MapLabel
from .drawing import READABLE, beside, draw_lines, draw_parts
from .labels import ClassLabel, Label

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class TableSplit:
    """One split of a table.

    Args:
        files: the image files of the whole table.
        rows: the rows of the table that are in the split.
        labels: its labels, read and fitted.
        weights: how much the label distance of each counts.
        space: the label space of the rows.
        queries: which of the rows, by their positions, query the others; none: every row queries all others.
    """

    def __init__(
        self,
        files: Sequence[str],
        rows: Array,
        labels: Sequence[Label],
        weights: Sequence[float],
        space: LabelSpace,
        queries: Array,
    ) -> None:
        self.files: list[str] = [files[row] for row in rows]
        self.rows = rows
        self.read, self.weights, self.labels = tuple(labels), tuple(weights), space
        asks = np.zeros(len(rows), dtype=bool)
        asks[queries] = True
        some = bool(len(queries))
        self.queries = torch.from_numpy(np.flatnonzero(asks)) if some else None
        self.gallery = torch.from_numpy(np.flatnonzero(~asks)) if some else None
        if len(self.read) > 1 or isinstance(self.read[0], CaptionsLabel):
            self.explain = self._explain

    def __len__(self) -> int:
        return len(self.files)

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        return Path(self.files[row])

    def name(self, row: int) -> str:
        """The file of a row."""
        return self.files[row]

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row with its labels, `size` pixels square: a class framed, a map over it, the rest below."""
        picture, at = self._picture(row), int(self.rows[row])
        if len(self.read) == 1:
            (label,) = self.read
            if isinstance(label, ClassLabel):
                return draw_class(picture, label.values[at], class_colour(self._class(row)), size)
            if isinstance(label, CaptionsLabel):
                return draw_captions(picture, label.values[at], size)
            if isinstance(label, MapLabel):
                return draw_label_map(picture, label.map(at), size)
        shown = picture if size < READABLE else self._with_maps(picture, at)
        return draw_lines(shown, [line for label in self.read for line in label.said(at)], size)

    def _class(self, row: int) -> int:
        assert self.labels.class_ids is not None
        return int(self.labels.class_ids[row])

    def _explain(self, query: int, row: int, size: int) -> Image.Image:
        """Why two rows are near or far: the label distance of each label, or which words were matched."""
        first, second = self._picture(query), self._picture(row)
        at = (int(self.rows[query]), int(self.rows[row]))
        label = self.read[0]
        if len(self.read) == 1 and isinstance(label, CaptionsLabel):
            names = (Path(self.files[query]).name, Path(self.files[row]).name)
            captions = (label.values[at[0]], label.values[at[1]])
            vectors = {word: np.asarray(vector, np.float64) for word, vector in label.vectors.items()}
            if label.options.normalize:
                vectors = {word: vector / (np.linalg.norm(vector) or 1.0) for word, vector in vectors.items()}
            return draw_match((first, second), names, captions, vectors, size)
        parts = []
        for label, weight in zip(self.read, self.weights, strict=True):
            distance = float(label.space(np.array(at)).pairwise([0], [1]))
            above, below = (_values(label, place) for place in at)
            parts.append((label.name, (above, below), distance, weight * distance))
        return draw_parts((self._with_maps(first, at[0]), self._with_maps(second, at[1])), parts, size)

    def _with_maps(self, picture: Image.Image, at: int) -> Image.Image:
        return beside(picture, [label.map(at) for label in self.read if isinstance(label, MapLabel)])

    def _picture(self, row: int) -> Image.Image:
        with Image.open(self.files[row]) as file:
            return ImageOps.exif_transpose(file).convert("RGB")


def _values(label: Label, row: int) -> str:
    if isinstance(label, MapLabel):
        return "its label map"
    return " / ".join(line.removeprefix(f"{label.name}: ") for line in label.said(row))
