"""Results of an evaluation: metrics by name, the kinds of results, and the main metric of each query."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import read_record, write_json
from contml._support.text import percent, score_text
from contml.contracts import PLAIN, Measure
from contml.evaluation.intervals import half_width
from contml.evaluation.metrics import METRICS, METRICS_AT_K, measure_of

if TYPE_CHECKING:
    from contml.labels.base import LabelSpace

#: The K at which Recall@K is reported unless the data or the caller give others.
RECALL_AT = (1, 2, 4, 8, 10, 20, 50, 100)
#: Suffixes of metric names: "/random" divides by the value of a random ranking, "/normalized" is the normalized score.
FORMS = ("random", "normalized")


def headline_k(places: int) -> int:
    """Return the K of the main metric of continuous labels, for rankings of `places` places (at most 100)."""
    return min(10, max(1, places // 10))


@dataclass(frozen=True)
class Score:
    """The value of one metric for the model, at random (its expectation), and for the oracle.

    "At random" means a random ranking, or random clusters of the same sizes.
    """

    title: str
    better: str  # "lower" or "higher"
    model: float
    random: float
    oracle: float

    def normalized(self) -> float:
        """Return the normalized score: 0 for random, 1 for the oracle. NaN if random and oracle are equal."""
        span = self.oracle - self.random
        return (self.model - self.random) / span if span else float("nan")


@dataclass(frozen=True)
class Curve:
    """One metric over K = 1, 2, ... of the model, of a random ranking (its expectation), and of the oracle.

    The oracle ranks the gallery by the true label distance.
    """

    title: str
    better: str  # "lower" or "higher"
    model: list[float]
    random: list[float]
    oracle: list[float]

    def at(self, k: int) -> Score:
        """Return the metric at K = k."""
        values = self.model[k - 1], self.random[k - 1], self.oracle[k - 1]
        return Score(f"{self.title}{'-' if self.title == 'BLEU' else '@'}{k}", self.better, *values)


def curve_of(name: str, model: Tensor, random: Tensor, oracle: Tensor) -> Curve:
    """Return the curve of a metric over K, given its values `[K]`."""
    metric = METRICS_AT_K[name]
    return Curve(metric.title, metric.better, model.tolist(), random.tolist(), oracle.tolist())


def score_of(name: str, model: float, random: float, oracle: float = 1.0) -> Score:
    """Return the score of a metric without a K."""
    return Score(METRICS[name].title, METRICS[name].better, model, random, oracle)


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one evaluation.

    For captions, "random" is a caption of another image. The "oracle" is a person: a reference, compared with the other
    references of its image. For triplets, the "oracle" is one judge compared with the others. It is NaN if no triplet
    has two judges. For pairs, the "oracle" is the score of the true distances, which is below 1 since judges err. It is
    NaN if no pair was judged twice.

    Attributes:
        unit: the meaning of a label distance of 1.
        queries: the number of queries. For captions it is the number of images, for judgments the number of triplets or
            pairs.
        gallery: the number of gallery items. It is 0 for captions, and the judged items of all queries for rankings.
        curves: the metrics with a K by name (`contml list metrics`). Entry K - 1 is the value at K.
        spearman: the rank correlation of embedding distance and label distance over all query-gallery pairs, or over a
            uniform sample of a million. NaN for captions.
        skipped: the number of images that could not be read.
        scores: the metrics without a K by name.
        recall_at: the K at which tables show Recall@K.
        sorted_queries: the number of queries of "hap" and "kendall", which sort the whole gallery. These are all
            queries, or a sample that is always the same.
        measure: how label distances are printed.
        kind: a name of `contml.evaluation.results.KINDS`.
        intervals: half the width of the 95 % interval of the model's metric by name, for judgments and for user-defined
            metrics. NaN for a single query or judgment.
        random_margin: half the width of the 95 % interval of the difference between the main metric of the model and of
            a random ranking, over the queries. Queries of one group or class are not independent. NaN for a single
            query, group or class. None if it was not measured.
        k: the K of mean label distance that is shown first.
    """

    unit: str
    queries: int
    gallery: int
    curves: dict[str, Curve]
    spearman: float
    skipped: int = 0
    scores: dict[str, Score] = field(default_factory=dict)
    recall_at: list[int] = field(default_factory=lambda: list(RECALL_AT))
    sorted_queries: int = 0
    measure: Measure = PLAIN
    kind: KindName = "graded"
    intervals: dict[str, float] = field(default_factory=dict)
    random_margin: float | None = None
    k: int = 10

    def __repr__(self) -> str:
        """Return the main metric beside its reference values, and the sizes. Curves have hundreds of numbers."""
        values = (self.main.model, self.main.random, self.main.oracle)
        model, random, oracle = (self.text(self.headline, value) for value in values)
        sizes = f"queries={self.queries}, gallery={self.gallery}"
        return f"{type(self).__name__}({self.headline}={model}, random={random}, oracle={oracle}, {sizes})"

    @property
    def headline(self) -> str:
        """The name of the main metric: "label_distance@10", "recall@1", "cider_d"."""
        return KINDS[self.kind].headline.format(k=self.k)

    @property
    def plotted(self) -> str:
        """The main metric as a plot of several runs shows it: "label_distance@10/random"."""
        return f"{self.headline}{KINDS[self.kind].plotted}"

    @property
    def main(self) -> Score:
        """The main metric."""
        score = measured(self, self.headline)
        assert score is not None  # of an evaluation that was computed
        return score

    def measure_of(self, metric: str) -> Measure | None:
        """Return how values of a metric are printed if they are label distances. Otherwise return None."""
        return measure_of(metric, self.measure)

    def text(self, metric: str, value: float, *, unit: bool = True) -> str:
        """Format a value of a metric. With `unit`, a label distance has its unit."""
        measure = self.measure_of(metric)
        return score_text(value) if measure is None else measure.text(value, unit=unit)

    def titled(self, metric: str, title: str) -> str:
        """Return the title of a metric above values without a unit.

        A label distance has its unit: "mean label distance, km".
        """
        measure = self.measure_of(metric)
        return title if measure is None or not measure.distance_unit else f"{title}, {measure.distance_unit}"

    def shown_k(self, name: str) -> list[int]:
        """Return the K at which tables show a curve, up to the last K of the curve."""
        ks = self.recall_at if name == "recall" else METRICS_AT_K[name].ks
        return [k for k in ks if k <= len(self.curves[name].model)]

    @property
    def notes(self) -> list[str]:
        """A sentence if the normalized score is not a number."""
        if KINDS[self.kind].ranked and self.main.oracle == self.main.random:
            return ["all label distances are equal: there is no normalized score"]
        return []

    def numbers(self) -> dict[str, float]:
        """Return the metrics of the model by name, at the K that tables show. A training logs these numbers."""
        at_k = {f"{name}@{k}": curve.model[k - 1] for name, curve in self.curves.items() for k in self.shown_k(name)}
        scores = {name: score.model for name, score in self.scores.items()}
        return {"spearman": self.spearman, **at_k, **scores, self.headline: self.main.model}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON. A correlation that does not exist is None."""
        values = asdict(self)
        if self.random_margin is None:
            del values["random_margin"]
        unknown = {name for name in ("spearman", "random_margin") if math.isnan(values.get(name, 0))}
        return {**values, **dict.fromkeys(unknown)}


@dataclass(frozen=True)
class Ranking:
    """The retrieved items, as rows of a split.

    Attributes:
        queries: the rows of the queries `[Q]`.
        model, oracle: the retrieved items `[Q, K]`, best first.
        label_distances, oracle_label_distances: the label distances of these items `[Q, K]`.
        pairs: (label distance, embedding distance) of a uniform sample of query-gallery pairs `[P, 2]`.
        embeddings: of the whole split `[N, d]`. `[0, d]` if they were not requested.
        values: the main metric of each query `[Q]`, float64: Recall@1, or label distance@10, ties as expectations.
            Their mean is the main metric of the evaluation.
        random_values, oracle_values: the main metric of each query `[Q]` of a random ranking (expected) and of the
            oracle.
        label_distance_at_k: the label distance@K of each query of the model and of the oracle `[Q, 2]`, float64.
        scores: metrics of each query by name, `[Q]`, float64.
        items: the groups and classes of the queries `[Q, m]`. Queries that share an item are not independent. None if
            all are independent.
        k: the K of `label_distance_at_k`.
    """

    queries: Tensor
    model: Tensor
    oracle: Tensor
    label_distances: Tensor
    oracle_label_distances: Tensor
    pairs: Tensor
    embeddings: Tensor
    values: Tensor
    random_values: Tensor
    oracle_values: Tensor
    label_distance_at_k: Tensor
    scores: dict[str, Tensor]
    items: Tensor | None = None
    k: int = 10


@dataclass(frozen=True, eq=False, repr=False)
class Retrieval:
    """The result of `evaluate`: metrics, their values for each query, their intervals, and the rankings.

    Attributes:
        evaluation: the metrics of the model, of a random ranking and of the oracle, as curves over K.
        ranking: the retrieved items of each query.
    """

    evaluation: Evaluation
    ranking: Ranking

    def __repr__(self) -> str:
        return "; ".join([repr(self.evaluation), *self.evaluation.notes])

    @property
    def score(self) -> float:
        """The normalized score of the main metric: 0 for random, 1 for the oracle. NaN if the two are equal."""
        return self.evaluation.main.normalized()

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the model by name, at every K that was ranked."""
        curves = self.evaluation.curves.items()
        at_k = {f"{name}@{k}": value for name, curve in curves for k, value in enumerate(curve.model, 1)}
        return {**self.evaluation.numbers(), **at_k}

    @property
    def per_query(self) -> dict[str, Tensor]:
        """Metrics of each query by name, `[Q]`, float64, in the order of `ranking.queries`."""
        return {self.evaluation.headline: self.ranking.values, **self.ranking.scores}

    @property
    def intervals(self) -> dict[str, float]:
        """Half the width of the 95 % interval of each metric of `per_query`. NaN for a single query, group or class."""
        return {name: half_width(values, self.ranking.items) for name, values in self.per_query.items()}


