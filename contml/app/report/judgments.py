"""The report on judgments. Each kind (pairs, triplets, rankings) has its own texts, examples and rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib.figure import Figure

from contml._support.text import percent, score_text
from contml.app.report.examples import Example, Line, ShownItem
from contml.app.report.page import Album, Page, interval_rows, texts
from contml.app.report.plots import density_plot
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated, scope
from contml.evaluation.judgments import Judged
from contml.evaluation.results import Evaluation
from contml.labels.base import LabelSpace
from contml.labels.judged import PairLabels, RankingLabels, TripletLabels

_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Judgments of each kind that a page shows, and items of a list.
_SPREAD, _ITEMS = 8, 10


class JudgmentKind(ABC):
    """The texts and examples of one kind of judgments, for pages and files.

    Args:
        labels: the judgments.
    """

    def __init__(self, labels: Any) -> None:
        self.labels = labels

    @abstractmethod
    def example(self, judged: Judged, n: int, title: str) -> Example:
        """Return a judgment with its items."""

    def figures(self, judged: Judged, metrics: Evaluation) -> Mapping[str, Figure]:  # noqa: ARG002
        """Return the plots that only this kind has."""
        return {}

    @property
    def values(self) -> dict[str, Any]:
        """The values of the template for this kind."""
        return {"triplets": False, "pairs": False, "value": ""}


class _PairKind(JudgmentKind):
    """Judged pairs."""

    labels: PairLabels

    def example(self, judged: Judged, n: int, title: str) -> Example:
        pairs, (by_model, by_judges) = self.labels.judged_pairs, self._places(judged)
        row, other = pairs.rows[n].tolist()
        distance, count, text = float(pairs.distances[n]), int(pairs.counts[n]), self.labels.measure.text
        details = f"farther than {percent(float(by_judges[n]))} of the pairs by the judges"
        details += f", than {percent(float(by_model[n]))} by the model"
        if count > 1:
            details += f"; {count} judgments, standard deviation {text(float(pairs.spreads[n]))}"
        return Example(title, row, details, [Line("Judged with", [ShownItem(other, distance, text(distance), None)])])

    def figures(self, judged: Judged, metrics: Evaluation) -> Mapping[str, Figure]:
        points = torch.stack((self.labels.judged_pairs.distances, judged.distances), 1)
        return {"density": density_plot(points, metrics.main.model, metrics.measure)}

    @property
    def values(self) -> dict[str, Any]:
        return {**super().values, "pairs": True}

    def _places(self, judged: Judged) -> tuple[_Floats, _Floats]:
        """Return the place of each pair, from 0, the nearest, to 1 `[J]`: by the embedding, and by the judges."""
        from scipy.stats import rankdata  # here: it takes a while to import

        x, y = judged.distances.numpy(), self.labels.judged_pairs.distances.numpy()
        by_model, by_judges = ((rankdata(values) - 1) / max(1, len(values) - 1) for values in (x, y))
        return by_model, by_judges


class _RankingKind(JudgmentKind):
    """Graded lists."""

    labels: RankingLabels

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


class _TripletKind(JudgmentKind):
    """Triplets, with or without an anchor."""

    labels: TripletLabels

    def __init__(self, labels: TripletLabels) -> None:
        super().__init__(labels)
        self.answers: int = labels.counts.shape[1]
        self.is_odd = self.answers == 3

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
        items = zip(triplet[-self.answers :], values, texts_of_items, chosen, strict=True)
        shown = [ShownItem(row, value, text, right if is_chosen else None) for row, value, text, is_chosen in items]
        count = f"{judges:,.0f} judge{'s' if judges != 1 else ''}"
        return Example(title, triplet[0], f"{count}; in colour: the model's answer; {details}", [Line(heading, shown)])

    @property
    def values(self) -> dict[str, Any]:
        return {**super().values, "triplets": True}


#: The kinds of judgments, by their label space.
JUDGMENT_KINDS: dict[type[LabelSpace], type[JudgmentKind]]
JUDGMENT_KINDS = {PairLabels: _PairKind, TripletLabels: _TripletKind, RankingLabels: _RankingKind}


def judgment_kind(labels: LabelSpace) -> JudgmentKind:
    """Return the kind of these judgments."""
    return JUDGMENT_KINDS[type(labels)](labels)


@dataclass(frozen=True)
class JudgmentContent:
    """Judgments for a report: metrics with intervals, judgments with their images, curves.

    Attributes:
        judged: the answers of the model to the judgments.
    """

    judged: Judged

    def page(self, split: Split, evaluated: Evaluated) -> Page:
        """Return the content of the report."""
        judged, metrics, album = self.judged, evaluated.evaluation, Album(split)
        kind = judgment_kind(judged.labels)
        spread = [kind.example(judged, n, f"Judgment {rank}") for rank, n in enumerate(judged.shown(_SPREAD), start=1)]
        album.prepare(spread)
        means = {name: score.model for name, score in metrics.scores.items()}
        intervals = texts(interval_rows(means, metrics.intervals))
        first = [spread[n] for n in sorted({0, len(spread) // 2, len(spread) - 1})]
        values = {**kind.values, "size": scope(metrics), "intervals": intervals, "first": first, "spread": spread}
        return Page("judgments.html", album, kind.figures(judged, metrics), values)
