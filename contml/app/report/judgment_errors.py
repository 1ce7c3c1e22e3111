"""Judgments that contradict others: with their items, as examples of a page and as a CSV file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from contml._support.pages import csv_bytes
from contml._support.text import number, percent
from contml.app.report.examples import Example
from contml.app.report.gallery import Line, ShownItem
from contml.data.split import Split
from contml.evaluation.judgment_errors import ScoredJudgments
from contml.labels.judged import RankingLabels, TripletLabels


@dataclass(frozen=True)
class Suspects(ABC):
    """What has the highest scores in an audit.

    Attributes:
        ranked: whether the highest score is first; else they are in the order of the data.
        what: what one of them is called.
    """

    split: Split
    errors: Any
    ranked: bool = field(default=True, kw_only=True)
    what: ClassVar[str]

    def rows(self, count: int) -> list[int]:
        """The rows of those with the highest scores."""
        rows: list[int] = self.errors.order[:count].tolist()
        return rows if self.ranked else sorted(rows)

    @abstractmethod
    def words(self, row: int) -> str:
        """One of them in words."""

    def examples(self, count: int) -> list[Example]:
        """Those with the highest scores, with their items."""
        examples = []
        for place, row in enumerate(self.rows(count), start=1):
            score = number(float(self.errors.scores[row]))
            examples.append(self.example(row, f"{place}. Score {score}" if self.ranked else f"Score {score}"))
        return examples

    @abstractmethod
    def example(self, row: int, title: str) -> Example:
        """One of them with its items."""

    @abstractmethod
    def csv(self, count: int) -> bytes:
        """A file of those with the highest scores."""


@dataclass(frozen=True)
class JudgmentSuspects(Suspects):
    """The judgments of a split with the highest scores."""

    errors: ScoredJudgments
    what = "judgment"

    @property
    def _roles(self) -> tuple[str, ...]:
        labels = self.split.labels
        if isinstance(labels, TripletLabels):
            return ("anchor", "x", "y") if labels.counts.shape[1] == 2 else ("a", "b", "c")
        return ("query", "item") if isinstance(labels, RankingLabels) else ("a", "b")

    def _names(self, n: int) -> list[str]:
        return [self.split.name(row) for row in self.errors.items[n].tolist()]

    def _chosen(self, n: int) -> int:
        """The item that an answer to a triplet names: a position in the three."""
        labels = self.split.labels
        assert isinstance(labels, TripletLabels)
        answers: int = labels.counts.shape[1]
        return int(self.errors.judged[n]) + 3 - answers

    def _value(self, value: float) -> str:
        """A judged number in words."""
        labels = self.split.labels
        return f"{labels.of} {value:.3g}" if isinstance(labels, RankingLabels) else labels.measure.text(value)

    def words(self, row: int) -> str:
        """A judgment in words."""
        n, labels = row, self.split.labels
        names = self._names(n)
        if not isinstance(labels, TripletLabels):
            return f"{' and '.join(names)}: {self._value(float(self.errors.judged[n]))}"
        chosen, is_odd = names[self._chosen(n)], labels.counts.shape[1] == 3
        answer = f"{chosen} is the odd one out" if is_odd else f"{chosen} is nearer to {names[0]}"
        return f"{', '.join(names)}: {answer}"

    def example(self, row: int, title: str) -> Example:
        """A judgment with its items."""
        n, errors, labels = row, self.errors, self.split.labels
        predicted, rows = float(errors.predicted[n]), errors.items[n].tolist()
        count, differing, paths = (
            int(each[n]) for each in (errors.judgments, errors.others_differ, errors.implied_otherwise)
        )
        facts = []
        if isinstance(labels, TripletLabels):
            facts.append(f"the network gives this answer a probability of {percent(predicted)}")
            if count > 1:
                facts.append(f"{count:,} judges, {differing:,} of them with another answer")
            if paths:
                facts.append(f"{paths:,} pairs of other triplets imply another answer")
            chosen, is_odd = self._chosen(n), labels.counts.shape[1] == 3
            shown = [
                ShownItem(row, math.nan, ("odd one out" if is_odd else "nearer") if place == chosen else "", None)
                for place, row in enumerate(rows)
                if is_odd or place
            ]
            line = Line("Judged", shown)
        else:
            facts.append(f"predicted: {self._value(predicted)}")
            if count > 1:
                facts.append(f"{count:,} judgments, {differing:,} of them different from this one")
            judged = float(errors.judged[n])
            line = Line("Judged", [ShownItem(rows[1], judged, self._value(judged), None)])
        return Example(title, rows[0], "; ".join(facts), [line])

    def csv(self, count: int) -> bytes:
        """The judgments with the highest scores: their items, what was judged and predicted, and what others say."""
        errors, is_triplet = self.errors, isinstance(self.split.labels, TripletLabels)
        header = [*self._roles, "score", "judged", "predicted", "judgments", "others_differ"]
        lines: list[list[str | float]] = [[*header, *(["implied_otherwise"] if is_triplet else [])]]
        for n in self.rows(count):
            names = self._names(n)
            judged = names[self._chosen(n)] if is_triplet else float(errors.judged[n])
            numbers = [int(each[n]) for each in (errors.judgments, errors.others_differ, errors.implied_otherwise)]
            cells = [float(errors.scores[n]), judged, float(errors.predicted[n]), *numbers[: 3 if is_triplet else 2]]
            lines.append([*names, *cells])
        return csv_bytes(lines)
