"""An evaluation in words and as a table of strings: numbers for the page and the command line."""

from __future__ import annotations

import math

from contml.evaluation.result import Curve, Evaluation

#: The K that tables print, as far as a curve reaches.
TABLE_K = (1, 5, 10, 20, 50, 100)

#: What stands where there is no number.
MISSING = "-"


def number(value: float) -> str:
    """Three significant digits: `0.0381`, `12.4`, `1,234`; a dash for NaN and infinities."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")  # 0.9996 -> 1.00, before its digits are counted
    digits = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.2e}" if digits < -4 else f"{value:,.{max(0, 2 - digits)}f}"


def percent(fraction: float) -> str:
    """A share in whole percent: `73 %`."""
    return f"{100 * fraction + 0.0:.0f} %".replace("-0 %", "0 %") if math.isfinite(fraction) else MISSING


def summary(evaluation: Evaluation) -> list[list[str]]:
    """The header and the rows of the result table, as strings.

    One row for each metric and each K of 1, 5, 10, 20, 50, 100 that its curve reaches; `way` is how far the model is on
    the way from random (0 %) to oracle (100 %). The last row is the Spearman correlation.
    """
    rows = [["metric", "K", "model", "random", "oracle", "way"]]
    for curve in evaluation.curves.values():
        for k in TABLE_K:
            if k <= len(curve.model):
                values = [number(line[k - 1]) for line in (curve.model, curve.random, curve.oracle)]
                rows.append([curve.title, str(k), *values, percent(curve.fraction(k))])
    # A random embedding has correlation 0, the label distance itself 1: the way is the figure itself.
    spearman = evaluation.spearman
    rows.append(["Spearman, embedding and label distance", MISSING, number(spearman), "0", "1", percent(spearman)])
    return rows


def sentence(evaluation: Evaluation) -> str:
    """The result in one sentence: label distance@10 beside a random ranking and the oracle."""
    curve = evaluation.curves.get("label_distance")
    if curve is None or not curve.model:
        return f"The Spearman correlation of embedding and label distance is {number(evaluation.spearman)}."
    k = min(10, len(curve.model))
    return f"Mean label distance@{k} is {_beside_random(curve, k)}."


def _beside_random(curve: Curve, k: int) -> str:
    model, random, way = curve.model[k - 1], curve.random[k - 1], curve.fraction(k)
    if not (math.isfinite(way) and random > 0):
        return f"{number(model)}; a random ranking's is {number(random)}, the oracle's {number(curve.oracle[k - 1])}"
    ratio = f"{model / random:.2f} of a random ranking's"
    if way < 0:
        return f"{ratio}: worse than random"
    return f"{ratio}, {percent(way)} of the way from random to the oracle (the true nearest)"