@dataclass(frozen=True)
class QueryMetric:
    """The main metric of each query. Only this result is sent to processes other than the first one.

    `values` `[Q]` are float64. `items` `[Q, m]` are the items of each query. Queries that share an item are not
    independent.
    """

    values: Tensor
    items: Tensor | None


# ---------------------------------------------------------------------------------------------------------------------
# metrics by name: "recall@1", "map_at_r", "label_distance@10/random", "label_distance@10/normalized"


def measured(evaluation: Evaluation, metric: str) -> Score | None:
    """Return the metric of the model, of a random ranking and of the oracle. Return None if it was not measured."""
    base, _, form = metric.partition("/")
    name, _, k = base.partition("@")
    score = evaluation.scores.get(base)
    if base == "spearman" and KINDS[evaluation.kind].ranked:
        score = score_of(base, evaluation.spearman, 0.0)
    elif name in evaluation.curves and k.isdecimal() and 1 <= int(k) <= len(evaluation.curves[name].model):
        score = evaluation.curves[name].at(int(k))
    if score is None or not form:
        return score
    if form == "normalized":
        return Score(f"{score.title}, normalized", "higher", score.normalized(), 0.0, 1.0)
    model, oracle = (value / score.random if score.random else math.nan for value in (score.model, score.oracle))
    return Score(f"{score.title} / random", score.better, model, 1.0, oracle)


