"""The kinds of results: the main metric of each, what it is compared with, and what it is in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from contml._support.text import percent

if TYPE_CHECKING:
    from contml.evaluation.results import Evaluation, Score

#: "graded": retrieval by label distance; "classes": retrieval by class; "captions": written captions.
KindName: TypeAlias = Literal["graded", "classes", "captions"]


class Kind:
    """What all results of one kind have in common; here, of graded labels.

    Attributes:
        headline: the main metric; "{k}" is the K of mean label distance that is shown first.
        plotted: its form in a plot of several runs.
        baselines: what the model is compared with, the lowest and the highest score.
        best: what the second one is called in the main sentence of a report.
        ranked: whether a gallery is ranked by label distance.
        unit: what a label distance is; "": as the labels say.
        size: what was evaluated.
    """

    headline: ClassVar[str] = "label_distance@{k}"
    plotted: ClassVar[str] = "/random"
    baselines: ClassVar[tuple[str, str]] = ("random", "oracle")
    best: ClassVar[str] = "best possible"
    ranked: ClassVar[bool] = True
    unit: ClassVar[str] = ""
    size: ClassVar[str] = "{queries:,} queries, {gallery:,} in the gallery"

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


class _Classes(Kind):
    headline = "recall@1"
    plotted = ""
    unit = "0 within a class, 1 between classes"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*(f"recall@{k}" for k in evaluation.recall_at[:4]), *evaluation.scores]

    def text(self, evaluation: Evaluation, value: float) -> str:  # noqa: ARG002
        return percent(value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:  # noqa: ARG002
        return f"The nearest item is of the query's class for {percent(score.model)} of the queries"


class _Captions(Kind):
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


#: The kinds by name. Of a file without a kind, it is the first one whose main metric is there.
KINDS: dict[KindName, Kind] = {"captions": _Captions(), "classes": _Classes(), "graded": Kind()}
