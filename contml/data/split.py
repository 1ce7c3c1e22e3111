"""A split holds images, labels, queries and gallery; a task has a training and a test split."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from PIL import Image
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import Rows
from contml.data.decode import ImageItem, decode
from contml.data.sources import ImageSource, Stamp, Vector, as_sources
from contml.labels.base import LabelSpace, check_label_space

#: `renderer(picture, row, size)` returns the picture of a row, `size` pixels square, with its label drawn on it.
Renderer: TypeAlias = Callable[[Image.Image, int, int], Image.Image]
#: `facts(row, caption)` returns what a caption states about a row: kind, text, and whether it is true.
Facts: TypeAlias = Callable[[int, str], list[tuple[str, str, bool]]]
#: `describer(row)` returns the label of a row in words, one line or several.
Describer: TypeAlias = Callable[[int], str]


@dataclass(frozen=True)
class Explanation:
    """Why two rows are near or far.

    Args:
        pictures: a title and a picture each, to be shown beside or below each other.
        header: the titles of the columns of a table: the parts of the label distance.
        rows: its rows.
    """

    pictures: Sequence[tuple[str, Image.Image]]
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


#: `explainer((query, row), (picture, picture), size)` explains why two rows are near or far, in pictures of at most
#: `size` pixels.
Explainer: TypeAlias = Callable[[tuple[int, int], tuple[Image.Image, Image.Image], int], Explanation]

#: The names of splits in messages.
SPLIT_TITLES = {"train": "training", "val": "validation", "test": "test"}

#: Side in pixels of the blank picture of an item that has only features.
_BLANK = 64


@dataclass(frozen=True)
class Split:
    """Images, labels, queries and gallery. Its parts must be picklable, since worker processes receive them.

    Args:
        images: the image source of each item; also files, pictures, pixels, or a map-style data set of torch without a
            transform, whose labels are not read.
        names: the name of each item in errors and captions: its path if it comes from a file.
        labels: the label space of the items, a root.
        queries: rows of the queries. If queries and gallery are None, each row is a query against all others.
        gallery: rows that are ranked; disjoint from the queries.
        groups: the group of each item `[N]`; the gallery of a query omits the other items of its group.
        places: rankings are cut at so many places, so that splits of other sizes, such as folds, have the same K; None:
            they are not.
        recall_at: the values of K that papers on this data set report Recall@K for.
        label_texts: what identifies the label of each item in the record of a run, such as the cells of a table; None:
            the content of the label space.
        excluded: number of items left out, by reason.
        renderer: draws the label of a row on its picture; None: the picture alone.
        describer: the label of a row in words, which a page writes below the picture of the row; None: it has no words.
            Without a legend, the page shows the picture without what the renderer draws on it.
        legend: what the colours of the renderer mean: "#rrggbb" and a name each.
        explainer: explains why two rows are near or far; None: the label space alone says it.
        captions: the captions of each item, which a captioner learns and is compared with; None: the data have none.
        facts: finds the facts that a caption states about a row; None: what is true is not known.
    """

    images: Sequence[ImageSource]
    names: Sequence[str]
    labels: LabelSpace
    queries: Tensor | None = None
    gallery: Tensor | None = None
    groups: Tensor | None = None
    places: int | None = None
    recall_at: Sequence[int] | None = None
    label_texts: Sequence[str] | None = None
    excluded: Mapping[str, int] = field(default_factory=dict)
    renderer: Renderer | None = None
    describer: Describer | None = None
    legend: Sequence[tuple[str, str]] = ()
    explainer: Explainer | None = None
    captions: Sequence[Sequence[str]] | None = None
    facts: Facts | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", as_sources(self.images))
        check_label_space("labels", self.labels)
        if not len(self.images) == len(self.names) == len(self.labels):
            got = f"{len(self.images)} images, {len(self.names)} names and {len(self.labels)} labels"
            raise InputError("split", got, hint="give one of each per item")
        if (self.queries is None) != (self.gallery is None):
            got = "a gallery without queries" if self.queries is None else "queries without a gallery"
            raise InputError("split", got, hint="give both, or neither: then every item is a query")
        shapes = {source.values.shape if isinstance(source, Vector) else () for source in self.images}
        if len(shapes) > 1:
            got = f"features of shapes {sorted(map(list, shapes))}, where [] is an image"
            raise InputError("split", got, "must be images, or features of one shape")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def feature_dim(self) -> int | None:
        """The length of the feature vectors, or of those of the feature maps; None if the items are images."""
        source = self.images[0] if self.images else None
        return source.values.shape[-1] if isinstance(source, Vector) else None

    def image(self, row: int) -> ImageItem:
        """Returns the image of a row: a file to decode, a picture, pixels, or features."""
        return self.images[row].read()

    def stamp(self, row: int) -> Stamp | None:
        """Returns the file of the image of a row and the crop; None if it comes from no file."""
        return self.images[row].stamp

    def name(self, row: int) -> str:
        """Returns the name of a row."""
        return self.names[row]

    def with_short_names(self) -> Split:
        """Returns the split with names for pages: absolute paths begin below the folder that all of them share."""
        folders = [os.path.dirname(name) for name in self.names if os.path.isabs(name)]  # noqa: PTH117, PTH120
        if not folders:
            return self
        shared = os.path.join(os.path.commonpath(folders), "")  # noqa: PTH118
        return replace(self, names=[name.removeprefix(shared) for name in self.names])

    def picture(self, row: int, min_size: int | None = None) -> Image.Image:
        """Returns the image of a row in RGB, upright; `min_size` as in `contml.data.decode.decode`.

        Raises:
            OSError: it cannot be decoded.
        """
        source = self.images[row]
        if isinstance(source, Vector):
            if source.picture is None:
                return Image.new("RGB", (_BLANK, _BLANK), "#e4e4e0")
            source = source.picture
        return decode(source.read(), self.name(row), min_size)

    def subset(self, rows: Rows) -> Split:
        """Returns a split of some rows, in this order. Its queries and gallery are ascending."""
        index = as_rows(rows, len(self))
        kept_rows = index.tolist()
        if kept_rows == list(range(len(self))):
            return self
        new_rows = torch.full((len(self),), -1)
        new_rows[index] = torch.arange(len(kept_rows))

        def moved(old: Tensor | None) -> Tensor | None:
            return None if old is None else new_rows[old][new_rows[old] >= 0].sort().values

        return replace(
            self,
            images=[self.images[row] for row in kept_rows],
            names=[self.names[row] for row in kept_rows],
            labels=self.labels[index].as_root(),
            queries=moved(self.queries),
            gallery=moved(self.gallery),
            groups=None if self.groups is None else self.groups[index],
            label_texts=None if self.label_texts is None else [self.label_texts[row] for row in kept_rows],
            renderer=None if self.renderer is None else _SubsetRenderer(self.renderer, kept_rows),
            describer=None if self.describer is None else _SubsetDescriber(self.describer, kept_rows),
            explainer=None if self.explainer is None else _SubsetExplainer(self.explainer, kept_rows),
            captions=None if self.captions is None else [self.captions[row] for row in kept_rows],
            facts=None if self.facts is None else _SubsetFacts(self.facts, kept_rows),
        )

    def draw(self, row: int, size: int) -> Image.Image:
        """Returns the image of a row, `size` pixels square, with its label drawn on it."""
        picture = self.picture(row)
        if self.renderer is None:
            return picture.resize((size, size), Image.Resampling.BICUBIC)
        return self.renderer(picture, row, size)

    def explain(self, query: int, row: int, size: int) -> Explanation | None:
        """Explains why two rows are near or far, in pictures of at most `size` pixels; None without an explainer."""
        if self.explainer is None:
            return None
        return self.explainer((query, row), (self.picture(query), self.picture(row)), size)


@dataclass(frozen=True)
class _SubsetRenderer:
    """The renderer of some rows of a split."""

    renderer: Renderer
    rows: Sequence[int]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        return self.renderer(picture, self.rows[row], size)


@dataclass(frozen=True)
class _SubsetDescriber:
    """The describer of some rows of a split."""

    describer: Describer
    rows: Sequence[int]

    def __call__(self, row: int) -> str:
        return self.describer(self.rows[row])


@dataclass(frozen=True)
class _SubsetExplainer:
    """The explainer of some rows of a split."""

    explainer: Explainer
    rows: Sequence[int]

    def __call__(self, pair: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> Explanation:
        return self.explainer((self.rows[pair[0]], self.rows[pair[1]]), pictures, size)


@dataclass(frozen=True)
class _SubsetFacts:
    """The facts of some rows of a split."""

    facts: Facts
    rows: Sequence[int]

    def __call__(self, row: int, caption: str) -> list[tuple[str, str, bool]]:
        return self.facts(self.rows[row], caption)


@dataclass(frozen=True)
class Task:
    """A training, a validation and a test split with one kind of label.

    Args:
        train: the training split.
        test: the test split; None: the data have none, and the validation split is evaluated.
        val: the validation split, which selects a checkpoint or an option; None: one can be drawn from `train`.
        val_groups: the group of each training item, which a drawn validation split does not divide; None: its class, if
            no class is both in training and in testing, else the item alone.
        summary: what was found and what was left out, as (label, text); `contml check` and `prepare` print it.
        columns: how the columns of a table were read: rows of text, a header first.
        suggested: returns a config that suits a training split of the data, and changes to it.
    """

    train: Split
    test: Split | None
    val: Split | None = None
    val_groups: Sequence[str] | None = None
    summary: Sequence[tuple[str, str]] = ()
    columns: Sequence[Sequence[str]] = ()
    suggested: Callable[[Split], tuple[str, Sequence[str]]] | None = None

    def __post_init__(self) -> None:
        if self.test is None and self.val is None:
            raise InputError("task", "neither a test nor a validation split", hint="give one of them")
        if self.val_groups is not None and len(self.val_groups) != len(self.train):
            got = f"{len(self.val_groups)} val_groups for {len(self.train)} training items"
            raise InputError("task", got, hint="give one per item")

    @property
    def splits(self) -> dict[str, Split]:
        """The splits by name: "train", "val", "test"."""
        splits = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    def with_splits(self, splits: Mapping[str, Split], **changes: Any) -> Task:
        """The task with `splits` in place of its splits of the same names."""
        return replace(self, **{"train": self.train, "val": self.val, "test": self.test, **splits, **changes})

    @property
    def evaluated(self) -> Split:
        """The split whose metrics are the result: the test split, or the validation split if there is none."""
        return self.splits[self.evaluated_name]

    @property
    def evaluated_name(self) -> Literal["test", "val"]:
        """The name of that split: "test" or "val"."""
        return "val" if self.test is None else "test"


def check_split(split: object) -> None:
    """Refuses what is no split, such as a data set of torch.

    Raises:
        InputError: it is none.
    """
    if not isinstance(split, Split):
        got, hint = f"a {type(split).__name__}", "make contml.data.Split(dataset, names, labels)"
        raise InputError("split", got, "must be a split: images, names and labels", hint)


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
