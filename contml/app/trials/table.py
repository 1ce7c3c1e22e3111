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
    """Return the mean, and for several values their standard deviation with as many decimals, without a unit.

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


def markdown(rows: Sequence[Sequence[TableCell | str]]) -> str:
    """Return a table in Markdown. The first row is the header; the best cells are bold."""
    cells = [[cell if isinstance(cell, TableCell) else TableCell(cell) for cell in row] for row in rows]
    header, *lines = (
        " | ".join(f"**{escaped(text)}**" if best else escaped(text) for text, best in row) for row in cells
    )
    return "\n".join(f"| {line} |" for line in [header, " | ".join(["---"] * len(rows[0])), *lines])


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is in a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")
