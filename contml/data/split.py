"""Splits and tasks. A split holds images, labels, queries and gallery. A task has a training and a test split."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import torch
from PIL import Image
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import shared_folder
from contml._support.ids import as_group_ids
from contml._support.packed import Packed, taken
from contml._support.validation import as_rows
from contml.contracts import Rows, Sampler
from contml.data.decode import ImageItem, decode
from contml.data.renderers.text import class_colour, draw_words, name_picture
from contml.data.sources import ImageSource, Stamp, Vector, as_sources
from contml.labels.base import LabelSpace, check_label_space

#: `renderer(picture, row, size)` returns the picture of a row, `size` pixels square, with its label drawn on it.
Renderer: TypeAlias = Callable[[Image.Image, int, int], Image.Image]
#: Pictures with a title each, to be shown beside or below each other.
TitledPictures: TypeAlias = Sequence[tuple[str, Image.Image]]
#: `explainer((query, row), (picture, picture), size)` shows why two rows are near or far, in pictures of at most `size`
#: pixels.
Explainer: TypeAlias = Callable[[tuple[int, int], tuple[Image.Image, Image.Image], int], TitledPictures]

#: The names of splits in messages.
SPLIT_TITLES = {"train": "training", "val": "validation", "test": "test"}

#: The number of items in a block whose labels are compared.
_BLOCK = 256


def refuse_equal(labels: LabelSpace, subject: str = "labels") -> None:
    """Refuse training labels that are all equal, where the first item is at label distance 0 from all others.

    Items are compared until one differs. `subject` is the name in the error.

    Raises:
        InputError: all labels are equal.
    """
    if labels.kind == "triplets":  # which have no label distances
        return
    count = len(labels)
    blocks = (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))
    if (judged := labels.judged_pairs) is not None:
        differs = bool((judged.distances > 0).any())
        if not len(judged.rows):
            raise InputError(subject, f"no judged pair in {count:,} training rows", "needs at least one")
    else:  # if some distances are not known, the first item may have one to no other item
        found = (labels.pairwise(rows) if labels.is_partial else labels.pairwise([0], rows) for rows in blocks)
        differs = any(bool((distances > 0).any()) for distances in found)
    if differs:
        return
    if judged is not None:
        got = f"all {len(judged.rows):,} judged pairs of training are at distance 0"
        raise InputError(subject, got, "some must differ", "add judgments that differ")
    raise InputError(subject, f"equal in all of {count:,} training rows", hint="choose another label, or add rows")


@dataclass(frozen=True)
class View:
    """The drawing of a split on pages, if the text of its label space is not enough.

    The functions must be picklable, such as frozen dataclasses at the top level of a module: worker processes receive
    them.

    Args:
        renderer: draws the label of a row on its picture. Default: the text of the label, below the picture.
        legend: the meaning of the colours of the renderer: "#rrggbb" and a name each.
        explainer: shows why two rows are near or far. Default: both pictures. The label space supplies the text.
        rows: the number under which the functions know each row of the split. Default: the same number.
    """

    renderer: Renderer | None = None
    legend: Sequence[tuple[str, str]] = ()
    explainer: Explainer | None = None
    rows: Sequence[int] | None = None

    def row(self, row: int) -> int:
        """Return the row number that the functions know for a row of the split."""
        return row if self.rows is None else self.rows[row]

    def taken(self, rows: Iterable[int]) -> View:
        """Return the view of some rows of the split, in this order."""
        if self.renderer is None and self.explainer is None:
            return self
        return replace(self, rows=[self.row(int(row)) for row in rows])


@dataclass(frozen=True)
class Split:
    """Images, labels, queries and gallery. Its parts must be picklable, since worker processes receive them.

    Args:
        images: the image source of each item; also files, pictures, pixels, or a map-style data set (of torch, of
            Hugging Face `datasets`, your own) without a transform, whose labels are not read.
        names: the name of each item in errors and captions. It is the path of an image that comes from a file.
        labels: the label space of the items, a root.
        queries: rows of the queries. If queries and gallery are None, each row is a query against all others.
        gallery: rows that are ranked, disjoint from the queries.
        groups: the group of each item `[N]`, such as the house of a photograph. Queries of one group are not
            independent. Names of groups are numbered.
        exclude_group: the gallery of a query omits the other items of its group. Give False if labels are classes.
        group_name: the kind of group, such as "house", or "" if it is not known. If `metadata` has this name, its
            values are the names of the groups.
        places: the K of the main metric of graded labels is a tenth of this number, at most 10. All splits of a data
            set have the same number. Default: the number of items that every query can find.
        recall_at: the values of K for which papers on this data set report Recall@K.
        excluded: number of items left out, by reason.
        view: the drawing on pages, besides the text of the label space.
        metadata: other values of the items by name, a text or number `[N]` each, None where one is missing. The page of
            `contml explore` colours and filters by them.
    """

    images: Sequence[ImageSource]
    names: Sequence[str]
    labels: LabelSpace
    queries: Tensor | None = None
    gallery: Tensor | None = None
    groups: Tensor | None = None
    exclude_group: bool = True
    group_name: str = ""
    places: int | None = None
    recall_at: Sequence[int] | None = None
    excluded: Mapping[str, int] = field(default_factory=dict)
    view: View = View()
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", as_sources(self.images))
        check_label_space("labels", self.labels)
        if not len(self.images) == len(self.names) == len(self.labels):
            got = f"{len(self.images)} images, {len(self.names)} names and {len(self.labels)} labels"
            raise InputError("split", got, hint="give one of each per item")
        if (self.queries is None) != (self.gallery is None):
            got = "a gallery without queries" if self.queries is None else "queries without a gallery"
            raise InputError("split", got, hint="give both, or neither: then every item is a query")
        if self.groups is not None:
            object.__setattr__(self, "groups", as_group_ids("split: groups", self.groups))
            if len(self.groups) != len(self.images):
                raise InputError("split: groups", f"{len(self.groups)} groups", f"must be {len(self.images)}")
        for name, values in self.metadata.items():
            if len(values) != len(self.images):
                raise InputError(f"split: metadata {name}", f"{len(values)} values", f"must be {len(self.images)}")
        sources = () if isinstance(self.images, Packed) else self.images
        shapes = {source.values.shape if isinstance(source, Vector) else () for source in sources}
        if len(shapes) > 1:
            got = f"features of shapes {sorted(map(list, shapes))}, where [] is an image"
            raise InputError("split", got, "must be images, or features of one shape")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def excluded_groups(self) -> Tensor | None:
        """The group of each item `[N]`, if the gallery of a query omits its own group.

        None if it omits only the query.
        """
        return self.groups if self.exclude_group else None

    @property
    def available(self) -> int:
        """The number of items that every query can find."""
        count = len(self) if self.gallery is None else len(self.gallery)
        if self.excluded_groups is None:
            return count - (self.gallery is None)
        of_gallery = self.excluded_groups if self.gallery is None else self.excluded_groups[self.gallery]
        return count - int(torch.unique(of_gallery, return_counts=True)[1].max())

    @property
    def feature_dim(self) -> int | None:
        """The length of the feature vectors, or of the vectors of feature maps. None if the items are images."""
        source = self.images[0] if self.images else None
        return source.values.shape[-1] if isinstance(source, Vector) else None

    def image(self, row: int) -> ImageItem:
        """Return the image of a row: a file to decode, a picture, pixels, or features."""
        return self.images[row].read()

    def stamp(self, row: int) -> Stamp | None:
        """Return the file of the image of a row and the crop. Return None if it comes from no file."""
        return self.images[row].stamp

    def name(self, row: int) -> str:
        """Return the name of a row."""
        return self.names[row]

    def with_short_names(self) -> Split:
        """Return the split with names for pages: absolute paths begin below the folder that all of them share."""
        folders = [os.path.dirname(name) for name in self.names if os.path.isabs(name)]  # noqa: PTH117, PTH120
        if not (folder := shared_folder(folders)):
            return self
        shared = os.path.join(folder, "")  # noqa: PTH118
        return replace(self, names=[name.removeprefix(shared) for name in self.names])

    def picture(self, row: int, min_size: int | None = None) -> Image.Image:
        """Return the image of a row in RGB, upright. `min_size` is as in `contml.data.decode.decode`.

        If an item has features and no image file, the picture shows its name.

        Raises:
            OSError: it cannot be decoded.
        """
        source = self.images[row]
        if not isinstance(source, Vector):
            return decode(source.read(), self.name(row), min_size)
        with suppress(FileNotFoundError):
            if source.picture is not None:
                return decode(source.picture.read(), self.name(row), min_size)
        return name_picture(self.name(row))

    def subset(self, rows: Rows) -> Split:
        """Return a split of some rows, in this order. Its queries and gallery are ascending."""
        index = as_rows(rows, len(self))
        if len(index) == len(self) and bool((index == torch.arange(len(self))).all()):
            return self
        kept_rows = index.numpy()
        new_rows = torch.full((len(self),), -1)
        new_rows[index] = torch.arange(len(kept_rows))

        def moved(old: Tensor | None) -> Tensor | None:
            return None if old is None else new_rows[old][new_rows[old] >= 0].sort().values

        return replace(
            self,
            images=taken(self.images, kept_rows),
            names=taken(self.names, kept_rows),
            labels=self.labels[index].as_root(),
            queries=moved(self.queries),
            gallery=moved(self.gallery),
            groups=None if self.groups is None else self.groups[index],
            view=self.view.taken(kept_rows),
            metadata={name: taken(values, kept_rows) for name, values in self.metadata.items()},
        )

    def draw(self, row: int, size: int) -> Image.Image:
        """Return the image of a row, `size` pixels square, with its label drawn on it, or as text below it."""
        if self.view.renderer is not None:
            return self.view.renderer(self.picture(row), self.view.row(row), size)
        classes = self.labels.class_ids
        colour = None if classes is None else class_colour(int(classes[row]))
        return draw_words(self.picture(row), self.labels.text(row), size, colour)

    def explain(self, query: int, row: int, size: int) -> TitledPictures | None:
        """Return pictures that show why two rows are near or far, of at most `size` pixels.

        Return None without an explainer.
        """
        if self.view.explainer is None:
            return None
        rows = self.view.row(query), self.view.row(row)
        return self.view.explainer(rows, (self.picture(query), self.picture(row)), size)


@dataclass(frozen=True)
class Task:
    """A training, a validation and a test split with one kind of label.

    Args:
        train: the training split.
        test: the test split. If it is None, the validation split is evaluated.
        val: the validation split, which selects a checkpoint or an option. If it is None, one can be drawn from
            `train`.
        val_groups: the group of each training item, which a drawn validation split does not divide. Default: the class,
            if no class is both in training and in testing, or else the item alone.
        summary: what was found and what was left out, as (label, text). `contml check` prints it.
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
        """Return the task with `splits` in place of its splits of the same names."""
        return replace(self, **{"train": self.train, "val": self.val, "test": self.test, **splits, **changes})

    @property
    def evaluated(self) -> Split:
        """The split whose metrics are the result: the test split, or the validation split if there is no test split."""
        return self.splits[self.evaluated_name]

    @property
    def evaluated_name(self) -> Literal["test", "val"]:
        """The name of the evaluated split: "test" or "val"."""
        return "val" if self.test is None else "test"


