"""The result of an evaluation as a table of strings and as a sentence, for the page and the command line."""

from __future__ import annotations

import json
import math
from typing import Any

from contml._support.text import MISSING, number, percent
from contml.evaluation.results import Curve, Evaluation

#: The K that tables print, as far as a curve reaches.
TABLE_K = (1, 5, 10, 20, 50, 100)


def summary(evaluation: Evaluation) -> list[list[str]]:
    """The header and the rows of the result table, as strings.

    One row per metric and K of 1, 5, 10, 20, 50, 100 (Recall: the K of the data set) that its curve reaches.
    `normalized` is 0 % for a random ranking and 100 % for the oracle. Metrics without a K follow; the last row is the
    Spearman correlation.
    """
    rows = [["metric", "K", "model", "random", "oracle", "normalized"]]
    for name, curve in evaluation.curves.items():
        for k in evaluation.recall_at if name == "recall" else TABLE_K:
            if k <= len(curve.model):
                rows.append([curve.title, str(k), *_numbers(curve, k), percent(curve.at(k).normalized())])
    for score in evaluation.scores.values():
        values = [number(value) for value in (score.model, score.random, score.oracle)]
        rows.append([score.title, MISSING, *values, percent(score.normalized())])
    # A random embedding has correlation 0 and the label distance itself 1, so the correlation is already normalized.
    spearman = evaluation.spearman
    rows.append(["Spearman, embedding and label distance", MISSING, number(spearman), "0", "1", percent(spearman)])
    return rows


def sentence(evaluation: Evaluation) -> str:
    """The result in one sentence: label distance@10 or Recall@1, compared with a random ranking and the oracle."""
    name, k = evaluation.headline
    curve = evaluation.curves.get(name)
    if curve is None or not curve.model:
        return f"The Spearman correlation of embedding and label distance is {number(evaluation.spearman)}."
    title = "Recall" if name == "recall" else "Mean label distance"
    normalized, random = curve.at(k).normalized(), curve.random[k - 1]
    if name == "recall" or not math.isfinite(normalized) or random <= 0:
        model, chance, oracle = _numbers(curve, k)
        return f"{title}@{k} is {model}; random ranking: {chance}, oracle: {oracle}."
    start = f"{title}@{k} is {curve.model[k - 1] / random:.2f} times that of a random ranking"
    if normalized < 0:
        return f"{start}: worse than random."
    return f"{start}; normalized score {percent(normalized)} (0 %: random ranking, 100 %: oracle)."


def unit_words(evaluation: Evaluation) -> str:
    """What a label distance is, in words."""
    return "0 within a class, 1 between classes" if "recall" in evaluation.curves else evaluation.unit


def value_text(value: Any) -> str:
    """The value of an option, as a table shows it; a dash where there is none."""
    if isinstance(value, float):
        return f"{value:g}"
    text = MISSING if value is None else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def _numbers(curve: Curve, k: int) -> list[str]:
    """The metric at K = k of the model, a random ranking and the oracle."""
    return [number(values[k - 1]) for values in (curve.model, curve.random, curve.oracle)]
