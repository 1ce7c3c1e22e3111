"""The best of several results, and whether the difference is more than chance.

    difference of two results = mean over the runs of one - mean over the runs of the other

The difference may have two 95 % intervals. If both are known, the wider one counts:

- The interval over the queries is known if both results were measured on the same queries. It is computed from the
  differences of each query, as means over the runs that have the query. Queries of one group or class, and triplets
  that share an item, are not independent (`variance_of_mean`).
- The interval over the runs is known if each result has two or more runs. If both have the same seeds, it is Student's
  t of the paired differences. Otherwise it is Welch's.

A result is the best if it has trained weights, and the intervals of its differences from all others exclude 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from contml._support.text import number
from contml.contracts import PLAIN, Measure
from contml.evaluation.intervals import degrees_of_freedom, half_width, half_width_of_sum, variance_of_mean
from contml.evaluation.results import QueryValues

#: The most results that a sentence names.
_NAMED = 3


@dataclass(frozen=True)
class SettingResult:
    """The runs of one setting.

    Attributes:
        name: its name in a sentence.
        values: the metric of each run by its seed.
        queries: returns the metric of each query by run. It returns None if the metric is not known.
        unknown: the reason why it is not known.
        untrained: number of runs whose weights are untrained.
    """

    name: str
    values: Mapping[int | None, float]
    queries: Callable[[int | None], QueryValues | None] = lambda _: None
    unknown: str = "the metric of each query is not known; 'contml evaluate RUN' writes it"
    untrained: int = 0

    @property
    def mean(self) -> float:
        """The mean over the runs."""
        return statistics.fmean(self.values.values())

    @property
    def is_untrained(self) -> bool:
        """True if the weights of all runs are untrained."""
        return self.untrained == len(self.values)


@dataclass(frozen=True)
class Difference:
    """The difference of two results.

    Attributes:
        mean: the difference of the means.
        interval: half the width of its 95 % interval. None if there is no interval.
        equal: whether the results are equal for each query, or for each run if the queries are not known.
        reason: the reason why there is no interval. Empty if there is one.
    """

    mean: float
    interval: float | None
    equal: bool = False
    reason: str = ""

    @property
    def is_certain(self) -> bool:
        """True if the interval excludes 0."""
        return self.interval is not None and abs(self.mean) > self.interval and not self.equal


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison of several results.

    Attributes:
        best: the position of the best result. None if no result is the best.
        tied: the positions of the best mean and of all results that do not differ from it with certainty.
        sentence: the verdict as text. Empty if there are fewer than two results.
        equal: whether all results are equal.
        second: how much worse the second result is. None if there is no second result.
    """

    best: int | None
    tied: tuple[int, ...]
    sentence: str
    equal: bool = False
    second: Difference | None = None


def difference(a: SettingResult, b: SettingResult) -> Difference:
    """Return the mean of b minus the mean of a, and the interval of this difference."""
    mean = b.mean - a.mean
    over_queries, equal, reason = _over_queries(a, b)
    known = [half for half in (over_queries, _over_runs(a, b)) if half is not None]
    return Difference(mean, max(known, default=None), equal, "" if known else reason)


def _over_queries(a: SettingResult, b: SettingResult) -> tuple[float | None, bool, str]:
    """Return the interval over the queries, whether the results are equal, and why there is no interval."""
    sets_a, sets_b = _by_queries(a), _by_queries(b)
    if sets_a is None or sets_b is None:
        return None, sorted(a.values.values()) == sorted(b.values.values()), a.unknown
    if sets_a.keys() != sets_b.keys():
        return None, False, "their queries differ"
    differences = [(sets_b[key][0] - values, items) for key, (values, items) in sets_a.items()]
    equal = not any(bool(each.any()) for each, _ in differences)
    if min(len(each) for each, _ in differences) < 2:
        return None, equal, "there is only one query"
    estimates = [(variance_of_mean(*each), degrees_of_freedom(len(each[0]), each[1])) for each in differences]
    half = half_width_of_sum(estimates) / len(differences)
    if math.isnan(half):
        return None, equal, "all queries are of one group or class, or share an item"
    return half, equal, ""


