"""The parts of a report on judgments: triplets with answers of judges and model, judged pairs, lists in order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from contml._support.pages import csv_bytes
from contml._support.text import percent, score_text
from contml.app.report.examples import Example
from contml.app.report.gallery import Line, ShownItem
from contml.app.report.page import About, Page
from contml.app.report.pictures import Album
from contml.app.report.plots import density_plot
from contml.app.report.rendering import interval_rows, texts
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.judgments import Judged
from contml.evaluation.table import scope
from contml.labels.judged import PairLabels, RankingLabels, TripletLabels

_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Judgments of each kind that a page shows, and items of a list.
_SPREAD, _WORST, _ITEMS = 8, 4, 10


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
        labels, (spread, worst) = judged.labels, judged_examples(judged)
        first = [spread[n] for n in sorted({0, len(spread) // 2, len(spread) - 1})]
        album.prepare([*spread, *worst])
        means = {name: score.model for name, score in metrics.scores.items()}
        values = {
            "triplets": labels.kind == "triplets",
            "pairs": isinstance(labels, PairLabels),
            "value": labels.of if isinstance(labels, RankingLabels) else "",
            "size": scope(metrics),
            "intervals": texts(interval_rows(means, metrics.intervals)),
            "first": first,
            "spread": spread,
            "worst": worst,
        }
        figures = {}
        if isinstance(labels, PairLabels):
            points = torch.stack((labels.judged_pairs.distances, judged.distances), 1)
            figures["density"] = density_plot(points, metrics.main.model, None, metrics.measure)
        files = {"queries.csv": judgments_csv(judged, split)}
        return Page("judgments.html", album, figures, files, values)


def judged_examples(judged: Judged) -> tuple[list[Example], list[Example]]:
    """Judgments from good to bad, and the judgments that contradict the model the most."""
    spread = [_example(judged, n, f"Judgment {rank}") for rank, n in enumerate(judged.shown(_SPREAD), start=1)]
    gap = _contradiction(judged)
    worst = [int(n) for n in np.argsort(-gap, kind="stable")[:_WORST] if gap[n] > 0]
    return spread, [_example(judged, n, f"Contradiction {rank}") for rank, n in enumerate(worst, start=1)]


def judgments_csv(judged: Judged, split: Split) -> bytes:
    """A line for each judgment: its items, what judges and model say, and its main metric."""
    labels, names = judged.labels, split.names
    if isinstance(labels, TripletLabels):
        answers = range(1, labels.counts.shape[1] + 1)
        header = [*_roles(labels), *(f"judges_{n}" for n in answers), *(f"distance_{n}" for n in answers), "accuracy"]
        columns = (labels.triplets, labels.counts, judged.distances, judged.values)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return csv_bytes([header, *([*(names[r] for r in t), *c, *d, v] for t, c, d, v in rows)])
    if isinstance(labels, PairLabels):
        pairs = labels.judged_pairs
        header = ["a", "b", "judged_distance", "judgments", "standard_deviation", "embedding_distance"]
        of_pairs = (*pairs, judged.distances)
        found = zip(*(column.tolist() for column in of_pairs), strict=True)
        cells = ([*(names[row] for row in pair), mean, n, "" if n == 1 else sd, e] for pair, mean, n, sd, e in found)
        return csv_bytes([header, *cells])
    assert isinstance(labels, RankingLabels)
    lines: list[list[str | float]] = [["query", "item", labels.of, "embedding_distance", "ndcg_of_the_query"]]
    for judgment, value in enumerate(judged.values.tolist()):
        start, end = labels.offsets[judgment] + 1, labels.offsets[judgment + 1]
        query = names[labels.queries[judgment]]
        parts = (labels.members[start:end], labels.values[start:end], judged.distances[start:end].numpy())
        items = zip(*(part.tolist() for part in parts), strict=True)
        lines += [[query, names[item], grade, distance, value] for item, grade, distance in items]
    return csv_bytes(lines)


def _roles(labels: TripletLabels) -> tuple[str, str, str]:
    """What the three items of a triplet are."""
    return ("anchor", "x", "y") if labels.counts.shape[1] == 2 else ("a", "b", "c")


def _contradiction(judged: Judged) -> _Floats:
    """How much a judgment contradicts the model `[J]`.

    Of triplets, by the share of judges against it and its margin; of pairs, by the difference of the places that the
    pair has by judged and by embedding distance; of lists, by nDCG.
    """
    labels, values = judged.labels, judged.values.numpy()
    if isinstance(labels, PairLabels):
        by_model, by_judges = _places(judged, labels)
        difference: _Floats = abs(by_model - by_judges)
        return difference
    if not isinstance(labels, TripletLabels):
        return 1 - values
    distances = judged.distances.numpy()
    share = labels.shares.max(1)
    of_most = np.take_along_axis(distances, labels.counts.argmax(1)[:, None], axis=1)[:, 0]
    margin = 1 - distances.min(1) / np.maximum(of_most, 1e-30)
    contradiction: _Floats = margin * share * (share > 0.5) * (values == 0)
    return contradiction


def _example(judged: Judged, n: int, title: str) -> Example:
    labels = judged.labels
    if isinstance(labels, TripletLabels):
        return _triplet(judged, labels, n, title)
    if isinstance(labels, PairLabels):
        return _pair(judged, labels, n, title)
    assert isinstance(labels, RankingLabels)
    start, end = labels.offsets[n] + 1, labels.offsets[n + 1]
    distances = judged.distances[start:end].numpy()
    members, grades = labels.members[start:end], labels.values[start:end]
    best = np.argsort(-labels.gains[start:end], kind="stable")

    def items(order: _Integers) -> list[ShownItem]:
        return [ShownItem(int(members[i]), float(grades[i]), f"{grades[i]:.3g}", None) for i in order[:_ITEMS]]

    lines = [Line("Model", items(np.argsort(distances, kind="stable"))), Line("Best order", items(best))]
    return Example(title, int(labels.queries[n]), f"nDCG {score_text(float(judged.values[n]))}", lines)


def _places(judged: Judged, labels: PairLabels) -> tuple[_Floats, _Floats]:
    """The place of each pair from 0, the nearest, to 1, the farthest `[J]`: by the embedding, and by the judges."""
    from scipy.stats import rankdata  # here: it takes a while to import

    x, y = judged.distances.numpy(), labels.judged_pairs.distances.numpy()
    by_model, by_judges = ((rankdata(values) - 1) / max(1, len(values) - 1) for values in (x, y))
    return by_model, by_judges


def _pair(judged: Judged, labels: PairLabels, n: int, title: str) -> Example:
    pairs, (by_model, by_judges) = labels.judged_pairs, _places(judged, labels)
    row, other = pairs.rows[n].tolist()
    distance, count = float(pairs.distances[n]), int(pairs.counts[n])
    words = labels.measure.text(distance)
    details = f"farther than {percent(float(by_judges[n]))} of the pairs by the judges"
    details += f", than {percent(float(by_model[n]))} by the model"
    if count > 1:
        details += f"; {count} judgments, standard deviation {labels.measure.text(float(pairs.spreads[n]))}"
    return Example(title, row, details, [Line("Judged with", [ShownItem(other, distance, words, None)])])


def _triplet(judged: Judged, labels: TripletLabels, n: int, title: str) -> Example:
    distances, shares = judged.distances[n].numpy(), labels.shares[n]
    judges, chosen = labels.counts[n].sum(), distances == distances.min()
    triplet = labels.triplets[n].tolist()
    right = bool(judged.values[n] == 1)
    if len(shares) == 2:
        words = [f"{percent(float(share))} of judges" for share in shares]
        shown = [
            ShownItem(row, float(distance), text, right if is_chosen else None)
            for row, distance, text, is_chosen in zip(triplet[1:], distances, words, chosen, strict=True)
        ]
        details = f"embedding distances {score_text(float(distances[0]))} and {score_text(float(distances[1]))}"
        line, row = Line("Which is nearer?", shown), triplet[0]
    else:
        shown = [
            ShownItem(row, math.nan, f"odd for {percent(float(share))}", right if is_odd else None)
            for row, share, is_odd in zip(triplet, shares, chosen, strict=True)
        ]
        details = "embedding distances without it " + ", ".join(score_text(float(each)) for each in distances)
        line, row = Line("Which is the odd one out?", shown), triplet[0]
    count = f"{judges:,.0f} judge{'s' if judges != 1 else ''}"
    return Example(title, row, f"{count}; in colour: the model's answer; {details}", [line])
