"""A metric of an evaluation by its name: "recall@1", "map_at_r", "label_distance@10/random"."""

from __future__ import annotations

import math

from contml._support.errors import InputError
from contml.evaluation.result import Evaluation, Score

#: What may follow a name: its share of a random ranking's, or how far it is on the way from random to the oracle.
FORMS = ("random", "way")


def measured(evaluation: Evaluation, metric: str) -> Score | None:
    """The metric of the model, of a random ranking and of the oracle; None where it was not measured."""
    base, _, form = metric.partition("/")
    name, _, k = base.partition("@")
    score = evaluation.scores.get(base)
    if base == "spearman":
        score = Score("Spearman", "higher", evaluation.spearman, 0.0, 1.0)
    elif name in evaluation.curves and k.isdecimal() and 1 <= int(k) <= len(evaluation.curves[name].model):
        curve, at = evaluation.curves[name], int(k) - 1
        score = Score(f"{curve.title}@{int(k)}", curve.better, curve.model[at], curve.random[at], curve.oracle[at])
    if score is None or not form:
        return score
    if form == "way":
        return Score(f"{score.title}, way to oracle", "higher", score.fraction(), 0.0, 1.0)
    model, oracle = (value / score.random if score.random else math.nan for value in (score.model, score.oracle))
    return Score(f"{score.title} / random", score.better, model, 1.0, oracle)


def measurable(evaluation: Evaluation) -> list[str]:
    """The names of its metrics: "recall@1 to 100", "map_at_r", ...; they can all be asked for."""
    curves = [f"{name}@1 to {len(curve.model)}" for name, curve in evaluation.curves.items() if curve.model]
    return [*curves, *evaluation.scores, "spearman"]


def split_form(metric: str) -> str:
    """The name of a metric without its form.

    Raises:
        InputError: there is no such form.
    """
    base, slash, form = metric.partition("/")
    if slash and form not in FORMS:
        raise InputError(f"'{metric}' ends in '/{form}'; write {' or '.join([base, *(f'{base}/{f}' for f in FORMS)])}")
    return base


def usual(evaluation: Evaluation) -> list[str]:
    """The metrics that papers report: Recall at four K and all without a K for classes, else label distance, nDCG."""
    if "recall" in evaluation.curves:
        names = [*(f"recall@{k}" for k in evaluation.recall_at[:4]), *evaluation.scores]
    else:
        k = evaluation.headline[1]
        names = [f"label_distance@{k}", f"label_distance@{k}/random", f"ndcg@{k}", *evaluation.scores, "spearman"]
    return [name for name in names if measured(evaluation, name) is not None]


def headline(evaluation: Evaluation) -> str:
    """The metric that stands for all others, as a plot has it."""
    name, k = evaluation.headline
    return f"{name}@{k}" if name == "recall" else f"{name}@{k}/random"
