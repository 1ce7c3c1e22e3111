"""Predicted labels, as values and as text, from the labels of the nearest training items and their weights.

If labels have a mean, the predicted label is the mean under the posterior (`contml.evaluation.posterior`). Otherwise it
is the label of the 50 nearest items that has the least mean label distance to the others. For classes, it is the class
with the most weight. The spread of a mean is the root of the mean squared distance from the mean. The spread of any
other label is its mean label distance. If the neighbours disagree, the spread is large. A calibration turns the spread
into a bound of the label distance to the true label (`contml.search.calibration`).
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

#: The most neighbours whose label may be predicted, if labels have no mean.
_CENTRAL = 50
SAME_NOTE = "; a training image, whose own label is left out"


class Predicted(NamedTuple):
    """Predicted labels of Q images.

    Attributes:
        labels: Q labels.
        spread: `[Q]` float64.
        rows: the items whose labels they are `[Q]`. None if labels are means.
    """

    labels: LabelSpace
    spread: Tensor
    rows: Tensor | None


@dataclass(frozen=True)
class Answer:
    """The label of an image, predicted from the labels of its nearest training items.

    Attributes:
        title: the name of the label.
        text: the label as text. A number or a date has its unit.
        value: a number, a date as text, a list of numbers, or None for labels that are not numbers.
        low: the low end of the interval of a number, an angle or a date. None without a calibration.
        high: the high end.
        bound: with probability `level`, the true label is within this label distance. None for classes.
        bound_text: the bound in the unit of the labels.
        level: the probability of the bound. For classes, it is the probability that the answer is right. None without a
            calibration.
        neighbours: number of training items.
        row: the training item whose label is the answer, a row of `LabelledItems.labels`. None for a mean.
        same: whether the image is itself a training item. The item is then left out.
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
        """The title, with a note that the label is predicted."""
        return f"{self.title} (predicted)"

    def __str__(self) -> str:
        """Return the answer on one line, with its name."""
        return f"{self.name}: {self.words}" + (SAME_NOTE if self.same else "")

    @property
    def words(self) -> str:
        """The answer on one line."""
        return (" / ".join(self.text.split("\n")) or f"as training item {self.row}") + self.interval_words

    @property
    def interval_words(self) -> str:
        """The interval, the bound or the probability, in brackets after a space. It is "" without a calibration."""
        if self.level is None:
            return ""
        if self.bound is None:
            return f" ({percent(self.level)})"
        if self.low is not None:
            _, low, high = self.labels.interval_texts(self.value, self.low, self.high)
            return f" ({low} to {high})"
        return f" (within {self.bound_text}, {percent(self.level)})"

    def excludes(self, label: LabelSpace) -> bool:
        """Return True if a label, a space of one item, is beyond the bound, or is another class.

        Return False without a calibration.
        """
        if self.level is None:
            return False
        return float(growing(self.labels).joined(label).filled([0], [1])) > (self.bound or 0.0)

    def as_data(self) -> dict[str, Any]:
        """Return plain values, for JSON and tables."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "bound": self.bound, "level": self.level}
        words = {"label": self.title, "text": self.text}
        return {**words, **numbers, "neighbours": self.neighbours, "same_image": self.same}


def predicted(labels: LabelSpace, rows: Tensor, weights: Tensor) -> Predicted:
    """Predict the labels of Q images from the rows `[Q, k]` and weights `[Q, k]` of training items, nearest first."""
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
    found: Predicted, q: int, space: LabelSpace, calibration: Calibration | None, k: int, row: int | None, same: bool
) -> Answer:
    """Return the answer to query q.

    Args:
        found: the predicted labels of all queries.
        q: the number of the query.
        space: the training labels.
        calibration: of the spread.
        k: number of training items.
        row: the training item whose label is the answer. None for a mean.
        same: whether the query is itself a training item.
    """
    labels, vectors = found.labels, found.labels.vectors
    low = high = bound = level = None
    bound_text = ""
    if calibration is not None and calibration.kind == "probability":
        level = float(calibration.same_class(float(found.spread[q])))
    elif calibration is not None:
        level, bound = calibration.level, float(calibration.label_distance(float(found.spread[q])).high)
        bound_text = space.measure.text(bound)
        if vectors is not None:
            low, high = growing(labels).interval(q, bound) or (None, None)
    value = labels.plain(q)
    text = labels.text(q) if low is None else labels.interval_texts(value, low, high)[0]
    return Answer(space.title, text, value, low, high, bound, bound_text, level, k, row, same, labels[[q]].as_root())
