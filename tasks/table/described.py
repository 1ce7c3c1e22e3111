"""The kinds of labels that are files or texts: label maps and captions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from contml import InputError
from contml.data.renderers.label_maps import shrink
from contml.labels import CaptionLabels, LabelSpace, SegmentationLabels
from contml.labels.captions import tokens

from ..captions.split import word_vectors
from ..layout.maps import check_shape, read_image_map, to_classes
from .cells import texts
from .labels import Array, ClassLabel, Label, OrdinalLabel, TagsLabel
from .measured import DateLabel, LogNumberLabel, NumberLabel, PlaceLabel, VectorLabel

#: Maps of which more is labelled always have pixels in common: with less, a label distance may not exist.
_LABELLED = 0.5


class CaptionsLabel(Label):
    """Texts, in one or several columns or a JSON list: the label distance is that of the words' vectors."""

    kind = "captions"
    takes = (1, None)
    content = "a caption"
    needs = "a word that has a vector"
    unusable = "has no word that has a vector"

    def _read(self, cells: list[list[str]]) -> None:
        self.values: list[list[str]] = []
        for row in zip(*cells, strict=True):
            listed = [texts(cell) if len(row) == 1 else None for cell in row]
            captions = [text for cell, found in zip(row, listed, strict=True) for text in (found or [cell])]
            self.values.append([text.strip() for text in captions if text.strip() and text.strip() != "[]"])
        self.present = np.array([bool(captions) for captions in self.values])

    def merge(self, row: int, more: int) -> None:
        """Give a row the captions of another."""
        self.values[row] = [*self.values[row], *self.values[more]]

    def usable(self, train: Array, test: Array) -> Array:
        """Rows with a word that has a vector."""
        options = self.options
        path = None if options.vectors is None else Path(options.files.root) / Path(options.vectors).expanduser()
        first, second = ([self.values[row] for row in rows] for rows in (train, test))
        self.vectors = word_vectors(path, first, second, options.dim, options.seed)
        known = [any(word in self.vectors for text in row for word in tokens(text)) for row in self.values]
        return np.asarray(self.present & np.array(known))

    def fit(self, train: Array) -> None:
        """The range and the unit of the training rows."""
        self.example = self.values[train[0]][0]
        self.most = max(len(self.values[row]) for row in train)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return CaptionLabels([self.values[row] for row in rows], self.vectors, self.options.normalize)

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        return self.values[row]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        shown = self.example if len(self.example) <= 40 else self.example[:39] + "…"
        where = Path(self.options.vectors).name if self.options.vectors else "trained on the training rows"
        return f"up to {self.most} a row, {len(self.vectors):,} words with a vector ({where}): '{shown}'"


class MapLabel(Label):
    """Paths of label maps, PNG files of class numbers: the label distance is 1 - mean IoU."""

    kind = "map"
    content = "a label map"
    needs = "enough labelled pixels"
    unusable = "has at most half of its pixels labelled"

    def _read(self, cells: list[list[str]]) -> None:
        self.paths = [self.options.files.place(cell) for cell in cells[0]]
        exist = [self.options.files.has(path) for path in self.paths]
        self.present = np.array([bool(cell.strip()) and found for cell, found in zip(cells[0], exist, strict=True)])

    def problem(self, row: int) -> str:
        """What is wrong with a row that is not present."""
        if self.paths[row] == self.options.files.place(""):
            return super().problem(row)
        root = self.options.files.root
        return f"{self.name}: no such file {self.paths[row]}; paths are relative to {root}, root"

    def usable(self, train: Array, test: Array) -> Array:
        """Rows of whose map more than half is labelled; reads the maps."""
        rows = np.concatenate((train, test))
        paths, side = [self.paths[row] for row in rows], self.options.side
        maps = []
        for row, path in zip(rows, paths, strict=True):
            one = read_image_map(Path(path))
            if self.images:
                check_shape(Path(path), one, Path(self.images[row]))
            maps.append(shrink(one, side))
            if maps[-1].shape != maps[0].shape:
                raise InputError(
                    f"{path}: is {list(maps[-1].shape)}, {paths[0]} is {list(maps[0].shape)}; maps of "
                    "several sizes are compared at one: set side"
                )
        found = to_classes(paths, np.stack(maps), self.options.classes, self.options.ignore, None)
        self.classes, self.ignore = found.classes, found.ignore
        self.maps = found.maps  # [T,H,W]
        self.position = {int(row): place for place, row in enumerate(rows)}
        shares = [1.0 if self.ignore is None else float(np.mean(one != self.ignore)) for one in self.maps]
        enough = self.present.copy()
        enough[rows] &= np.array(shares) > _LABELLED
        return enough

    #: The images of all rows, whose shapes the maps must have.
    images: list[str] | None = None

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return SegmentationLabels(self._of(rows), self.classes, self.ignore, side=None)

    def map(self, row: int) -> Array:
        """The label map of a row `[H, W]` as it is compared: class ids, -1 where ignored."""
        one = self.maps[self.position[row]].astype(np.int64)
        return one if self.ignore is None else np.where(one == self.ignore, -1, one)

    def _of(self, rows: Array) -> Array:
        return np.asarray(self.maps[[self.position[int(row)] for row in rows]])

    def lines(self, row: int) -> list[str]:  # noqa: ARG002
        """Nothing: a map is drawn, not written."""
        return []

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        side = f", compared at {self.maps.shape[2]} x {self.maps.shape[1]} pixels"
        return f"{self.classes} classes{'' if self.ignore is None else f', {self.ignore} ignored'}{side}; 1 - mean IoU"


#: Every kind by its name in a config.
KINDS: dict[str, type[Label]] = {
    kind.kind: kind
    for kind in (
        *(ClassLabel, NumberLabel, LogNumberLabel, DateLabel, VectorLabel, PlaceLabel),
        *(OrdinalLabel, TagsLabel, CaptionsLabel, MapLabel),
    )
}
