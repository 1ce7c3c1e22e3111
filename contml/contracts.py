"""Types and protocols that connect the packages of contml: read this first.

A *label space* (`contml.labels.LabelSpace`) holds labels and computes the label distances between any of its rows. A
batch of labels is a label space too. A *loss* takes embeddings and labels. A *training step* computes the loss of a
batch of images. A *sampler* chooses the rows of each batch. A *split* (`contml.data.Split`) holds images, their label
space, queries and gallery. A *task* has a training and a test split. Class labels are the special case of label
distances 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from contml._support.text import MISSING, number, plain_text

__all__ = ["Candidates", "Colours", "Measure", "OwnMetrics", "PairMiner", "Part", "Rows", "Sampler"]

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

#: Row numbers: a tensor, an array, a list, a slice or a range of integers; a mask, one boolean per item, for the rows
#: where it is True; None means all rows.
Rows: TypeAlias = "Tensor | np.ndarray[Any, Any] | Sequence[int] | slice | None"

#: The kind of label distances. "graded": numbers >= 0; "binary": only 0 and 1; "classes": 0 and 1, from the class ids
#: of the items. "triplets" and "rankings" are judgments between items, which have no label distances.
LabelKind: TypeAlias = Literal["graded", "binary", "classes", "triplets", "rankings"]

#: The kind of labels that a loss or a training step needs. "any": label distances; "binary" accepts classes too;
#: "graded" accepts neither.
Requirement: TypeAlias = Literal["any", "graded", "binary", "classes", "triplets", "rankings"]

#: Metrics of the user by name. A metric takes the distances and label distances `[Q, C]` of ranked lists, nearest
#: first, and returns one finite number per query `[Q]`.
OwnMetrics: TypeAlias = "Mapping[str, Callable[[Tensor, Tensor], Tensor]]"


@dataclass(frozen=True)
class Measure:
    """The format of label distances in the unit of the labels, for output. A loss never uses it.

    A mean of label distances is converted as a single distance is. So a mean of differences of logarithms becomes the
    geometric mean of factors.

    Attributes:
        unit: the unit of the labels, such as "km", or "" for plain numbers. Label distances have the same unit, unless
            they are ratios.
        factor: the value of a label distance of 1; finite and above 0.
        kind: "linear": factor x distance; "ratio": e^(factor x distance), for distances of logarithms.
        name: what the labels are, such as the column "price_usd" of a table; "" if the name is not known.
        dates: the labels are dates, as days from 1970-01-01.
    """

    unit: str = ""
    factor: float = 1.0
    kind: Literal["linear", "ratio"] = "linear"
    name: str = ""
    dates: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(f"factor {self.factor} is not a finite number above 0")

    @property
    def is_plain(self) -> bool:
        """True if label distances have no unit, such as 1 - mIoU, and are printed unchanged."""
        return self == PLAIN

    def of(self, label_distance: float) -> float:
        """Convert a label distance to this unit. Return NaN for NaN."""
        value = self.factor * label_distance
        if self.kind == "ratio":
            return math.inf if value > 700 else math.exp(value)
        return value

    def inverse(self, value: float) -> float:
        """Return the label distance that is `value` in this unit: the inverse of `of`.

        Return NaN if there is no such distance.
        """
        if self.kind == "ratio":
            return math.log(value) / self.factor if value > 0 else math.nan
        return value / self.factor

    @property
    def before(self) -> str:
        """The text before the number of a label distance."""
        return "x " if self.kind == "ratio" else ""

    @property
    def after(self) -> str:
        """The text after the number of a label distance."""
        return f" {plain_text(self.distance_unit)}" if self.distance_unit else ""

    @property
    def after_label(self) -> str:
        """The text after the number of a label."""
        return f" {plain_text(self.unit)}" if self.unit else ""

    @property
    def distance_unit(self) -> str:
        """The unit of a label distance: the unit of the labels, or "" for ratios, which have no unit."""
        return "" if self.kind == "ratio" else self.unit

    def text(self, label_distance: float, low: float = math.nan, high: float = math.nan, *, unit: bool = True) -> str:
        """Return the label distance as all commands and pages print it: "4.10 km", "x 1.80", "0.410"; a dash for NaN.

        With an interval of label distances from `low` to `high`, the text is "4.10 km (2.00 to 6.20)". `unit=False`
        omits the unit, for a table with the unit in its header.
        """
        value, start, end = (number(self.of(x)) for x in (label_distance, low, high))
        words = MISSING if value == MISSING else f"{self.before}{value}{self.after if unit else ''}"
        return words if math.isnan(low) else f"{words} ({start} to {end})"

    def difference(self, a: float, b: float, margin: float) -> str:
        """Return the difference of two label distances as text, with its interval: a - b, `margin` to both sides.

        The text is "0.30 ± 0.40 km". For factors it is their ratio, "x 1.02 (0.98 to 1.07)".
        """
        low, value, high = (abs(a - b) + sign * margin for sign in (-1, 0, 1))
        if self.kind == "ratio":
            return self.text(value, low, high)
        words = number(margin * self.factor)
        decimals = len(words.partition(".")[2])
        return f"{abs(self.gap(a, b)):,.{decimals}f} ± {words}{self.after}"

    def gap(self, a: float, b: float) -> float:
        """Return the label distance a minus b in this unit. For factors, return their ratio."""
        return self.of(a - b) if self.kind == "ratio" else self.of(a) - self.of(b)


#: Label distances without a unit, printed as plain numbers.
PLAIN = Measure()


class Part(NamedTuple):
    """One part of the label distance of two items, as texts: a line of the table that explains a pair.

    Attributes:
        label: what is compared, such as "age" or "left knee".
        a: the value of the first item.
        b: the value of the second item.
        difference: the difference of the two values, such as "4.10 years".
        contribution: for a sum of labels, the part of the label distance that this label adds; "" without a sum.
    """

    label: str
    a: str
    b: str
    difference: str
    contribution: str = ""


class JudgedTogether(NamedTuple):
    """Groups of items that were judged together, which a sampler puts into one batch.

    Attributes:
        rows: the rows of the items of all groups, one group after another `[M]`. The first row of a group is its
            anchor.
        starts: the position in `rows` at which each group starts `[G + 1]`.
        whole: True if a group counts only as a whole, such as a triplet. Otherwise a large group may be divided between
            batches, with its anchor in each part.
    """

    rows: Tensor
    starts: Tensor
    whole: bool


@runtime_checkable
class Judgments(Protocol):
    """Labels that are judgments of some items together: judged pairs, triplets, rankings."""

    def __len__(self) -> int:
        """Return the number of items, judged or not."""

    def judged_together(self) -> JudgedTogether:
        """Return the groups of items that were judged together."""


@dataclass(frozen=True)
class Colours:
    """The labels of items as colours, for maps and plots.

    Attributes:
        values: `[N]`: a number per item, or its position in `classes`.
        title: what the numbers or classes are.
        classes: the names of the classes; empty for numbers.
        scale: the scale of colours: "linear"; "log" if the ratio of numbers counts; "date": linear, and the numbers are
            days from 1970-01-01.
    """

    values: Tensor
    title: str
    classes: Sequence[str] = ()
    scale: Literal["linear", "log", "date"] = "linear"


@dataclass(frozen=True)
class Candidates:
    """The pairs of some anchors that a miner chooses from.

    Attributes:
        similarity: `[A, B]`, larger is nearer: the cosine where embeddings are normalized, else the dot product or the
            negated distance.
        positive: the valid positive pairs `[A, B]`, bool; an anchor with itself is not one.
        negative: the valid negative pairs `[A, B]`, bool.
        anchors: the positions of the anchors in the batch `[A]`.
        dim: the embedding dimension.
    """

    similarity: Tensor
    positive: Tensor
    negative: Tensor
    anchors: Tensor
    dim: int


class PairMiner(Protocol):
    """Weights the pairs of a loss, a `torch.nn.Module`; `contml.mining.Miner` is the base of the miners.

    `sphere` is True if the similarities must be cosines.
    """

    sphere: bool
    training: bool

    def train(self, mode: bool) -> Any:
        """Set `training`, as in any module. In training mode, each call draws anew."""

    def begin(self) -> None:
        """Prepare for a call of the loss, before its first block."""

    def __call__(self, candidates: Candidates) -> Tensor:
        """Return weights `[A, B]` >= 0 in the dtype of the similarities."""


@runtime_checkable
class Sampler(Protocol):
    """Batches as lists of rows, a pure function of `(seed, epoch, step)`: a resumed run gets exactly the next batch.

    The first `anchors` rows of a batch are its anchors. If `anchors` is None, all rows are anchors.
    """

    anchors: int | None
    seed: int

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch."""

    def __iter__(self) -> Iterator[list[int]]: ...