def measurable(evaluation: Evaluation) -> list[str]:
    """Return the names of all metrics of an evaluation: "recall@1 to 100", "map_at_r", ..."""
    curves = [f"{name}@1 to {len(curve.model)}" for name, curve in evaluation.curves.items() if curve.model]
    names = [*curves, *evaluation.scores, "spearman"]
    return names if measured(evaluation, "spearman") else names[:-1]


def split_form(metric: str) -> str:
    """Return the name of a metric without its form.

    Raises:
        InputError: there is no such form.
    """
    base, slash, form = metric.partition("/")
    if slash and form not in FORMS:
        forms = " or ".join([base, *(f"{base}/{each}" for each in FORMS)])
        raise InputError(metric, f"unknown form /{form}", f"must be {forms}")
    return base


def usual(evaluation: Evaluation) -> list[str]:
    """Return the metrics that papers report, if they were measured."""
    return [name for name in KINDS[evaluation.kind].usual(evaluation) if measured(evaluation, name) is not None]


#: "graded": retrieval by label distance; "classes": retrieval by class; "captions": written captions; "pairs": judged
#: distances of pairs; "triplets": judgments of which of two items is nearer; "rankings": judged lists of queries.
KindName: TypeAlias = Literal["graded", "classes", "captions", "pairs", "triplets", "rankings"]


