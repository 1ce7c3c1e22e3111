"""The content of a run's `evaluation.json`: the evaluation, its split and weights, how these were chosen, and notes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from contml._support.files import read_bytes, unreadable
from contml._support.text import MISSING, percent, score_text
from contml.contracts import PLAIN
from contml.data.split import SPLIT_TITLES
from contml.evaluation.metrics import METRICS, METRICS_AT_K, title_of
from contml.evaluation.results import KINDS, Evaluation, Score, measured

#: Largest evaluation.json in bytes.
_LIMIT = 1 << 24
#: Why weights are untrained although training had steps.
NO_GRADIENT = "no step changed the network: its gradient or its learning rate was always 0"


@dataclass(frozen=True)
class FeatureComparison:
    """A comparison on the validation split: the untrained features of a pretrained backbone, and the model with a head.

    Attributes:
        value: the metric of the features, without a head.
        head: the best metric of the model with its head.
        epoch: the epoch in which the model had this best metric.
        chosen: whether the features are better, and replace the model.
    """

    value: float
    head: float
    epoch: int
    chosen: bool

    def sentence(self, evaluation: Evaluation, name: str) -> str:
        """Return a sentence: which of the two is the model, and the values of the metric `name` for both."""
        metric, value, head = title_of(name), evaluation.text(name, self.value), evaluation.text(name, self.head)
        if self.chosen:
            other = f"with the best head, of epoch {self.epoch}, it is {head}"
            return f"the untrained features are the model: their {metric} on the validation split is {value}; {other}"
        other = f"of the untrained features it is {value}"
        start = "the head as it began is better" if self.epoch == 0 else "better"
        return f"{start} than the untrained features: {metric} on the validation split is {head}; {other}"


@dataclass(frozen=True)
class Selection:
    """How the validation split chose the best weights of a run, beside the last weights.

    Attributes:
        metric: the name of the metric that chose: "label_distance@10" or "recall@1".
        queries: number of queries of the validation split.
        best: the metric of the best weights.
        last: the metric of the last weights.
        difference: best minus last.
        interval: half the width of the 95 % interval of the difference (`paired_interval`). It is None if the best
            weights are the last ones, or there is only one query or group.
        features: the untrained features beside the model. It is None if they were not evaluated.
    """

    metric: str
    queries: int
    best: float
    last: float
    difference: float
    interval: float | None
    features: FeatureComparison | None = None

    @property
    def without_head(self) -> bool:
        """True if the untrained features are the best weights."""
        return self.features is not None and self.features.chosen


@dataclass(frozen=True)
class Evaluated:
    """The evaluation of a run, and what was evaluated, as `evaluation.json` holds it.

    Attributes:
        evaluation: the metrics.
        split: the split of the metrics, "test" or "val".
        checkpoint: which weights, "best" (on the validation split) or "last".
        epoch: number of epochs that trained these weights. It is fractional for weights that were saved within an
            epoch.
        epochs: number of epochs of the whole training, fewer than planned if it stopped early.
        selection: how the best weights were chosen. It is None if no validation split chose.
        changes: the changes of the data since the run began, which the user accepted. It is empty if there are none.
        trained: whether a step of the training changed the network.
        identity: the identity of the model that was evaluated (`contml.models.identity`).
        by: what ranked the gallery: the distance of embeddings, or of label vectors (`contml.evaluation.posterior`).
    """

    evaluation: Evaluation
    split: Literal["test", "val"]
    checkpoint: Literal["best", "last"]
    epoch: float
    epochs: int
    selection: Selection | None = None
    changes: list[str] = field(default_factory=list)
    trained: bool = True
    identity: str = ""
    by: Literal["embedding", "labels"] = "embedding"

    @property
    def chosen_on_split(self) -> bool:
        """True if the weights were chosen on the split of the metrics, which makes the result optimistic."""
        return self.split == "val" and self.checkpoint == "best"

    @property
    def split_words(self) -> str:
        """The split as text: "test split", "test split of changed data"."""
        return f"{SPLIT_TITLES[self.split]} split{' of changed data' if self.changes else ''}"

    @property
    def description(self) -> str:
        """Split and weights as text: "test split, best weights (epoch 9 of 12, chosen on validation)"."""
        split, best, epoch = self.split_words, self.checkpoint == "best", epoch_text([self.epoch])
        split += ", through labels" if self.by == "labels" else ""
        if self.split == "val":
            split += f" (no test split was evaluated{'; the weights were chosen on it' if best else ''})"
        suffix = ", untrained" if self.untrained else ""
        if not best:
            return f"{split}, last weights (epoch {epoch}{suffix})"
        suffix += ", chosen on validation" if self.split == "test" else ""
        return f"{split}, best weights (epoch {epoch} of {self.epochs}{suffix})"

    @property
    def untrained(self) -> str:
        """A sentence if the weights are the initial ones, with the reason. Otherwise it is empty."""
        if not is_untrained(self.epoch, self.trained):
            return ""
        if self.without_head:
            return f"untrained: {self.comparison}"
        if not self.epochs:
            reason = "no epoch was trained"
        elif not self.trained:
            reason = NO_GRADIENT
        else:
            epochs = f"{self.epochs} epoch{'s' if self.epochs > 1 else ''}"
            reason = f"{epochs} of training did not improve the result on the validation split"
        return f"untrained: these are the initial weights; {reason}"

    @property
    def comparison(self) -> str:
        """A sentence that compares the untrained features with the model. It is empty if they were not evaluated."""
        if self.selection is None or self.selection.features is None or self.checkpoint != "best":
            return ""
        return self.selection.features.sentence(self.evaluation, self.selection.metric)

    @property
    def without_head(self) -> bool:
        """True if the untrained features are the model."""
        return self.checkpoint == "best" and self.selection is not None and self.selection.without_head

    @property
    def notes(self) -> list[str]:
        """Sentences on what limits the result: untrained weights, too few validation queries, or a metric in doubt."""
        notes = [note for note in (self.untrained, self.doubt, *self.evaluation.notes) if note]
        if math.isnan(self.evaluation.main.model):
            notes.append(f"{title_of(self.evaluation.headline)} is not a number: it is defined for no query")
        if self.evaluation.queries == 1:
            notes.append("the result is that of a single query")
        return [*notes, *([self.by_chance] if self.by_chance else [])]

    @property
    def by_chance(self) -> str:
        """A sentence if a random ranking may have the same result. Otherwise it is empty."""
        evaluation, score = self.evaluation, self.evaluation.main
        margin = evaluation.random_margin
        if margin is None or not KINDS[evaluation.kind].ranked:
            return ""
        if math.isnan(margin) and evaluation.queries > 1:
            return "not known whether a random ranking has the same result: all queries are of one group or class"
        if not abs(score.model - score.random) <= margin:
            return ""
        measure = evaluation.measure_of(evaluation.headline) or PLAIN
        difference = measure.difference(score.model, score.random, margin)
        return f"not distinguishable from a random ranking: {score.title} differs by {difference}"

    @property
    def doubt(self) -> str:
        """A sentence if the validation split is too small to choose the best weights. Otherwise it is empty."""
        selection = self.selection
        if selection is None or self.checkpoint != "best" or self.epoch == self.epochs or not self.trained:
            return ""
        if selection.interval is not None and abs(selection.difference) > selection.interval:
            return ""
        queries = f"{selection.queries:,} {'query' if selection.queries == 1 else 'queries'}"
        epochs = f"epoch {epoch_text([self.epoch])} from epoch {self.epochs}"
        message = f"the validation split of {queries} is too small to distinguish {epochs}"
        if selection.interval is None:
            return message
        measure = self.evaluation.measure_of(selection.metric) or PLAIN
        difference = measure.difference(selection.best, selection.last, selection.interval)
        return f"{message}: {title_of(selection.metric)} differs by {difference}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the evaluation, split, checkpoint, epochs, selection, and the notes."""
        values = {**asdict(self), "notes": self.notes}
        del values["evaluation"]
        if self.selection is None:
            del values["selection"]
        return {**values, **self.evaluation.to_dict()}

    @classmethod
    def read(cls, path: Path) -> Evaluated:
        """Read a file that holds the values of `to_dict` as JSON.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: it is damaged.
        """
        try:
            return cls.from_dict(json.loads(read_bytes(path, _LIMIT)))
        except (ValueError, RecursionError) as error:
            raise unreadable(path, error, "evaluate the run again") from None

    @classmethod
    def from_dict(cls, values: Any) -> Evaluated:
        """Make an evaluation from the values of `to_dict`.

        Raises:
            ValueError: a value is missing, of another type, or of an unknown metric.
        """
        if not isinstance(values, dict):
            raise ValueError("not an object")
        own = {name: values[name] for name in _FIELDS if name in values}
        rest = {name: value for name, value in values.items() if name not in {*_FIELDS, "notes"}}  # notes follow
        if isinstance(curves := rest.get("curves"), dict):  # other metrics are of another version
            rest["curves"] = {name: curve for name, curve in curves.items() if name in METRICS_AT_K}
        rest |= {name: math.nan for name in ("spearman", "random_margin") if rest.get(name, 0) is None}
        evaluated = _EVALUATED.validate_json(json.dumps({**own, "evaluation": rest}), strict=True)
        evaluation, selection = evaluated.evaluation, evaluated.selection
        names = {*evaluation.curves, *([selection.metric.partition("@")[0]] if selection else [])} - METRICS.keys()
        scores = METRICS.keys() | evaluation.intervals.keys()  # metrics of one's own have an interval
        if not (names <= METRICS_AT_K.keys() and evaluation.scores.keys() <= scores):
            raise ValueError("an unknown metric")
        if any(len({len(c.model), len(c.random), len(c.oracle)}) > 1 for c in evaluation.curves.values()):
            raise ValueError("curves of different lengths")
        if measured(evaluation, evaluation.headline) is None or min(evaluation.recall_at, default=1) < 1:
            raise ValueError("no main metric, or a K below 1")
        if not (0 <= evaluated.epoch < math.inf and evaluated.epochs >= 0):
            raise ValueError("an epoch below 0")
        return evaluated


