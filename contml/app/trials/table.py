"""The table of results that `sweep`, `compare` and `benchmark` print or write."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from contml._support.text import MISSING
from contml.contracts import Measure


class TableCell(NamedTuple):
    """A text of a table, and whether it is the best of its column."""

    text: str
    best: bool = False


def mean_text(values: Sequence[float], measure: Measure) -> str:
    """Format the mean, without a unit.

    For several values, add their standard deviation with the same number of decimals.

    Args:
        values: the metric of each training. Without a value, the text is a dash.
        measure: how the metric is printed.
    """
    if not values:
        return MISSING
    mean = measure.text(statistics.fmean(values), unit=False)
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(map(measure.of, values)):,.{len(mean.partition('.')[2])}f}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown. The first row is the header."""
    header, *lines = (" | ".join(map(escaped, row)) for row in rows)
    return "\n".join(f"| {line} |" for line in [header, " | ".join(["---"] * len(rows[0])), *lines])


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is in a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")
