"""From embedding distance to label distance: an estimate with an interval, or the probability of the same class.

A calibration is fitted on the validation split, from the pairs that a search returns: each query with its nearest
items.

    f = isotonic regression of the label distance y on the embedding distance e, over means of bins
    g = isotonic regression of |y - f(e)| on e, rising or falling, at least a tenth of its mean
    s = |y - f(e)| / g(e), where f and g are fitted on the pairs of the other queries (five folds)
    q = the smallest number such that sum_u (share of the pairs of query u with s <= q) / (m + 1) >= level
    interval: f(e) - q g(e), at least 0, to f(e) + q g(e); none for e above the largest one of the validation split

The pairs of one query depend on each other: they share its label and its place in the gallery. So q is a quantile over
the m queries, and each query counts as one. The next query, whose scores are unknown, counts as one too: it is the 1 in
m + 1. This is split conformal prediction for hierarchical data (Lee, Barber, Willett, "Distribution-free inference with
hierarchical data", 2023). If items have groups, such as photographs of a house, the m units are the groups of the
queries.

The folds let every query serve both the curves and q, as in cross-conformal prediction (Vovk 2015). For classes, f
falls with e and is the probability of the same class. There is no interval.

A predicted label is calibrated in the same way. Then e is the spread of the neighbours' labels, and y is the label
distance of the prediction to the true label. Only the upper end counts: s has no absolute value, and f(e) + q g(e)
bounds y.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import read_record, write
from contml._support.text import number, percent
from contml.contracts import PLAIN, LabelKind, Measure
from contml.data.split import Split, Task
from contml.distances import squared_distances_of
from contml.evaluation.intervals import half_width_of_share
from contml.evaluation.results import Ranking

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: What a calibration gives of a label distance: both ends, or only the upper one.
Form: TypeAlias = Literal["interval", "bound"]
LEVEL = 0.9
#: Largest file of a run in bytes. It has at most two numbers per knot. A curve has at most as many knots as pairs.
_LIMIT = 1 << 24
_FOLDS, _LEAST_SPREAD = 5, 0.1
#: Pairs per bin of a curve, and the most bins.
_BIN, _MOST_BINS = 50, 50
STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class LabelDistance(NamedTuple):
    """The label distances of some pairs, and the interval of each. The arrays have the shape of the input.

    All three are NaN for a pair that is farther apart than all pairs of the calibration.
    """

    estimate: Array
    low: Array
    high: Array


class Pairs(NamedTuple):
    """The nearest items of each query, as a search returns them."""

    embedding_distances: Array  # [Q,k] Euclidean
    label_distances: Array  # [Q,k]
    units: Any  # [Q] the group of each query, else its row
    items: Tensor | None = None  # [Q,m] what queries share (`contml.evaluation.metrics`); None: their units

    @classmethod
    def of(cls, split: Split, ranking: Ranking, nearest: int | None = None) -> Pairs:
        """Return the pairs of a ranking.

        `nearest` is the number of items per query, by default the K of the main metric.
        """
        k = min(nearest or ranking.k, ranking.model.shape[1])
        rows, cols = ranking.queries.repeat_interleave(k), ranking.model[:, :k].flatten()
        embedding_distances = squared_distances_of(ranking.embeddings, ranking.embeddings, rows, cols).sqrt()
        units = ranking.queries if split.groups is None else split.groups[ranking.queries]
        label_distances = ranking.label_distances[:, :k].double()
        return cls(embedding_distances.view(-1, k).numpy(), label_distances.numpy(), units.numpy(), ranking.items)


class Check(BaseModel):
    """The result of a calibration on pairs that it was not fitted to.

    Attributes:
        split: the split of the pairs.
        queries: number of its queries.
        expected: share of the pairs that should be inside the interval, or in the same class.
        known: share of the pairs that have an interval. A pair farther apart than all pairs of the calibration has no
            interval. 1 for classes.
        observed: the share that is inside, of the pairs with an interval. None if no pair has an interval.
        interval: the 95 % interval of `observed`, by query, group or class. None if all pairs are of one, or no pair
            has an interval.
        width: mean width of the intervals in the unit of the labels. For factors, it is the geometric mean of high /
            low. None for classes, and if no pair has an interval.
    """

    model_config = STRICT

    split: Literal["test"]
    queries: int = Field(ge=1)
    expected: float = Field(ge=0, le=1)
    known: float = Field(1, ge=0, le=1)
    observed: float | None = Field(ge=0, le=1)
    interval: tuple[float, float] | None
    width: float | None = Field(ge=0)

    @property
    def share(self) -> str:
        """The observed share with its interval, if it has one: "91.2 % [88.7, 93.6]"."""
        observed = f"{100 * (self.observed or 0):.1f} %"
        if self.interval is None:
            return observed
        low, high = self.interval
        return f"{observed} [{100 * low:.1f}, {100 * high:.1f}]"


class Calibration(BaseModel):
    """The meaning of embedding distances, as `calibration.json` and the file of a bundle hold it.

    Attributes:
        kind: "interval": of label distances; "bound": above label distances; "probability": of the same class.
        nearest: the number of nearest items of a query for which the calibration holds.
        level: the share of pairs inside their intervals. None for classes.
        queries: number of queries of the validation split.
        distances: embedding distances at which the curves have their knots, ascending. Between knots, curves are
            linear. After the last knot, they are constant. The last knot is the largest distance of the pairs that the
            curves were fitted to.
        estimates: the label distance, or the probability of the same class, at each knot.
        margins: half the width of the interval at each knot, or the bound minus the estimate. None for classes.
        largest: the largest possible label distance. None if there is no limit.
        check: the result on the test split. None without a test split.
    """

    model_config = STRICT

    kind: Literal["interval", "bound", "probability"]
    nearest: int = Field(ge=1)
    level: float | None = Field(gt=0, lt=1)
    queries: int = Field(ge=1)
    distances: tuple[float, ...] = Field(min_length=1)
    estimates: tuple[float, ...]
    margins: tuple[float, ...] | None
    largest: float | None = Field(None, gt=0)
    check: Check | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        interval = self.kind != "probability"
        if interval != (self.margins is not None) or interval != (self.level is not None):
            raise ValueError(f"level and margins do not fit kind {self.kind}")
        curves = (self.distances, self.estimates, self.estimates if self.margins is None else self.margins)
        if len({*map(len, curves)}) > 1:
            raise ValueError("distances, estimates and margins differ in length")
        if self.distances[0] < 0 or not bool((np.diff(self.distances) > 0).all()):
            raise ValueError("distances do not ascend from 0 or above")
        if bool((np.diff(self.estimates if interval else self.estimates[::-1]) < 0).any()):
            raise ValueError(f"estimates {'fall' if interval else 'rise'} with the distance")
        if min(*self.estimates, *(self.margins or ()), 0) < 0 or (not interval and max(self.estimates) > 1):
            raise ValueError("an estimate or a margin is out of range")
        return self

    def label_distance(self, distances: Any) -> LabelDistance:
        """Estimate the label distances of pairs from their embedding distances, each with an interval.

        Both are NaN for a pair that is farther apart than all pairs of the calibration.

        Raises:
            InputError: an embedding distance is negative or not a number, or the labels are classes.
        """
        if self.margins is None:
            raise InputError("label_distance", "the labels are classes", hint="use same_class, their probability")
        x = _as_distances(distances)
        estimate, margin = (np.interp(x, self.distances, values) for values in (self.estimates, self.margins))
        if self.kind == "bound":
            return LabelDistance(estimate, np.zeros_like(estimate), self._possible(estimate + margin))
        estimate = np.where(x <= self.distances[-1], estimate, np.nan)
        return LabelDistance(estimate, np.maximum(estimate - margin, 0), self._possible(estimate + margin))

    def _possible(self, high: Array) -> Array:
        return high if self.largest is None else np.minimum(high, self.largest)

    def same_class(self, distances: Any) -> Array:
        """Estimate the probability that pairs are in the same class, from their embedding distances.

        Raises:
            InputError: an embedding distance is negative or not a number, or the labels are not classes.
        """
        if self.margins is not None:
            raise InputError("same_class", "the labels are not classes", hint="use label_distance")
        return np.asarray(np.interp(_as_distances(distances), self.distances, self.estimates))

    def checked(self, pairs: Pairs, measure: Measure = PLAIN) -> Calibration:
        """Return the same calibration with its result on the pairs of the test split.

        `measure` is the unit of the width.
        """
        e, y = pairs.embedding_distances, pairs.label_distances
        known, found = np.ones(e.shape, bool), dict[str, Any](width=None, observed=None, interval=None)
        if self.kind != "probability":
            _, low, high = self.label_distance(e)
            known = np.isfinite(high)
            hit, expected = (low <= y) & (y <= high), self.level
            # The mean of differences of logarithms gives the geometric mean of factors.
            found["width"] = measure.of(float((high[known] - low[known]).mean())) if known.any() else None
        else:
            hit, expected = y == 0, float(self.same_class(e).mean())
        items = torch.from_numpy(pairs.units)[:, None] if pairs.items is None else pairs.items
        if known.any():
            share = float(hit[known].mean())
            # The items of each pair: a query has as many pairs as are known.
            half = half_width_of_share(hit[known], items.repeat_interleave(torch.from_numpy(known.sum(1)), 0))
            interval = None if math.isnan(half) else (max(0.0, share - half), min(1.0, share + half))
            found |= {"observed": share, "interval": interval}
        check = Check(split="test", queries=len(e), expected=expected or 0.0, known=float(known.mean()), **found)
        return self.model_copy(update={"check": check})

    def sentence(self, measure: Measure = PLAIN) -> str:
        """Return the result in one line, for reports. `measure` is the same as in `checked`."""
        items = "nearest item" if self.nearest == 1 else f"{self.nearest} nearest"
        if self.kind == "interval":
            start = f"label distance of the {items}: {percent(self.level or 0)} interval"
        else:
            start = f"probability of the same class for the {items}"
        if self.check is None:
            return f"{start}, from {self.queries:,} validation queries; there is no test split to check it on"
        if self.check.observed is None:
            return f"{start}: all test pairs are farther apart than all pairs of the validation split"
        observed = f"{self.check.share} of test pairs"
        if self.kind == "probability":
            return f"{start}: {100 * self.check.expected:.1f} % on average; true for {observed}"
        width = f"{measure.before}{number(self.check.width or 0)}{measure.after}"
        far = 100 * (1 - self.check.known)
        rest = f"; {far:.1f} % of test pairs are farther apart than all pairs of the validation split" if far else ""
        return f"{start} holds for {observed}, mean width {width}{rest}"

    def save(self, path: Path) -> None:
        """Write `calibration.json`."""
        write(path, lambda temporary: temporary.write_text(self.model_dump_json(), encoding="utf-8"))

    @classmethod
    def read(cls, path: Path) -> Calibration | None:
        """Read a file that `save` wrote. Return None if there is no such file.

        Raises:
            InputError: it is damaged.
        """
        return read_record(path, cls, hint="run 'contml evaluate' again", limit=_LIMIT)


def calibrate(
    pairs: Pairs, kind: LabelKind, level: float = LEVEL, form: Form = "interval", largest: float = math.inf
) -> Calibration | None:
    """Fit a calibration to the pairs of the validation split. Return None if it has too few queries for the level.

    Args:
        pairs: the pairs.
        kind: the kind of the labels.
        level: the share of pairs inside their intervals, or below their bounds.
        form: whether label distances have both ends, or only the upper one.
        largest: the largest possible label distance. No end is above it.
    """
    e, y = pairs.embedding_distances, pairs.label_distances
    _, unit, count = np.unique(pairs.units, return_inverse=True, return_counts=True)
    m = len(count)
    weights = np.broadcast_to((1 / count[unit])[:, None], e.shape)  # of a pair, up to a factor: each unit counts as one
    numbers: dict[str, Any] = {"nearest": e.shape[1], "queries": len(e)}
    if kind != "graded":
        curve = _isotonic(e, y == 0, weights, increasing=False)
        numbers |= {"distances": curve.x.tolist(), "estimates": curve.y.tolist(), "margins": None}
        return Calibration.model_validate({"kind": "probability", "level": None, **numbers}, strict=False)
    if level * (m + 1) > m:
        return None
    fold = (np.random.default_rng(0).permutation(m) % _FOLDS)[unit]
    scores = np.empty_like(e)
    for in_fold in (fold == fold_index for fold_index in range(_FOLDS)):
        f, g = _curves(e[~in_fold], y[~in_fold], weights[~in_fold])
        residuals = y[in_fold] - f(e[in_fold])
        scores[in_fold] = (np.abs(residuals) if form == "interval" else residuals) / g(e[in_fold])
    order = scores.flatten().argsort()
    reached = (weights.flatten()[order] / e.shape[1]).cumsum() / (m + 1) >= level - 1e-9
    q = max(scores.flatten()[order][reached.argmax()], 0.0)
    f, g = _curves(e, y, weights)
    knots = np.unique([*f.x, *g.x, e.max()])
    numbers |= {"distances": knots.tolist(), "estimates": f(knots).tolist(), "margins": (q * g(knots)).tolist()}
    numbers |= {} if math.isinf(largest) else {"largest": largest}
    return Calibration.model_validate({"kind": form, "level": level, **numbers}, strict=False)


def save_calibration(path: Path, task: Task, val: Ranking, evaluated: Ranking) -> None:
    """Fit a calibration to the ranking of the validation split, check it on the test split, and write it.

    Nothing is written if the validation split has too few queries.

    Args:
        path: the file.
        task: the splits.
        val: the ranking of the validation split.
        evaluated: the ranking of the test split. It is unused if the task has no test split.
    """
    assert task.val is not None
    labels = task.val.labels
    calibration = calibrate(Pairs.of(task.val, val), labels.kind, largest=labels.largest)
    if calibration is not None and task.test is not None:
        calibration = calibration.checked(Pairs.of(task.test, evaluated, calibration.nearest), task.test.labels.measure)
    if calibration is not None:
        calibration.save(path)


class _Curve(NamedTuple):
    """A curve through its knots. Outside of them, it is constant."""

    x: Array
    y: Array

    def __call__(self, x: Array) -> Array:
        return np.asarray(np.interp(x, self.x, self.y))


def _curves(e: Array, y: Array, weights: Array) -> tuple[_Curve, _Curve]:
    """Fit the curve of the label distance by embedding distance, and the curve of the mean distance from it."""
    f = _isotonic(e, y, weights)
    residuals = np.abs(y - f(e))
    rises = bool(np.average((e - np.average(e, weights=weights)) * residuals, weights=weights) >= 0)
    spread = _isotonic(e, residuals, weights, increasing=rises)
    # At least 1 where there are no residuals at all: the scores are then 0.
    min_spread = _LEAST_SPREAD * float(np.average(residuals, weights=weights)) or 1.0
    return f, _Curve(spread.x, np.maximum(spread.y, min_spread))


def _isotonic(x: Array, y: Array, weights: Array, *, increasing: bool = True) -> _Curve:
    """Fit an isotonic regression over means of bins.

    Without bins, a single pair would be the end of a curve, where the best results are.
    """
    from sklearn.isotonic import IsotonicRegression  # here: the import is slow

    num_bins = min(_MOST_BINS, max(1, x.size // _BIN))
    bin_of = np.empty(x.size, np.int64)
    bin_of[x.ravel().argsort(kind="stable")] = np.arange(x.size) * num_bins // x.size
    w = np.bincount(bin_of, weights.ravel())
    means = [np.bincount(bin_of, values.ravel() * weights.ravel()) / w for values in (x, y)]
    fitted = IsotonicRegression(increasing=increasing).fit(*means, w)
    return _Curve(fitted.X_thresholds_.astype(np.float64), fitted.y_thresholds_.astype(np.float64))


def _as_distances(distances: Any) -> Array:
    if isinstance(distances, Tensor):
        distances = distances.detach().cpu()
    try:
        x = np.asarray(distances, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("distances", f"a {type(distances).__name__}", "must be numbers") from None
    if not bool((x >= 0).all()) or not bool(np.isfinite(x).all()):
        invalid = x[~((x >= 0) & np.isfinite(x))]
        raise InputError("distances", str(invalid.flat[0]), "must be finite numbers of at least 0")
    return x
