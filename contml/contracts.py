"""Types and protocols that connect the packages of contml: read this first.

A *label space* (`contml.labels.LabelSpace`) holds labels and gives the label distances between any of its rows; a
batch of labels is a label space too. A *loss* takes embeddings and labels. A *training step* computes the loss of a
batch of images. A *sampler* chooses the rows of each batch. A *split* (`contml.data.Split`) holds images, their label
space, queries and gallery; a *task* has a training and a test split. Class labels are the special case of label
distances 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from contml.labels.base import LabelSpace

#: Row numbers: a tensor, a list, a slice or a range; None means all rows.
Rows: TypeAlias = "Tensor | list[int] | range | slice | None"

#: The kind of label distances. "graded": numbers >= 0; "binary": only 0 and 1; "classes": 0 and 1, from the class ids
#: of the items.
LabelKind: TypeAlias = Literal["graded", "binary", "classes"]

#: The kind of labels that a loss needs, or "any". "binary" accepts classes too; "graded" accepts neither.
Requirement: TypeAlias = Literal["any", "graded", "binary", "classes"]


class Measure(NamedTuple):
    """How a label distance reads in the unit of the labels: for pages and messages, never for a loss.

    Attributes:
        unit: the unit, such as "km", or "" for plain numbers.
        factor: the value of a label distance of 1.
        kind: "linear": factor x distance; "root": the square root of that, for squared distances (of a mean of squares,
            it is the root mean square); "ratio": its exponential, for distances of logarithms.
    """

    unit: str
    factor: float = 1.0
    kind: Literal["linear", "root", "ratio"] = "linear"

    def of(self, label_distance: float) -> float:
        """The label distance in this unit; NaN stays NaN."""
        value = self.factor * label_distance
        if self.kind == "root":
            return math.sqrt(value)
        if self.kind == "ratio":
            return math.exp(value) if value < 700 else math.inf
        return value


@runtime_checkable
class Loss(Protocol):
    """`loss(embeddings, labels, anchors=None) -> scalar`, a `torch.nn.Module`.

    embeddings `[B, d]`. labels: a label space of the B items; or a tensor: floats `[B]` are numbers, a matrix `[A, B]`
    has the label distances of one anchor per row, integers `[B]` are classes, which a loss that takes graded labels
    refuses. anchors `[A]`: positions in the batch; default all items.
    """

    requires: Requirement

    def __call__(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Batches as lists of rows, a pure function of `(seed, epoch, step)`: a resumed run gets exactly the next batch.

    The first `anchors` rows of a batch are its anchors; None: all rows.
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
