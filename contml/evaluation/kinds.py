"""The kinds of results: the main metric of each, what it is compared with, and what it is in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from contml._support.text import percent
from contml.contracts import Measure

if TYPE_CHECKING:
    from contml.evaluation.results import Evaluation, Score
    from contml.labels.base import LabelSpace

#: "graded": retrieval by label distance; "classes": retrieval by class; "captions": written captions; "pairs": judged
#: distances of pairs; "triplets": judgments of which of two items is nearer; "rankings": judged lists of queries.
KindName: TypeAlias = Literal["graded", "classes", "captions", "pairs", "triplets", "rankings"]


class ResultKind:
    """What all results of one kind have in common; here, of graded labels.

    Attributes:
        headline: the main metric; "{k}" is the K of mean label distance that is shown first.
        plotted: its form in a plot of several runs.
        baselines: what the model is compared with, the lowest and the highest score.
        best: what the second one is called in the main sentence of a report.
        ranked: whether a gallery is ranked by label distance.
        unit: what a label distance is; "": as the labels say.
        size: what was evaluated.
        nearest: what a perfect ranking retrieves.
        by_class: whether a retrieved item is right or wrong, and not nearer or farther.
    """

    headline: ClassVar[str] = "label_distance@{k}"
    plotted: ClassVar[str] = "/random"
    baselines: ClassVar[tuple[str, str]] = ("random", "oracle")
    best: ClassVar[str] = "best possible"
    ranked: ClassVar[bool] = True
    unit: ClassVar[str] = ""
    size: ClassVar[str] = "{queries:,} queries, {gallery:,} in the gallery"
    nearest: ClassVar[str] = "nearest by label"
    by_class: ClassVar[bool] = False

    def usual(self, evaluation: Evaluation) -> list[str]:
        """The metrics that papers report."""
        return [evaluation.headline, f"{evaluation.headline}/random", f"ndcg@{evaluation.k}", "spearman"]

    def text(self, evaluation: Evaluation, value: float) -> str:
        """A value of the main metric in the main sentence of a report."""
        return evaluation.text(evaluation.headline, value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        """The main sentence of a report, without the baselines."""
        measure, model, one = evaluation.measure, self.text(evaluation, score.model), evaluation.k == 1
        start = "The nearest item" if one else f"The {evaluation.k} nearest items"
        if measure.is_plain:
            return f"{start} {'is' if one else 'are'} at a mean label distance of {model}"
        return f"{start} {'differs' if one else 'differ'} by {model}{f' in {measure.name}' if measure.name else ''}"

    def unit_of_numbers(self, unit: str, measure: Measure) -> str:
        """What the number under a retrieved item is, of labels with this unit and measure; "" if there is none."""
        return unit_of_distances(unit, measure)

    def item(self, distance: float, measure: Measure) -> tuple[str, bool | None]:
        """What is written under an item at this label distance from the query, and whether it is right."""
        return measure.text(distance), None

    def quality(self, distances: Sequence[float], measure: Measure) -> str:
        """How good the first items of a ranking are, by their label distances."""
        finite = [distance for distance in distances if math.isfinite(distance)]
        return f"mean label distance {measure.text(fmean(finite) if finite else math.nan)}"

    def details(self, evaluation: Evaluation, distances: Sequence[float], values: Sequence[float]) -> str:  # noqa: ARG002
        """How good the ranking of a query is; `values`: its main metric, of the model, random, and of the oracle."""
        model, random, oracle = map(evaluation.measure.text, values)
        return f"{evaluation.k} nearest: {model}; random: {random}; {self.best}: {oracle}"


class _Classes(ResultKind):
    headline = "recall@1"
    plotted = ""
    unit = "0 within a class, 1 between classes"
    nearest = "the same class"
    by_class = True

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*(f"recall@{k}" for k in evaluation.recall_at[:4]), *evaluation.scores]

    def text(self, evaluation: Evaluation, value: float) -> str:  # noqa: ARG002
        return percent(value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:  # noqa: ARG002
        return f"The nearest item is of the query's class for {percent(score.model)} of the queries"

    def unit_of_numbers(self, unit: str, measure: Measure) -> str:  # noqa: ARG002
        return ""

    def item(self, distance: float, measure: Measure) -> tuple[str, bool | None]:
        return {0.0: ("same class", True), 1.0: ("another class", False)}.get(distance, (measure.text(distance), None))

    def quality(self, distances: Sequence[float], measure: Measure) -> str:  # noqa: ARG002
        return f"{distances.count(0.0)} of the top {len(distances)} have the same class"

    def details(self, evaluation: Evaluation, distances: Sequence[float], values: Sequence[float]) -> str:  # noqa: ARG002
        return self.quality(distances, evaluation.measure)


class _Captions(ResultKind):
    headline = "cider_d"
    plotted = ""
    baselines = ("random caption", "person")
    best = "person"
    ranked = False
    size = "{queries:,} images"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return ["bleu@1", "bleu@4", *evaluation.scores]

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        return f"{score.title} is {self.text(evaluation, score.model)}"


class _Pairs(ResultKind):
    headline = "judged_spearman"
    plotted = ""
    baselines = ("random", "judges")
    best = "what the judges allow"
    ranked = False
    size = "{queries:,} judged pairs"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*evaluation.scores]

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        value = self.text(evaluation, score.model)
        return f"Embedding distances and judged distances have a rank correlation of {value}"


class _Triplets(ResultKind):
    headline = "triplet_accuracy"
    plotted = ""
    baselines = ("random", "judge")
    best = "one judge beside the others"
    ranked = False
    size = "{queries:,} triplets"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*evaluation.scores]

    def text(self, evaluation: Evaluation, value: float) -> str:  # noqa: ARG002
        return percent(value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        return f"The answer is that of most judges for {self.text(evaluation, score.model)} of the triplets"


class _Rankings(ResultKind):
    headline = "judged_ndcg"
    plotted = ""
    ranked = False
    size = "{queries:,} queries, {gallery:,} judged items"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*evaluation.scores]

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        return f"The nDCG of the judged items of a query is {self.text(evaluation, score.model)}"


#: The kinds by name. Of a file without a kind, it is the first one whose main metric is there.
KINDS: dict[KindName, ResultKind] = {
    "captions": _Captions(),
    "pairs": _Pairs(),
    "triplets": _Triplets(),
    "rankings": _Rankings(),
    "classes": _Classes(),
    "graded": ResultKind(),
}


def kind_of(labels: LabelSpace) -> ResultKind:
    """The kind of a ranking by these labels."""
    return KINDS["classes" if labels.kind == "classes" else "graded"]


def unit_of_distances(unit: str, measure: Measure) -> str:
    """What label distances to a query are, as a measure prints them; `unit`: what a label distance of 1 is."""
    if measure.is_plain:
        return f"the label distance to the query ({unit})"
    quantity = f" in {measure.name}" if measure.name else ""
    if measure.kind == "ratio":
        return f"the factor between the item and the query{quantity} (of several items: the geometric mean)"
    mean = " (of several items: the root mean square)" if measure.kind == "root" else ""
    return f"the difference between the item and the query{quantity}{mean}"
