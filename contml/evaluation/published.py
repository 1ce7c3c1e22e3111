"""Figures that a paper reports, as a config holds them: by the names under which an evaluation saves ours."""

from __future__ import annotations

import math

from contml._support.errors import InputError, closest, did_you_mean

#: The least and the largest value of each metric over K; a figure's name is "recall@1".
OVER_K = {"recall": (0.0, 1.0), "label_distance": (0.0, math.inf), "ndcg": (0.0, 1.0)}
#: Those of the metrics without a K.
WITHOUT_K = {
    "map_at_r": (0.0, 1.0),
    "r_precision": (0.0, 1.0),
    "nmi": (0.0, 1.0),
    "f1": (0.0, 1.0),
    "spearman": (-1.0, 1.0),
}


class Published:
    """Figures that a paper reports for this set-up; 'contml compare' shows ours beside them.

    Each further key is a metric and its value a fraction: 'recall@1: 0.697'. There are recall@K, ndcg@K,
    label_distance@K (in the unit of the task), map_at_r, r_precision, nmi, f1, spearman.

    Args:
        source: where the figures stand: paper, table, and what is special about them.
    """

    def __init__(self, source: str, **figures: float) -> None:
        if not source.strip():
            raise InputError("source is empty; say where the figures stand, such as 'Kim et al. 2020, Table 2'")
        if not figures:
            raise InputError("there are no figures; give some, such as 'recall@1: 0.697', or leave out 'published'")
        for name, value in figures.items():
            low, high = bounds(name)
            if not (math.isfinite(value) and low <= value <= high):
                hint = f"; write {value / 100:g} for {value:g} %" if high == 1 < value <= 100 else ""
                most = f"{low:g} to {high:g}" if math.isfinite(high) else "at least 0"
                raise InputError(f"{name} is {value:g}; it must be {most}{hint}")
        self.source, self.figures = source, figures


def bounds(metric: str) -> tuple[float, float]:
    """The least and the largest value that a metric can have.

    Raises:
        InputError: there is no such metric.
    """
    name, at, k = metric.partition("@")
    if not at and metric in WITHOUT_K:
        return WITHOUT_K[metric]
    if name in OVER_K and k.isdecimal() and k.isascii() and int(k) > 0:
        return OVER_K[name]
    if name in OVER_K:
        raise InputError(f"'{metric}' is a metric over K without its K; write one such as '{name}@10'")
    near = closest(name, OVER_K) if at else None
    every = ", ".join([*(f"{name}@K" for name in OVER_K), *WITHOUT_K])
    hint = f"did you mean '{near}@{k}'?" if near else did_you_mean(metric, [*OVER_K, *WITHOUT_K], f"there are {every}")
    raise InputError(f"unknown metric '{metric}'; {hint}")
