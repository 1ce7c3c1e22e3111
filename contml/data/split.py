"""A split holds images, labels, queries and gallery; a task has a training and a test split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import Rows
from contml.data.sources import ImageItem, ImageSource, Stamp, Vector
from contml.labels.base import LabelSpace

#: `renderer(picture, row, size)` returns the picture of a row, `size` pixels square, with its label drawn on it.
Renderer: TypeAlias = Callable[[Image.Image, int, int], Image.Image]
#: `explainer((query, row), (picture, picture), size)` draws why two rows are near or far, `size` pixels wide.
Explainer: TypeAlias = Callable[[tuple[int, int], tuple[Image.Image, Image.Image], int], Image.Image]

#: Side in pixels of the blank picture of an item that has only features.
_BLANK = 64


@dataclass(frozen=True)
class Split:
    """Images, labels, queries and gallery. Its parts must be picklable, since worker processes receive them.

    Args:
        images: the image source of each item.
        names: the name of each item in errors and captions: its path if it comes from a file.
        labels: the label space of the items, a root.
        queries: rows of the queries. If queries and gallery are None, each row is a query against all others.
        gallery: rows that are ranked; disjoint from the queries.
        groups: the group of each item `[N]`; the gallery of a query omits the other items of its group.
        recall_at: the values of K that papers on this data set report Recall@K for.
        excluded: number of items left out, by reason.
        renderer: draws the label of a row on its picture; None: the picture alone.
        explainer: draws why two rows are near or far; None if the task has no explanation.
    """

    images: Sequence[ImageSource]
    names: Sequence[str]
    labels: LabelSpace
    queries: Tensor | None = None
    gallery: Tensor | None = None
    groups: Tensor | None = None
    recall_at: Sequence[int] | None = None
    excluded: Mapping[str, int] = field(default_factory=dict)
    renderer: Renderer | None = None
    explainer: Explainer | None = None

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.names) == len(self.labels):
            got = f"{len(self.images)} images, {len(self.names)} names and {len(self.labels)} labels"
            raise InputError("split", got, hint="give one of each per item")
        if (self.queries is None) != (self.gallery is None):
            got = "a gallery without queries" if self.queries is None else "queries without a gallery"
            raise InputError("split", got, hint="give both, or neither: then every item is a query")
        lengths = {len(source.values) if isinstance(source, Vector) else 0 for source in self.images}
        if len(lengths) > 1:
            got = f"lengths of features {sorted(lengths)}, where 0 is an image"
            raise InputError("split", got, "must be images, or feature vectors of one length")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def feature_dim(self) -> int | None:
        """The length of the feature vectors; None if the items are images."""
        first = self.images[0] if self.images else None
        return len(first.values) if isinstance(first, Vector) else None

    def image(self, row: int) -> ImageItem:
        """Returns the image of a row: a file to decode, a picture, pixels, or features."""
        return self.images[row].read()

    def stamp(self, row: int) -> Stamp | None:
        """Returns the file of the image of a row and the crop; None if it comes from no file."""
        return self.images[row].stamp

    def name(self, row: int) -> str:
        """Returns the name of a row."""
        return self.names[row]

    def picture(self, row: int) -> Image.Image:
        """Returns the image of a row in RGB, upright."""
        source = self.images[row]
        if isinstance(source, Vector):
            if source.picture is None:
                return Image.new("RGB", (_BLANK, _BLANK), "#e4e4e0")
            source = source.picture
        item = source.read()
        if isinstance(item, Path):
            with Image.open(item) as file:
                return ImageOps.exif_transpose(file).convert("RGB")
        return (Image.fromarray(item) if isinstance(item, np.ndarray) else item).convert("RGB")

    def draw(self, row: int, size: int) -> Image.Image:
        """Returns the image of a row, `size` pixels square, with its label drawn on it."""
        picture = self.picture(row)
        if self.renderer is None:
            return picture.resize((size, size), Image.Resampling.BICUBIC)
        return self.renderer(picture, row, size)

    def explain(self, query: int, row: int, size: int) -> Image.Image | None:
        """Draws why two rows are near or far, `size` pixels wide; returns None without an explainer."""
        if self.explainer is None:
            return None
        return self.explainer((query, row), (self.picture(query), self.picture(row)), size)


@dataclass(frozen=True)
class Task:
    """A training and a test split with one kind of label.

    Args:
        train: the training split.
        test: the test split.
        val: the validation split, which selects a checkpoint or an option; None if the data set has none.
        summary: what was found and what was left out, as (label, text); `contml check` and `prepare` print it.
        columns: how the columns of a table were read: rows of text, a header first.
        suggested: a config that suits the data, and changes to it.
    """

    train: Split
    test: Split
    val: Split | None = None
    summary: Sequence[tuple[str, str]] = ()
    columns: Sequence[Sequence[str]] = ()
    suggested: tuple[str, Sequence[str]] | None = None


def query_split(queries: Rows, items: int) -> tuple[Tensor | None, Tensor | None]:
    """Returns the rows of the queries and of the gallery; (None, None) if there are no queries.

    Args:
        queries: the rows of the queries; all others are the gallery.
        items: number of items of the split.
    """
    is_query = torch.zeros(items, dtype=torch.bool)
    if queries is not None:
        is_query[as_rows(queries, items)] = True
    if not bool(is_query.any()):
        return None, None
    return is_query.nonzero()[:, 0], (~is_query).nonzero()[:, 0]


def draw_queries(count: int, items: int, seed: int) -> Rows:
    """Returns `count` random rows of a split of `items`.

    Raises:
        InputError: fewer than two items would be left in the gallery.
    """
    most = max(items - 2, 0)
    if not 0 <= count <= most:
        allowed = f"must be 0 to {most}, so that two of {items} test images are left to find"
        raise InputError("queries", str(count), allowed, "0 uses every image as a query against all others")
    rows: list[int] = np.random.default_rng(seed).choice(items, count, replace=False).tolist()
    return rows
