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
        baselines: what the model is compared with, the lowest and the highest score.
        best: what the second one is called in the main sentence of a report.
        ranked: whether a gallery is ranked by label distance.
        plotted: the form of the main metric in a plot of several runs.
    """

    baselines: ClassVar[tuple[str, str]] = ("random", "oracle")
    best: ClassVar[str] = "best possible"
    ranked: ClassVar[bool] = True
    plotted: ClassVar[str] = "/random"

    def headline(self, evaluation: Evaluation) -> str:
        """The name of the main metric."""
        return f"label_distance@{evaluation.k}"

    def usual(self, evaluation: Evaluation) -> list[str]:
        """The metrics that papers report."""
        main = self.headline(evaluation)
        return [main, f"{main}/random", f"ndcg@{evaluation.k}", "spearman"]

    def text(self, evaluation: Evaluation, value: float) -> str:
        """A value of the main metric in the main sentence of a report."""
        return evaluation.measure.text(value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        """The main sentence of a report, without the baselines."""
        measure, model, one = evaluation.measure, self.text(evaluation, score.model), evaluation.k == 1
        start = "The nearest item" if one else f"The {evaluation.k} nearest items"
        if measure.is_plain:
            return f"{start} {'is' if one else 'are'} at a mean label distance of {model}"
        return f"{start} {'differs' if one else 'differ'} by {model}{f' in {measure.name}' if measure.name else ''}"

    def unit(self, evaluation: Evaluation) -> str:
        """What a label distance is, in words."""
        return evaluation.unit

    def size(self, evaluation: Evaluation) -> str:
        """What was evaluated."""
        return f"{evaluation.queries:,} queries, {evaluation.gallery:,} in the gallery"


class _Classes(Kind):
    plotted = ""

    def headline(self, evaluation: Evaluation) -> str:  # noqa: ARG002
        return "recall@1"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*(f"recall@{k}" for k in evaluation.recall_at[:4]), *evaluation.scores]

    def text(self, evaluation: Evaluation, value: float) -> str:  # noqa: ARG002
        return percent(value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        share = self.text(evaluation, score.model)
        return f"The nearest item is of the query's class for {share} of the queries"

    def unit(self, evaluation: Evaluation) -> str:  # noqa: ARG002
        return "0 within a class, 1 between classes"


class _Captions(Kind):
    baselines = ("random caption", "person")
    best = "person"
    ranked = False
    plotted = ""

    def headline(self, evaluation: Evaluation) -> str:  # noqa: ARG002
        return "cider_d"

    def usual(self, evaluation: Evaluation) -> list[str]:
        return ["bleu@1", "bleu@4", *evaluation.scores]

    def text(self, evaluation: Evaluation, value: float) -> str:
        return evaluation.text(evaluation.headline, value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        return f"{score.title} is {self.text(evaluation, score.model)}"

    def size(self, evaluation: Evaluation) -> str:
        return f"{evaluation.queries:,} images"


#: The kinds by name. Of a file without a kind, it is the first one whose main metric is there.
KINDS: dict[KindName, Kind] = {"captions": _Captions(), "classes": _Classes(), "graded": Kind()}