_EVALUATED = TypeAdapter(Evaluated)
_FIELDS = {field.name for field in fields(Evaluated)} - {"evaluation"}


def is_untrained(epoch: float, trained: bool) -> bool:
    """Return True if weights are the initial ones: of epoch 0, or of a training that never changed the network."""
    return epoch == 0 or not trained


def epoch_text(epochs: Sequence[float], untrained: int = 0) -> str:
    """Format the epochs of some weights: "9", "0, untrained", "0 to 9, 1 untrained".

    Args:
        epochs: the epoch of each of the weights.
        untrained: the number of weights that are untrained.
    """
    low, high = (f"{epoch:.0f}" if epoch == int(epoch) else f"{epoch:.3g}" for epoch in (min(epochs), max(epochs)))
    text = low if low == high else f"{low} to {high}"
    return f"{text}, {f'{untrained} ' if len(epochs) > 1 else ''}untrained" if untrained else text


def summary(evaluation: Evaluation) -> list[list[str]]:
    """Return the header and the rows of the result table, as strings.

    A metric has one row per K of 1, 5, 10, 20, 50, 100 that its curve reaches. Recall has the K of the data set, BLEU
    has 1 to 4. `normalized` is 0 % for a random ranking and 100 % for the oracle. For captions it is 0 % for a caption
    of another image and 100 % for a person's caption. Metrics without a K follow. The last row is the Spearman
    correlation.
    """
    kind = KINDS[evaluation.kind]
    rows = [["metric", "K", "model", *kind.baselines, "normalized"]]
    for name, curve in evaluation.curves.items():
        for k in evaluation.shown_k(name):
            metric, score = f"{name}@{k}", curve.at(k)
            cells = _cells(evaluation, metric, score)
            rows.append([evaluation.titled(metric, curve.title), str(k), *cells, percent(score.normalized())])
    for name, score in evaluation.scores.items():
        title = evaluation.titled(name, score.title)
        model, *others = _cells(evaluation, name, score)
        half = evaluation.intervals.get(name, math.nan) if kind.ranked else math.nan
        model += "" if math.isnan(half) else f" ± {score_text(half)}"
        rows.append([title, MISSING, model, *others, percent(score.normalized())])
    if kind.ranked:
        # A random embedding has correlation 0, the label distance itself 1: the correlation is normalized already.
        title, value = "Spearman, embedding and label distance", evaluation.spearman
        rows.append([title, MISSING, score_text(value), "0", "1", percent(value)])
    return rows


