"""Predicted labels: by the labels of the nearest training items and their weights, and in words.

Where labels have a mean, the predicted label is the mean under the posterior (`contml.evaluation.posterior`). Else it
is the label, of the 50 nearest, with the least mean label distance to these; of classes, the one with the most weight.
Its spread is the root of the mean squared distance from the mean, or that least mean. Where the neighbours disagree,
the spread is large: a calibration turns it into a bound of the label distance to the true label
(`contml.search.calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contml._support.text import percent
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.search.calibration import Calibration

#: Neighbours whose label may be predicted, where labels have no mean.
_CENTRAL = 50
SAME_NOTE = "; a training image, whose own label is left out"


class Predicted(NamedTuple):
    """Predicted labels of Q images.

    Attributes:
        labels: Q labels.
        spread: `[Q]` float64.
        rows: `[Q]` the items whose labels they are; None for means.
    """

    labels: LabelSpace
    spread: Tensor
    rows: Tensor | None


@dataclass(frozen=True)
class Answer:
    """The label of an image by the labels of its nearest training items.

    Attributes:
        title: what the label is.
        text: the label in words; of a number or a date with its unit.
        value: a number, a date as text, a list of numbers, or None for labels that are no numbers.
        low: of a number or a date, the low end of the interval; None without a calibration.
        high: the high end.
        bound: the label distance within which the true label is, with the probability `level`; None for classes.
        bound_text: the same in the unit of the labels.
        level: that probability, or of classes, that the answer is right; None without a calibration.
        neighbours: number of training items.
        row: the training item whose label is the answer, a row of `LabelledItems.labels`; None for a mean.
        same: whether the image is a training item itself, which is then left out.
        labels: the answer as a space of one item, for pages that draw it.
    """

    title: str
    text: str
    value: Any
    low: Any
    high: Any
    bound: float | None
    bound_text: str
    level: float | None
    neighbours: int
    row: int | None
    same: bool
    labels: LabelSpace = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The title, and that the label is not the image's own."""
        return f"{self.title} (predicted)"

    def __str__(self) -> str:
        """The answer on one line, with its name."""
        return f"{self.name}: {self.words}" + (SAME_NOTE if self.same else "")

    @property
    def words(self) -> str:
        """The answer on one line."""
        text = " / ".join(self.text.split("\n")) or f"as training item {self.row}"
        return f"{text}{self.interval_words}"

    @property
    def interval_words(self) -> str:
        """The interval, the bound or the probability, in brackets after a space; "" without a calibration."""
        if self.level is None:
            return ""
        if self.bound is None:
            return f" ({percent(self.level)})"
        if self.low is not None:
            _, low, high = self.labels.interval_texts(self.value, self.low, self.high)
            return f" ({low} to {high})"
        return f" (within {self.bound_text}, {percent(self.level)})"

    def excludes(self, label: LabelSpace) -> bool:
        """Whether a label, a space of one item, is beyond the bound, or another class; False without a calibration."""
        if self.level is None:
            return False
        return float(growing(self.labels).joined(label).filled([0], [1])) > (self.bound or 0.0)

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON and tables."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "bound": self.bound, "level": self.level}
        words = {"label": self.title, "text": self.text}
        return {**words, **numbers, "neighbours": self.neighbours, "same_image": self.same}


def predicted(labels: LabelSpace, rows: Tensor, weights: Tensor) -> Predicted:
    """The labels of Q images, by the rows `[Q, k]` and weights `[Q, k]` of training items, nearest first."""
    if labels.vectors is not None:
        near = labels.vectors.cpu()[rows]  # [Q,k,D]
        means = (near * weights[:, :, None]).sum(1)
        spread = ((near - means[:, None]).square().sum(2) * weights).sum(1).sqrt()
        return Predicted(growing(labels).of_vectors(means), spread, None)
    if (ids := labels.class_ids) is not None:
        near = ids.cpu()[rows]
        costs = ((near[:, :, None] != near[:, None]) * weights[:, None]).sum(2)
    else:
        rows, weights = rows[:, :_CENTRAL], weights[:, :_CENTRAL]
        weights = weights / weights.sum(1, keepdim=True)
        between = torch.stack([labels.filled(own, own).cpu().double() for own in rows])
        costs = (between @ weights[:, :, None])[:, :, 0]
    costs = costs.masked_fill(weights == 0, torch.inf)
    chosen = rows.gather(1, costs.argmin(1, keepdim=True))[:, 0]
    return Predicted(labels[chosen].as_root(), costs.amin(1), chosen)


def answer_of(
    found: Predicted,
    q: int,
    space: LabelSpace,
    calibration: Calibration | None,
    neighbours: int,
    row: int | None,
    same: bool,
) -> Answer:
    """The answer to query q.

    Args:
        found: the predicted labels of all queries.
        q: the number of the query.
        space: the training labels.
        calibration: of the spread.
        neighbours: number of training items.
        row: the training item whose label it is; None for a mean.
        same: whether the query is a training item itself.
    """
    labels, vectors = found.labels, found.labels.vectors
    low = high = bound = level = None
    bound_text = ""
    if calibration is not None and calibration.kind == "probability":
        level = float(calibration.same_class(float(found.spread[q])))
    elif calibration is not None:
        level, bound = calibration.level, float(calibration.label_distance(float(found.spread[q])).high)
        bound_text = space.measure.text(bound)
        if vectors is not None and vectors.shape[1] == 1:
            low, high = (growing(labels).of_vectors(vectors[[q]] + end).plain(0) for end in (-bound, bound))
    value = labels.plain(q)
    text = labels.text(q) if low is None else labels.interval_texts(value, low, high)[0]
    label = labels[[q]].as_root()
    return Answer(space.title, text, value, low, high, bound, bound_text, level, neighbours, row, same, label)
