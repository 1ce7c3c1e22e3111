"""The result of an evaluation as a table of strings and as a sentence, for the page and the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from contml._support.text import MISSING, percent, score_text
from contml.evaluation.kinds import KINDS
from contml.evaluation.metrics import METRICS_AT_K
from contml.evaluation.results import Evaluation, Score


def summary(evaluation: Evaluation) -> list[list[str]]:
    """The header and the rows of the result table, as strings.

    One row per metric and K of 1, 5, 10, 20, 50, 100 (Recall: the K of the data set; BLEU: 1 to 4) that its curve
    reaches. `normalized` is 0 % for a random ranking and 100 % for the oracle; for captions, 0 % for a caption of
    another image and 100 % for a person's. Metrics without a K follow; the last row is the Spearman correlation.
    """
    kind = KINDS[evaluation.kind]
    rows = [["metric", "K", "model", *kind.baselines, "normalized"], *_curve_rows(evaluation, folded=False)]
    for name, score in evaluation.scores.items():
        title = evaluation.titled(name, score.title)
        rows.append([title, MISSING, *_cells(evaluation, name, score), percent(score.normalized())])
    if kind.ranked:
        # A random embedding has correlation 0, the label distance itself 1: the correlation is normalized already.
        spearman = evaluation.spearman
        rows.append(
            ["Spearman, embedding and label distance", MISSING, score_text(spearman), "0", "1", percent(spearman)]
        )
    return rows


def further(evaluation: Evaluation) -> list[list[str]]:
    """The rows of the metrics that `summary` omits: recall area and the error of regression."""
    return _curve_rows(evaluation, folded=True)


def _curve_rows(evaluation: Evaluation, *, folded: bool) -> list[list[str]]:
    rows = []
    for name, curve in evaluation.curves.items():
        for k in evaluation.shown_k(name) if METRICS_AT_K[name].folded == folded else ():
            metric, score = f"{name}@{k}", curve.at(k)
            cells = _cells(evaluation, metric, score)
            rows.append([evaluation.titled(metric, curve.title), str(k), *cells, percent(score.normalized())])
    return rows


def sentence(evaluation: Evaluation) -> str:
    """The result in one sentence: the main metric, compared with a random ranking and the oracle."""
    score = evaluation.main
    title, normalized = score.title[0].upper() + score.title[1:], score.normalized()
    if score.better == "higher" or not math.isfinite(normalized) or score.random <= 0:
        kind, half = KINDS[evaluation.kind], evaluation.intervals.get(evaluation.headline, math.nan)
        model = evaluation.text(evaluation.headline, score.model)
        model += "" if math.isnan(half) else f" ± {score_text(half)}"
        baselines = _baselines(score, kind.baselines, lambda value: evaluation.text(evaluation.headline, value))
        return f"{title} is {model}{baselines}."
    # The ratio is of label distances; in their unit, as they are printed, it is another one.
    scale = {"root": ", squared,", "ratio": ", in logarithms,"}.get(evaluation.measure.kind, "")
    start = f"{title}{scale} is {score.model / score.random:.2f} times that of a random ranking"
    if normalized < 0:
        return f"{start}: worse than random."
    return f"{start}; normalized score {percent(normalized)} (0 %: random ranking, 100 %: oracle)."


def headline_words(evaluation: Evaluation) -> str:
    """The main metric in a sentence: "The 10 nearest items differ by 4 km; random: 33.6 km; best possible: 1.2 km"."""
    score, kind = evaluation.main, KINDS[evaluation.kind]
    baselines = _baselines(score, (kind.baselines[0], kind.best), lambda value: kind.text(evaluation, value))
    return f"{kind.finding(evaluation, score)}{baselines}."


def _baselines(score: Score, names: tuple[str, str], text: Callable[[float], str]) -> str:
    """The scores that a model is compared with, in words; one that is not known is left out, as that of one judge."""
    values = zip(names, (score.random, score.oracle), strict=True)
    return "".join(f"; {name}: {text(value)}" for name, value in values if not math.isnan(value))


def shortened(table: list[list[str]], main_k: str) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of `summary`, without its header, at K = 1, 10, 100 and the main K, or without a K; and the others."""
    main_ks = ("1", "10", "100", main_k, MISSING)
    return [row for row in table if row[1] in main_ks], [row for row in table if row[1] not in main_ks]


def unit_words(evaluation: Evaluation) -> str:
    """What a label distance is, in words."""
    return KINDS[evaluation.kind].unit or evaluation.unit


def scope(evaluation: Evaluation, size: str = "") -> str:
    """What was evaluated, and what a label distance is; `size` is said in place of the numbers of this evaluation."""
    numbers = KINDS[evaluation.kind].size.format(queries=evaluation.queries, gallery=evaluation.gallery)
    unit = unit_words(evaluation)
    return f"{size or numbers}{f'; label distance: {unit}' if unit else ''}"


def value_text(value: Any) -> str:
    """The value of an option, as a table shows it; a dash where there is none."""
    if isinstance(value, float):
        return f"{value:g}"
    text = MISSING if value is None else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def _cells(evaluation: Evaluation, metric: str, score: Score) -> list[str]:
    """The metric of the model, a random ranking and the oracle, as cells of a table."""
    return [evaluation.text(metric, value, unit=False) for value in (score.model, score.random, score.oracle)]