def sentence(evaluation: Evaluation) -> str:
    """Return the result in one sentence: the main metric, compared with a random ranking and the oracle."""
    score = evaluation.main
    title, normalized = score.title[0].upper() + score.title[1:], score.normalized()
    if score.better == "higher" or not math.isfinite(normalized) or score.random <= 0:
        kind, half = KINDS[evaluation.kind], evaluation.intervals.get(evaluation.headline, math.nan)
        model = evaluation.text(evaluation.headline, score.model)
        model += "" if math.isnan(half) else f" ± {score_text(half)}"
        baselines = _baselines(score, kind.baselines, lambda value: evaluation.text(evaluation.headline, value))
        return f"{title} is {model}{baselines}."
    # The ratio is of label distances; in their unit, as they are printed, it is another one.
    scale = ", in logarithms," if evaluation.measure.kind == "ratio" else ""
    start = f"{title}{scale} is {score.model / score.random:.2f} times the value of a random ranking"
    if normalized < 0:
        return f"{start}: worse than random."
    return f"{start}; normalized score {percent(normalized)} (0 %: random ranking, 100 %: oracle)."


def headline_words(evaluation: Evaluation) -> str:
    """Return the main metric as a sentence.

    Example: "The 10 nearest items differ by 4 km; random: 33.6 km; best possible: 1.2 km".
    """
    score, kind = evaluation.main, KINDS[evaluation.kind]
    baselines = _baselines(score, (kind.baselines[0], kind.best), lambda value: kind.text(evaluation, value))
    return f"{kind.finding(evaluation, score)}{baselines}."


