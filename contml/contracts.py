"""Types and protocols that the packages of contml promise each other: read this first.

A *label space* (`contml.labels.LabelSpace`) holds labels and answers the label distances between any of its rows; a
batch of labels is a label space too. A *loss* reads embeddings and label distances. A *training step* turns a batch of
images into a loss. A *sampler* says which rows make a batch. A *split* is images, their label space, queries and
gallery; a *task* is a training and a test split. Class labels are the special case of label distances 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import numpy as np
    from PIL import Image
    from torch import Tensor

    from contml.labels.base import LabelSpace

#: Row numbers: a tensor, a list, a slice or a range; `None` means all of them.
Rows: TypeAlias = "Tensor | list[int] | range | slice | None"

#: What label distances are. "graded": numbers >= 0; "binary": only 0 and 1; "classes": 0 and 1 that come from a class
#: id for each item.
LabelKind: TypeAlias = Literal["graded", "binary", "classes"]

#: What a loss needs of labels: one of the kinds, or "any". Classes are binary too; "graded" takes neither.
Requirement: TypeAlias = Literal["any", "graded", "binary", "classes"]


@runtime_checkable
class Loss(Protocol):
    """`loss(embeddings, labels, anchors=None) -> scalar`, a `torch.nn.Module`.

    embeddings `[B, d]`. labels: a label space of the B items; or a tensor: integer classes `[B]`, numbers `[B]`, or
    label distances `[A, B]`, one row for each anchor. anchors `[A]`: positions in the batch; default all items.
    """

    requires: Requirement

    def __call__(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Batches as lists of rows, a pure function of `(seed, epoch, step)`: a run resumes on the very next batch.

    The first `anchors` rows of a batch are its anchors; None means that every row is one.
    """

    anchors: int | None
    seed: int

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def batch(self, epoch: int, step: int) -> list[int]:
        """The rows of one batch."""
        ...

    def __iter__(self) -> Iterator[list[int]]: ...


#: One image of a split: a file to decode, a decoded picture, or its pixels `[H, W, 3]` in uint8.
ImageItem: TypeAlias = "Path | Image.Image | np.ndarray[Any, np.dtype[np.uint8]]"


@runtime_checkable
class Split(Protocol):
    """Images, their labels, queries and gallery.

    `queries` and `gallery` are rows of the split, disjoint; both None: every row is a query against all the others. A
    split of classes may have `recall_at`, the K at which papers on its data report Recall@K: `(1, 10, 100, 1000)`. One
    that crops its images from files may have `source(row) -> (file, how)`, by which a cache tells images apart without
    decoding them.
    """

    labels: LabelSpace
    queries: Tensor | None
    gallery: Tensor | None

    def __len__(self) -> int: ...

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        ...

    def name(self, row: int) -> str:
        """What to call a row in an error or a caption: a file's path where there is one."""
        ...

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, with its label drawn on it."""
        ...


@runtime_checkable
class Task(Protocol):
    """A training split and a test split with one kind of label.

    A task may have `facts`, pairs of words that `contml check` and `contml prepare` print: what was found, what was
    left out and why.
    """

    train: Split
    test: Split
