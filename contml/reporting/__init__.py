"""The report of a run: training curves, metrics over K, retrievals, density, a map, on one HTML page."""

from contml.reporting.page import write_report
from contml.reporting.table import sentence, summary, unit_words

__all__ = ["sentence", "summary", "unit_words", "write_report"]