class ResultKind:
    """The common properties of all results of one kind. This base class is for graded labels.

    Attributes:
        headline: the main metric. "{k}" is the K of mean label distance that is shown first.
        plotted: the form of the main metric in a plot of several runs.
        baselines: the names of the references with the lowest and the highest score.
        best: the name of the second reference in the main sentence of a report.
        ranked: whether a gallery is ranked by label distance.
        unit: the meaning of a label distance. If it is empty, the labels define it.
        size: a text with the sizes of what was evaluated.
        nearest: a text for the items that a perfect ranking retrieves.
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
        """Return the metrics that papers report."""
        return [evaluation.headline, f"{evaluation.headline}/random", f"ndcg@{evaluation.k}", "spearman"]

    def text(self, evaluation: Evaluation, value: float) -> str:
        """Format a value of the main metric for the main sentence of a report."""
        return evaluation.text(evaluation.headline, value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        """Return the main sentence of a report, without the baselines."""
        measure, model, one = evaluation.measure, self.text(evaluation, score.model), evaluation.k == 1
        start = "The nearest item" if one else f"The {evaluation.k} nearest items"
        if measure.is_plain:
            return f"{start} {'is' if one else 'are'} at a mean label distance of {model}"
        return f"{start} {'differs' if one else 'differ'} by {model}{f' in {measure.name}' if measure.name else ''}"

    def unit_of_numbers(self, unit: str, measure: Measure) -> str:
        """Describe the number under a retrieved item, given unit and measure of the labels.

        Return "" if there is no number.
        """
        return unit_of_distances(unit, measure)

    def item(self, distance: float, measure: Measure) -> tuple[str, bool | None]:
        """Return the text under an item at this label distance from the query, and whether the item is right."""
        return measure.text(distance), None

    def quality(self, distances: Sequence[float], measure: Measure) -> str:
        """Describe the quality of the first items of a ranking, by their label distances."""
        finite = [distance for distance in distances if math.isfinite(distance)]
        return f"mean label distance {measure.text(fmean(finite) if finite else math.nan)}"

    def details(self, evaluation: Evaluation, distances: Sequence[float], values: Sequence[float]) -> str:  # noqa: ARG002
        """Describe the quality of the ranking of a query.

        `values` are its main metric, of the model, of a random ranking and of the oracle.
        """
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


class _Judgments(ResultKind):
    plotted = ""
    ranked = False

    def usual(self, evaluation: Evaluation) -> list[str]:
        return [*evaluation.scores]


class _Pairs(_Judgments):
    headline = "judged_spearman"
    baselines = ("random", "judges")
    best = "what the judges allow"
    size = "{queries:,} judged pairs"

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        value = self.text(evaluation, score.model)
        return f"Embedding distances and judged distances have a rank correlation of {value}"


class _Triplets(_Judgments):
    headline = "triplet_accuracy"
    baselines = ("random", "judge")
    best = "one judge beside the others"
    size = "{queries:,} triplets"

    def text(self, evaluation: Evaluation, value: float) -> str:  # noqa: ARG002
        return percent(value)

    def finding(self, evaluation: Evaluation, score: Score) -> str:
        return f"The answer is that of most judges for {self.text(evaluation, score.model)} of the triplets"


class _Rankings(_Judgments):
    headline = "judged_ndcg"
    size = "{queries:,} queries, {gallery:,} judged items"

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
    """Return the kind of a ranking by these labels."""
    return KINDS["classes" if labels.kind == "classes" else "graded"]


def unit_of_distances(unit: str, measure: Measure) -> str:
    """Describe the label distances to a query as a measure prints them.

    `unit` is the meaning of a label distance of 1.
    """
    if measure.is_plain:
        return f"the label distance to the query ({unit})"
    quantity = f" in {measure.name}" if measure.name else ""
    if measure.kind == "ratio":
        return f"the factor between the item and the query{quantity} (of several items: the geometric mean)"
    return f"the difference between the item and the query{quantity}"


#: Largest file in bytes; a query has about 20.
_LIMIT = 1 << 28


@dataclass(frozen=True, eq=False)
class QueryValues:
    """The main metric of each query.

    Attributes:
        metric: the name of the metric: "label_distance@10", "recall@1" or "cider_d".
        queries: a hash of the names of the queries, in order. If two hashes are equal, the queries are the same.
        values: `[Q]`, float64.
        items: the items of each query `[Q, m]`. Queries that share an item are not independent. None if all are
            independent.
    """

    metric: str
    queries: str
    values: Tensor
    items: Tensor | None = None

    @classmethod
    def of(cls, metric: str, names: Sequence[str], values: Tensor, items: Tensor | None = None) -> QueryValues:
        """Make the values of queries with these names, both in order."""
        digest = hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
        return cls(metric, digest, values.detach().double().cpu(), items)

    def save(self, path: Path) -> None:
        """Write the file.

        Raises:
            InputError: it cannot be written.
        """
        content = {"metric": self.metric, "queries": self.queries, "values": self.values.tolist()}
        write_json(path, content if self.items is None else {**content, "items": self.items.tolist()})

    @classmethod
    def read(cls, path: Path) -> QueryValues | None:
        """Read a file that `save` wrote. Return None if there is no file.

        Return None also for a file of version 0.1 for classes, which has no items.

        Raises:
            InputError: it is damaged.
        """
        found = read_record(path, _Content, hint="evaluate the run again", limit=_LIMIT)
        if found is None or (found.metric == KINDS["classes"].headline and found.items is None):
            return None
        items = None
        if found.items is not None:
            if len(found.items) != len(found.values) or len(set(map(len, found.items))) > 1:
                raise InputError(str(path), "damaged (its items do not fit its values)", hint="evaluate the run again")
            items = torch.tensor(found.items, dtype=torch.int64)
        return cls(found.metric, found.queries, torch.tensor(found.values, dtype=torch.float64), items)


class _Content(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(strict=True, extra="forbid")

    metric: str
    queries: str
    values: list[float]
    items: list[list[int]] | None = None
