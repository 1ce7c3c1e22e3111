"""The result of an evaluation as a table of strings and as a sentence, for the page and the command line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from contml._support.text import MISSING, percent, score_text
from contml.contracts import Measure
from contml.evaluation.results import Evaluation, Score, measured

#: Curves that the result table leaves to the table of further metrics.
_FURTHER = ("recall_area", "knn_error")


def summary(evaluation: Evaluation) -> list[list[str]]:
    """The header and the rows of the result table, as strings.

    One row per metric and K of 1, 5, 10, 20, 50, 100 (Recall: the K of the data set; BLEU: 1 to 4) that its curve
    reaches. `normalized` is 0 % for a random ranking and 100 % for the oracle; for captions, 0 % for a caption of
    another image and 100 % for a person's. Metrics without a K follow; the last row is the Spearman correlation.
    """
    captions = is_of_captions(evaluation)
    baselines = ["random caption", "person"] if captions else ["random", "oracle"]
    rows = [["metric", "K", "model", *baselines, "normalized"]]
    rows += _curve_rows(evaluation, [name for name in evaluation.curves if name not in _FURTHER])
    for name, score in evaluation.scores.items():
        title = evaluation.titled(name, score.title)
        rows.append([title, MISSING, *_cells(evaluation, name, score), percent(score.normalized())])
    if not captions:
        # A random embedding has correlation 0, the label distance itself 1: the correlation is normalized already.
        spearman = evaluation.spearman
        rows.append(
            ["Spearman, embedding and label distance", MISSING, score_text(spearman), "0", "1", percent(spearman)]
        )
    return rows


def further(evaluation: Evaluation) -> list[list[str]]:
    """The rows of the metrics that `summary` omits: recall area and the error of regression."""
    return _curve_rows(evaluation, [name for name in evaluation.curves if name in _FURTHER])


def _curve_rows(evaluation: Evaluation, names: list[str]) -> list[list[str]]:
    rows = []
    for name, curve in evaluation.curves.items():
        for k in evaluation.shown_k(name) if name in names else ():
            metric, score = f"{name}@{k}", curve.at(k)
            cells = _cells(evaluation, metric, score)
            rows.append([evaluation.titled(metric, curve.title), str(k), *cells, percent(score.normalized())])
    return rows


def sentence(evaluation: Evaluation) -> str:
    """The result in one sentence: the main metric, compared with a random ranking and the oracle."""
    score = measured(evaluation, evaluation.headline)
    if score is None:
        return f"The Spearman correlation of embedding and label distance is {score_text(evaluation.spearman)}."
    title, normalized = score.title[0].upper() + score.title[1:], score.normalized()
    values = (score.model, score.random, score.oracle)
    model, random, oracle = (evaluation.text(evaluation.headline, value) for value in values)
    if is_of_captions(evaluation):
        return f"{title} is {model}; a caption of another image: {random}, a person's caption: {oracle}."
    if score.better == "higher" or not math.isfinite(normalized) or score.random <= 0:
        return f"{title} is {model}; random ranking: {random}, oracle: {oracle}."
    start = f"{title} is {score.model / score.random:.2f} times that of a random ranking"
    if normalized < 0:
        return f"{start}: worse than random."
    return f"{start}; normalized score {percent(normalized)} (0 %: random ranking, 100 %: oracle)."


def headline_words(evaluation: Evaluation, mean: float | None = None) -> str:
    """The main metric in a sentence: "The 10 nearest items differ by 4.10 km; random: 33.6 km; best possible: 1.20 km".

    `mean` is said in place of the metric of this evaluation, such as the mean over seeds.
    """
    score, measure = measured(evaluation, evaluation.headline), evaluation.measure
    if score is not None and mean is not None:
        score = replace(score, model=mean)
    if score is None or is_of_captions(evaluation):
        return sentence(evaluation)
    if "recall" in evaluation.curves:
        model, random, oracle = (percent(value) for value in (score.model, score.random, score.oracle))
        start = f"The nearest item is of the query's class for {model} of the queries"
    else:
        k = int(evaluation.headline.partition("@")[2])
        model, random, oracle = (measure.text(value) for value in (score.model, score.random, score.oracle))
        start = f"The {'nearest item' if k == 1 else f'{k} nearest items'} "
        if measure.is_plain:
            start += f"{'is' if k == 1 else 'are'} at a mean label distance of {model}"
        else:
            start += f"{'differs' if k == 1 else 'differ'} by {model}{f' in {measure.name}' if measure.name else ''}"
    return f"{start}; random: {random}; best possible: {oracle}."


def shortened(table: list[list[str]], main_k: str) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of `summary`, without its header, at K = 1, 10, 100 and the main K, or without a K; and the others."""
    main_ks = ("1", "10", "100", main_k, MISSING)
    return [row for row in table if row[1] in main_ks], [row for row in table if row[1] not in main_ks]


def unit_words(evaluation: Evaluation) -> str:
    """What a label distance is, in words."""
    return "0 within a class, 1 between classes" if "recall" in evaluation.curves else evaluation.unit


def unit_of_distances(unit: str, measure: Measure) -> str:
    """What label distances to a query are, as a measure prints them; `unit`: what a label distance of 1 is."""
    if measure.is_plain:
        return f"the label distance to the query ({unit})"
    quantity = f" in {measure.name}" if measure.name else ""
    if measure.kind == "ratio":
        return f"the factor between the item and the query{quantity} (of several items: the geometric mean)"
    mean = " (of several items: the root mean square)" if measure.kind == "root" else ""
    return f"the difference between the item and the query{quantity}{mean}"


def value_text(value: Any) -> str:
    """The value of an option, as a table shows it; a dash where there is none."""
    if isinstance(value, float):
        return f"{value:g}"
    text = MISSING if value is None else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def is_of_captions(evaluation: Evaluation) -> bool:
    """Whether captions were evaluated, and not a retrieval."""
    return evaluation.headline == "cider_d"


def _cells(evaluation: Evaluation, metric: str, score: Score) -> list[str]:
    """The metric of the model, a random ranking and the oracle, as cells of a table."""
    return [evaluation.text(metric, value, unit=False) for value in (score.model, score.random, score.oracle)]