def _by_queries(result: SettingResult) -> dict[tuple[str, str], tuple[Tensor, Tensor | None]] | None:
    """Return the mean over the runs of each query `[Q]` and its items, by a key of the queries.

    Return None if a run does not know them.
    """
    values: dict[tuple[str, str], list[QueryValues]] = {}
    for key in result.values:
        found = result.queries(key)
        if found is None:
            return None
        values.setdefault((found.queries, f"{found.metric} of {len(found.values)}"), []).append(found)
    return {key: (torch.stack([run.values for run in each]).mean(0), each[0].items) for key, each in values.items()}


def _over_runs(a: SettingResult, b: SettingResult) -> float | None:
    """Return the interval over the runs. Return None if a result has only one run."""
    if min(len(a.values), len(b.values)) < 2:
        return None
    if a.values.keys() == b.values.keys():
        return half_width([b.values[key] - a.values[key] for key in a.values])
    values = [each.values.values() for each in (a, b)]
    return half_width_of_sum([(statistics.variance(each) / len(each), len(each) - 1) for each in values])


def verdict(results: Sequence[SettingResult], title: str, better: str, measure: Measure = PLAIN) -> Verdict:
    """Choose the best result.

    Args:
        results: one or more.
        title: the title of the metric.
        better: whether a "lower" or a "higher" value is better.
        measure: how differences are printed.
    """
    sign = 1 if better == "lower" else -1
    order = sorted(range(len(results)), key=lambda n: sign * results[n].mean)
    first, others = results[order[0]], order[1:]
    if not others:
        return Verdict(None, (order[0],), "")
    differences = {n: difference(first, results[n]) for n in others}
    close = [n for n in others if not differences[n].is_certain]
    second = differences[others[0]]

    def gap(n: int) -> str:
        return _gap(differences[n], first.mean, sign, measure)

    def ended(sentence: str, best: int | None = None) -> Verdict:
        return Verdict(best, (order[0], *close), sentence, len(equal) == len(others), second)

    extreme = "lowest" if better == "lower" else "highest"
    all_untrained = all(result.is_untrained for result in results)
    equal = [results[n].name for n in close if differences[n].equal]
    if equal:
        untrained = ", with untrained weights" if all_untrained else ""
        return ended(f"no best: {_listed([first.name, *equal])} are equal in {title}{untrained}")
    if all_untrained:
        return ended("no best: all have untrained weights")
    if first.is_untrained:
        return ended(f"no best: {first.name}, with the {extreme} {title}, has untrained weights")
    if not close:
        name = results[others[0]].name
        compared = f"{better} than that of {name}" + (", the second best," if len(others) > 1 else "")
        return ended(f"{first.name} is best: its {title} is {compared} by {gap(others[0])}", order[0])
    unknown = [n for n in close if differences[n].interval is None and not differences[n].equal]
    if unknown:
        n = unknown[0]
        start = f"no best: the difference between {first.name} and {results[n].name}, {gap(n)}"
        return ended(f"{start}, has no interval: {differences[n].reason}")
    if len(close) == 1:
        within = f"the difference between {first.name} and {results[close[0]].name} is within its interval"
        return ended(f"no best: {within}: {gap(close[0])}")
    gaps = [f"{results[n].name}: {gap(n)}" for n in close[:_NAMED]]
    more = [f"and {len(close) - _NAMED} more"] if len(close) > _NAMED else []
    start = f"no best: the differences between {first.name} and {len(close)} others are within their intervals"
    return ended("; ".join([start, *gaps, *more]))


def _listed(names: Sequence[str]) -> str:
    """Join names for a sentence: "A, B and C". Of many names, list the first ones and the number of the others."""
    if len(names) > _NAMED + 1:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} others"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _gap(found: Difference, first: float, sign: int, measure: Measure) -> str:
    """Describe how much worse than the first mean a result is: "0.60 km (95 % interval 0.20 to 1.00)"."""

    def in_unit(worse: float) -> float:
        return measure.gap(first + worse, first) if sign > 0 else worse

    mean = sign * found.mean
    text = f"{measure.before}{number(in_unit(mean))}{measure.after}"
    if found.interval is None:
        return text
    low, high = (number(in_unit(mean + half)) for half in (-found.interval, found.interval))
    return f"{text} (95 % interval {low} to {high})"
