"""The report of a run: training curves, metrics over K, retrievals, density, a map, on one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contml._support.imports import lazy_names

if TYPE_CHECKING:
    from contml.reporting.page import write_report as write_report
    from contml.reporting.table import sentence as sentence, summary as summary, unit_words as unit_words

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "contml.reporting.page": ("write_report",),  # which imports matplotlib
        "contml.reporting.table": ("sentence", "summary", "unit_words"),
    },
)
