"""A split: images, their labels, queries and gallery; and a task: a training and a test split."""

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

#: `renderer(picture, row, size)`: the picture of a row, `size` pixels square, with its label drawn on it.
Renderer: TypeAlias = Callable[[Image.Image, int, int], Image.Image]
#: `explainer((query, row), (picture, picture), size)`: why two rows are near or far, `size` pixels wide.
Explainer: TypeAlias = Callable[[tuple[int, int], tuple[Image.Image, Image.Image], int], Image.Image]


#: Pixels of the blank picture of an item that has only features.
_BLANK = 64


@dataclass(frozen=True)
class Split:
    """Images, their labels, queries and gallery. Worker processes receive it, so its parts can be pickled.

    Args:
        images: where the image of each item comes from.
        names: what to call each item in an error or a caption: the path of a file where there is one.
        labels: the label space of the items, a root.
        queries: rows that are queries; None with gallery None: every row is a query against all the others.
        gallery: rows that are ranked; disjoint from the queries.
        groups: the group of each item `[N]`, where the other items of a query's own group are left out of its gallery.
        recall_at: the K at which papers on the data report Recall@K.
        excluded: how many items were left out, by reason.
        renderer: draws the label of a row on its picture; None: the picture alone.
        explainer: draws why two rows are near or far, where the task can say.
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
            raise InputError(
                f"there are {len(self.images)} images, {len(self.names)} names and {len(self.labels)} labels; "
                "give one of each for every item"
            )
        if (self.queries is None) != (self.gallery is None):
            raise InputError("a split has queries and a gallery, or neither: then every item is a query")

        lengths = {len(source.values) if isinstance(source, Vector) else 0 for source in self.images}
        if len(lengths) > 1:
            raise InputError("a split has images, or feature vectors of one length; these are mixed")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def feature_dim(self) -> int | None:
        """The length of the feature vectors that stand in place of images; None where there are images."""
        first = self.images[0] if self.images else None
        return len(first.values) if isinstance(first, Vector) else None

    def image(self, row: int) -> ImageItem:
        """The image of a row: a file to decode, a picture, pixels, or features."""
        return self.images[row].read()

    def stamp(self, row: int) -> Stamp | None:
        """The file that the image of a row is made of, and how; None where it comes from no file."""
        return self.images[row].stamp

    def name(self, row: int) -> str:
        """What to call a row."""
        return self.names[row]

    def picture(self, row: int) -> Image.Image:
        """The image of a row in RGB, upright."""
        source = self.images[row]
        if isinstance(source, Vector) and source.picture is None:
            return Image.new("RGB", (_BLANK, _BLANK), "#e4e4e0")
        item = (source.picture or source).read() if isinstance(source, Vector) else source.read()
        if isinstance(item, Path):
            with Image.open(item) as file:
                return ImageOps.exif_transpose(file).convert("RGB")
        return (Image.fromarray(item) if isinstance(item, np.ndarray) else item).convert("RGB")

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, with its label drawn on it."""
        picture = self.picture(row)
        if self.renderer is None:
            return picture.resize((size, size), Image.Resampling.BICUBIC)
        return self.renderer(picture, row, size)

    def explain(self, query: int, row: int, size: int) -> Image.Image | None:
        """Why two rows are near or far, `size` pixels wide; None where the split does not say."""
        if self.explainer is None:
            return None
        return self.explainer((query, row), (self.picture(query), self.picture(row)), size)


@dataclass(frozen=True)
class Task:
    """A training and a test split with one kind of label.

    Args:
        train: what is trained on.
        test: what is evaluated.
        val: what chooses a checkpoint or an option, where the data have such a split.
        summary: what was found and what was left out, as pairs of words; `contml check` and `prepare` print them.
        columns: how the columns of a table were read: rows of texts, a header first.
        suggested: the config that suits the data, and changes to it.
    """

    train: Split
    test: Split
    val: Split | None = None
    summary: Sequence[tuple[str, str]] = ()
    columns: Sequence[Sequence[str]] = ()
    suggested: tuple[str, Sequence[str]] | None = None


def query_split(queries: Rows, items: int) -> tuple[Tensor | None, Tensor | None]:
    """Queries and gallery `(rows, rows)` of a split of so many items; (None, None) where there are no queries.

    Args:
        queries: the rows that are queries; all others are the gallery.
        items: how many items the split has.
    """
    is_query = torch.zeros(items, dtype=torch.bool)
    if queries is not None:
        is_query[as_rows(queries, items)] = True
    if not bool(is_query.any()):
        return None, None
    return is_query.nonzero()[:, 0], (~is_query).nonzero()[:, 0]


def draw_queries(count: int, items: int, seed: int) -> Rows:
    """So many rows of a split of `items`, drawn at random; none where `count` is 0.

    Raises:
        InputError: fewer than two items would be left to find.
    """
    if not 0 <= count <= max(items - 2, 0):
        raise InputError(
            f"queries is {count}; it must be 0 to {max(items - 2, 0)}, so that two of {items} test images are left to "
            "find; 0 makes every image a query against all others"
        )
    rows: list[int] = np.random.default_rng(seed).choice(items, count, replace=False).tolist()
    return rows
