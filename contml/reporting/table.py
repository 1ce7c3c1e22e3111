"""An evaluation in words and as a table of strings: numbers for the page and the command line."""

from __future__ import annotations

import math

from contml._support.text import MISSING, number, percent
from contml.evaluation.results import Curve, Evaluation

#: The K that tables print, as far as a curve reaches.
TABLE_K = (1, 5, 10, 20, 50, 100)


def summary(evaluation: Evaluation) -> list[list[str]]:
    """The header and the rows of the result table, as strings.

    One row for each metric and each K of 1, 5, 10, 20, 50, 100 (Recall: those that the data ask for) that its curve
    reaches; `normalized` is the normalized score: 0 % for random, 100 % for the oracle. Metrics without a K follow, the
    last row is the Spearman correlation.
    """
    rows = [["metric", "K", "model", "random", "oracle", "normalized"]]
    for name, curve in evaluation.curves.items():
        for k in evaluation.recall_at if name == "recall" else TABLE_K:
            if k <= len(curve.model):
                values = [number(line[k - 1]) for line in (curve.model, curve.random, curve.oracle)]
                rows.append([curve.title, str(k), *values, percent(curve.at(k).normalized())])
    for score in evaluation.scores.values():
        values = [number(value) for value in (score.model, score.random, score.oracle)]
        rows.append([score.title, MISSING, *values, percent(score.normalized())])
    # A random embedding has correlation 0, the label distance itself 1: the normalized score is the metric itself.
    spearman = evaluation.spearman
    rows.append(["Spearman, embedding and label distance", MISSING, number(spearman), "0", "1", percent(spearman)])
    return rows


def sentence(evaluation: Evaluation) -> str:
    """The result in one sentence: label distance@10, or Recall@1, beside a random ranking and the oracle."""
    name, k = evaluation.headline
    curve = evaluation.curves.get(name)
    if curve is None or not curve.model:
        return f"The Spearman correlation of embedding and label distance is {number(evaluation.spearman)}."
    if name == "recall":
        return f"Recall@{k} is {_beside(curve, k)}."
    return f"Mean label distance@{k} is {_beside_random(curve, k)}."


def unit_words(evaluation: Evaluation) -> str:
    """What a label distance is, in words."""
    return "0 within a class, 1 between classes" if "recall" in evaluation.curves else evaluation.unit


def _beside_random(curve: Curve, k: int) -> str:
    model, random, normalized = curve.model[k - 1], curve.random[k - 1], curve.at(k).normalized()
    if not (math.isfinite(normalized) and random > 0):
        return _beside(curve, k)
    ratio = f"{model / random:.2f} of a random ranking's"
    if normalized < 0:
        return f"{ratio}: worse than random"
    return f"{ratio}, normalized score {percent(normalized)} (0 % random, 100 % the oracle)"


def _beside(curve: Curve, k: int) -> str:
    model, random, oracle = (number(line[k - 1]) for line in (curve.model, curve.random, curve.oracle))
    return f"{model}; a random ranking's is {random}, the oracle's {oracle}"