class Batch(NamedTuple):
    """Images uint8 `[b, 3, crop, crop]`, or features float32 `[b, F]`, and their rows.

    `rows` `[b]` are rows of the split, int64. `positions` `[b]` are positions in the sampler's batch, int64. `skipped`
    is the number of broken images that were left out. The order of the others is unchanged. The sampler's anchors are
    the positions below `sampler.anchors`.
    """

    images: Tensor
    rows: Tensor
    step: int
    skipped: int
    positions: Tensor


class Loader(Protocol):
    """A source of batches of the images of a split, such as `contml.data.Images`."""

    #: The unit that training flips: whole batches, each image, or "none" (`contml.data.Images`).
    flip: Literal["batch", "image", "none"]
    #: Name and cause of each broken image left out so far.
    left_out: dict[str, str]

    def train_batches(
        self, split: Split, sampler: Sampler, *, epoch: int, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Yield the augmented batches of an epoch from step `start`. `part` is (rank, number of processes)."""

    def test_batches(self, split: Split, rows: Rows, batch_size: int) -> Iterator[Batch]:
        """Yield these rows of a split in order, without augmentation."""

    def prepare(self, split: Split) -> object:
        """Prepare a split once, before its first batch."""

    def check(self, split: Split, rows: range) -> None:
        """Raise `InputError` if one of these images is broken, and broken images are errors."""

    def close(self) -> None:
        """End the worker processes."""


def check_split(split: object) -> None:
    """Refuse an object that is not a split, such as a data set of torch.

    Raises:
        InputError: it is not a split.
    """
    if not isinstance(split, Split):
        got, hint = f"a {type(split).__name__}", "make contml.data.Split(dataset, names, labels)"
        raise InputError("split", got, "must be a split: images, names and labels", hint)


def query_split(queries: Rows, items: int) -> tuple[Tensor | None, Tensor | None]:
    """Return the rows of the queries and of the gallery. Return (None, None) if there are no queries.

    Args:
        queries: the rows of the queries. All other rows are the gallery.
        items: number of items of the split.
    """
    is_query = torch.zeros(items, dtype=torch.bool)
    if queries is not None:
        is_query[as_rows(queries, items)] = True
    if not bool(is_query.any()):
        return None, None
    return is_query.nonzero()[:, 0], (~is_query).nonzero()[:, 0]