def _baselines(score: Score, names: tuple[str, str], text: Callable[[float], str]) -> str:
    """Format the scores that a model is compared with. A score that is not known is left out."""
    values = zip(names, (score.random, score.oracle), strict=True)
    return "".join(f"; {name}: {text(value)}" for name, value in values if not math.isnan(value))


def shortened(table: list[list[str]], main_k: str) -> tuple[list[list[str]], list[list[str]]]:
    """Divide the rows of `summary`, without its header, into main rows and other rows.

    The main rows are at K = 1, 10, 100 and the main K, or have no K.
    """
    main_ks = ("1", "10", "100", main_k, MISSING)
    return [row for row in table if row[1] in main_ks], [row for row in table if row[1] not in main_ks]


def unit_words(evaluation: Evaluation) -> str:
    """Return the meaning of a label distance of 1 as text."""
    return KINDS[evaluation.kind].unit or evaluation.unit


def scope(evaluation: Evaluation) -> str:
    """Return the sizes of what was evaluated, and the meaning of a label distance."""
    size = KINDS[evaluation.kind].size.format(queries=evaluation.queries, gallery=evaluation.gallery)
    unit = unit_words(evaluation)
    return f"{size}{f'; label distance: {unit}' if unit else ''}"


def value_text(value: Any) -> str:
    """Format the value of an option for a table. An option without a value is a dash."""
    if isinstance(value, float):
        return f"{value:g}"
    text = MISSING if value is None else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def _cells(evaluation: Evaluation, metric: str, score: Score) -> list[str]:
    """Format a metric of the model, of a random ranking and of the oracle as cells of a table."""
    return [evaluation.text(metric, value, unit=False) for value in (score.model, score.random, score.oracle)]
