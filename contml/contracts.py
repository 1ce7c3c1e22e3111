"""Types and protocols that the packages of contml promise each other: read this first.

A *label space* (`contml.labels.LabelSpace`) holds labels and answers the label distances between any of its rows; a
batch of labels is a label space too. A *loss* reads embeddings and label distances. A *training step* turns a batch of
images into a loss. A *sampler* says which rows make a batch. A *split* (`contml.data.Split`) is images, their label
space, queries and gallery; a *task* is a training and a test split. Class labels are the special case of label
distances 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
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
