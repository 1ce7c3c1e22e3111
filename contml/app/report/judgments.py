"""The report on judgments: each kind (pairs, triplets, rankings) says its own words, examples and rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from matplotlib.figure import Figure

from contml._support.pages import csv_bytes
from contml._support.text import percent, score_text
from contml.app.report.examples import Example, Line, ShownItem
from contml.app.report.page import About, Album, Page, interval_rows, texts
from contml.app.report.plots import density_plot
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated, scope
from contml.evaluation.judgment_errors import ScoredJudgments
from contml.evaluation.judgments import Judged
from contml.evaluation.results import Evaluation
from contml.labels.base import LabelSpace
from contml.labels.judged import PairLabels, RankingLabels, TripletLabels

_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Cells: TypeAlias = "list[str | float]"

#: Judgments of each kind that a page shows, and items of a list.
_SPREAD, _WORST, _ITEMS = 8, 4, 10


class JudgmentKind(ABC):
    """What pages and files say of one kind of judgments.

    The methods for an audit are for judged numbers; triplets have their own.

    Attributes:
        labels: the judgments.
        roles: what the items of a judgment are.
        counts: the columns of an audit's file that count judgments.
    """

    counts: ClassVar[Sequence[str]] = ("judgments", "others_differ")

    def __init__(self, labels: Any) -> None:
        self.labels = labels
        self.roles: Sequence[str] = ("a", "b")

    @abstractmethod
    def lines(self, judged: Judged, names: Sequence[str]) -> Iterable[_Cells]:
        """Return a header, and a line for each judgment: its items, what judges and model say, its main metric."""

    @abstractmethod
    def contradiction(self, judged: Judged) -> _Floats:
        """Return how much each judgment contradicts the model `[J]`."""

    @abstractmethod
    def example(self, judged: Judged, n: int, title: str) -> Example:
        """Return a judgment with its items."""

    def figures(self, judged: Judged, metrics: Evaluation) -> Mapping[str, Figure]:  # noqa: ARG002
        """Return the plots of this kind alone."""
        return {}

    @property
    def values(self) -> dict[str, Any]:
        """What the template says of this kind."""
        return {"triplets": False, "pairs": False, "value": ""}

    def value(self, value: float) -> str:
        """Return a judged number in its unit."""
        text: str = self.labels.measure.text(value)
        return text

    def words(self, errors: ScoredJudgments, n: int, names: Sequence[str]) -> str:
        """Return a judgment in a line."""
        return f"{' and '.join(names)}: {self.value(float(errors.judged[n]))}"

    def facts(self, errors: ScoredJudgments, n: int) -> list[str]:
        """Return what the network and other judges say of a judgment."""
        facts, count = [f"predicted: {self.value(float(errors.predicted[n]))}"], int(errors.judgments[n])
        if count > 1:
            facts.append(f"{count:,} judgments, {int(errors.others_differ[n]):,} of them different from this one")
        return facts

    def shown(self, errors: ScoredJudgments, n: int) -> list[ShownItem]:
        """Return the items of a judgment, without the first one."""
        judged = float(errors.judged[n])
        return [ShownItem(int(errors.items[n, 1]), judged, self.value(judged), None)]

    def judged(self, errors: ScoredJudgments, n: int, names: Sequence[str]) -> str | float:  # noqa: ARG002
        """Return what was judged, for a file."""
        return float(errors.judged[n])


class _PairErrors(JudgmentKind):
    """Judged pairs; a judgment contradicts the model by the difference of the places of the pair."""

    labels: PairLabels

    def lines(self, judged: Judged, names: Sequence[str]) -> Iterable[_Cells]:
        yield ["a", "b", "judged_distance", "judgments", "standard_deviation", "embedding_distance"]
        columns = (*self.labels.judged_pairs, judged.distances)
        for pair, mean, n, spread, distance in zip(*(column.tolist() for column in columns), strict=True):
            yield [*(names[row] for row in pair), mean, n, "" if n == 1 else spread, distance]

    def contradiction(self, judged: Judged) -> _Floats:
        by_model, by_judges = self._places(judged)
        difference: _Floats = abs(by_model - by_judges)
        return difference

    def example(self, judged: Judged, n: int, title: str) -> Example:
        pairs, (by_model, by_judges) = self.labels.judged_pairs, self._places(judged)
        row, other = pairs.rows[n].tolist()
        distance, count = float(pairs.distances[n]), int(pairs.counts[n])
        details = f"farther than {percent(float(by_judges[n]))} of the pairs by the judges"
        details += f", than {percent(float(by_model[n]))} by the model"
        if count > 1:
            details += f"; {count} judgments, standard deviation {self.value(float(pairs.spreads[n]))}"
        return Example(
            title, row, details, [Line("Judged with", [ShownItem(other, distance, self.value(distance), None)])]
        )

    def figures(self, judged: Judged, metrics: Evaluation) -> Mapping[str, Figure]:
        points = torch.stack((self.labels.judged_pairs.distances, judged.distances), 1)
        return {"density": density_plot(points, metrics.main.model, None, metrics.measure)}

    @property
    def values(self) -> dict[str, Any]:
        return {**super().values, "pairs": True}

    def _places(self, judged: Judged) -> tuple[_Floats, _Floats]:
        """Return the place of each pair, from 0, the nearest, to 1 `[J]`: by the embedding, and by the judges."""
        from scipy.stats import rankdata  # here: it takes a while to import

        x, y = judged.distances.numpy(), self.labels.judged_pairs.distances.numpy()
        by_model, by_judges = ((rankdata(values) - 1) / max(1, len(values) - 1) for values in (x, y))
        return by_model, by_judges


class _RankingErrors(JudgmentKind):
    """Graded lists; a list contradicts the model by its nDCG."""

    labels: RankingLabels

    def __init__(self, labels: RankingLabels) -> None:
        super().__init__(labels)
        self.roles = ("query", "item")

    def lines(self, judged: Judged, names: Sequence[str]) -> Iterable[_Cells]:
        labels = self.labels
        yield ["query", "item", labels.of, "embedding_distance", "ndcg_of_the_query"]
        for judgment, value in enumerate(judged.values.tolist()):
            start, end = labels.offsets[judgment] + 1, labels.offsets[judgment + 1]
            query = names[labels.queries[judgment]]
            parts = (labels.members[start:end], labels.values[start:end], judged.distances[start:end].numpy())
            for item, grade, distance in zip(*(part.tolist() for part in parts), strict=True):
                yield [query, names[item], grade, distance, value]

    def contradiction(self, judged: Judged) -> _Floats:
        return 1 - judged.values.numpy()

    def example(self, judged: Judged, n: int, title: str) -> Example:
        labels = self.labels
        start, end = labels.offsets[n] + 1, labels.offsets[n + 1]
        members, grades = labels.members[start:end], labels.values[start:end]

        def items(keys: _Floats) -> list[ShownItem]:
            order = np.argsort(keys, kind="stable")[:_ITEMS]
            return [ShownItem(int(members[i]), float(grades[i]), f"{grades[i]:.3g}", None) for i in order]

        model, best = items(judged.distances[start:end].numpy()), items(-labels.gains[start:end])
        details = f"nDCG {score_text(float(judged.values[n]))}"
        return Example(title, int(labels.queries[n]), details, [Line("Model", model), Line("Best order", best)])

    @property
    def values(self) -> dict[str, Any]:
        return {**super().values, "value": self.labels.of}

    def value(self, value: float) -> str:
        return f"{self.labels.of} {value:.3g}"


class _TripletErrors(JudgmentKind):
    """Triplets, with or without an anchor; one contradicts the model by the judges against it and by its margin."""

    labels: TripletLabels
    counts = (*JudgmentKind.counts, "implied_otherwise")

    def __init__(self, labels: TripletLabels) -> None:
        super().__init__(labels)
        self.answers: int = labels.counts.shape[1]
        self.is_odd = self.answers == 3
        self.roles = ("a", "b", "c") if self.is_odd else ("anchor", "x", "y")

    def lines(self, judged: Judged, names: Sequence[str]) -> Iterable[_Cells]:
        numbers = range(1, self.answers + 1)
        yield [*self.roles, *(f"judges_{n}" for n in numbers), *(f"distance_{n}" for n in numbers), "accuracy"]
        columns = (self.labels.triplets, self.labels.counts, judged.distances, judged.values)
        for triplet, counts, distances, value in zip(*(column.tolist() for column in columns), strict=True):
            yield [*(names[row] for row in triplet), *counts, *distances, value]

    def contradiction(self, judged: Judged) -> _Floats:
        distances, share = judged.distances.numpy(), self.labels.shares.max(1)
        of_most = np.take_along_axis(distances, self.labels.counts.argmax(1)[:, None], axis=1)[:, 0]
        margin = 1 - distances.min(1) / np.maximum(of_most, 1e-30)
        contradiction: _Floats = margin * share * (share > 0.5) * (judged.values.numpy() == 0)
        return contradiction

    def example(self, judged: Judged, n: int, title: str) -> Example:
        distances, shares = judged.distances[n].numpy(), self.labels.shares[n]
        judges, chosen = self.labels.counts[n].sum(), distances == distances.min()
        triplet, right = self.labels.triplets[n].tolist(), bool(judged.values[n] == 1)
        texts_of_distances = [score_text(float(each)) for each in distances]
        if self.is_odd:
            heading, texts_of_items = "Which is the odd one out?", [f"odd for {percent(float(s))}" for s in shares]
            values, details = [math.nan] * 3, f"embedding distances without it {', '.join(texts_of_distances)}"
        else:
            heading, texts_of_items = "Which is nearer?", [f"{percent(float(share))} of judges" for share in shares]
            values, details = distances.tolist(), f"embedding distances {' and '.join(texts_of_distances)}"
        shown = [
            ShownItem(row, value, text, right if is_chosen else None)
            for row, value, text, is_chosen in zip(
                triplet[-self.answers :], values, texts_of_items, chosen, strict=True
            )
        ]
        count = f"{judges:,.0f} judge{'s' if judges != 1 else ''}"
        return Example(title, triplet[0], f"{count}; in colour: the model's answer; {details}", [Line(heading, shown)])

    @property
    def values(self) -> dict[str, Any]:
        return {**super().values, "triplets": True}

    def words(self, errors: ScoredJudgments, n: int, names: Sequence[str]) -> str:
        chosen = self.judged(errors, n, names)
        answer = f"{chosen} is the odd one out" if self.is_odd else f"{chosen} is nearer to {names[0]}"
        return f"{', '.join(names)}: {answer}"

    def facts(self, errors: ScoredJudgments, n: int) -> list[str]:
        facts = [f"the network gives this answer a probability of {percent(float(errors.predicted[n]))}"]
        count, differing, paths = (int(errors._asdict()[name][n]) for name in self.counts)
        if count > 1:
            facts.append(f"{count:,} judges, {differing:,} of them with another answer")
        return [*facts, *([f"{paths:,} pairs of other triplets imply another answer"] if paths else [])]

    def shown(self, errors: ScoredJudgments, n: int) -> list[ShownItem]:
        rows, chosen, word = (
            errors.items[n].tolist(),
            self._chosen(errors, n),
            "odd one out" if self.is_odd else "nearer",
        )
        places = range(3 - self.answers, 3)
        return [ShownItem(rows[place], math.nan, word * (place == chosen), None) for place in places]

    def judged(self, errors: ScoredJudgments, n: int, names: Sequence[str]) -> str | float:
        return names[self._chosen(errors, n)]

    def _chosen(self, errors: ScoredJudgments, n: int) -> int:
        """Return the item that an answer names: a position in the three."""
        return int(errors.judged[n]) + 3 - self.answers


#: What pages say of judgments, by their label space.
JUDGMENT_KINDS: dict[type[LabelSpace], type[JudgmentKind]] = {
    PairLabels: _PairErrors,
    TripletLabels: _TripletErrors,
    RankingLabels: _RankingErrors,
}


def judgment_kind(labels: LabelSpace) -> JudgmentKind:
    """Return what pages say of these judgments."""
    return JUDGMENT_KINDS[type(labels)](labels)


@dataclass(frozen=True)
class JudgmentContent:
    """Judgments, as a report shows them: metrics with intervals, judgments with their images, curves.

    Also `queries.csv`: what judges and model say in each judgment.

    Attributes:
        judged: what the model says about the judgments.
    """

    judged: Judged

    def page(self, split: Split, evaluated: Evaluated, about: About) -> Page:  # noqa: ARG002
        """What the report shows."""
        judged, metrics, album = self.judged, evaluated.evaluation, Album(split)
        kind, (spread, worst) = judgment_kind(judged.labels), judged_examples(judged)
        album.prepare([*spread, *worst])
        means = {name: score.model for name, score in metrics.scores.items()}
        values = {
            **kind.values,
            "size": scope(metrics),
            "intervals": texts(interval_rows(means, metrics.intervals)),
            "first": [spread[n] for n in sorted({0, len(spread) // 2, len(spread) - 1})],
            "spread": spread,
            "worst": worst,
        }
        files = {"queries.csv": csv_bytes(kind.lines(judged, split.names))}
        return Page("judgments.html", album, kind.figures(judged, metrics), files, values)


def judged_examples(judged: Judged) -> tuple[list[Example], list[Example]]:
    """Judgments from good to bad, and the judgments that contradict the model the most."""
    kind = judgment_kind(judged.labels)
    spread = [kind.example(judged, n, f"Judgment {rank}") for rank, n in enumerate(judged.shown(_SPREAD), start=1)]
    gap = kind.contradiction(judged)
    worst = [int(n) for n in np.argsort(-gap, kind="stable")[:_WORST] if gap[n] > 0]
    return spread, [kind.example(judged, n, f"Contradiction {rank}") for rank, n in enumerate(worst, start=1)]
