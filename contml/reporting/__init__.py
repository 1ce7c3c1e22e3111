"""The report of a run: training curves, metrics over K, retrievals, density, a map, on one HTML page."""

from contml.reporting.page import write_report
from contml.reporting.table import sentence, summary

__all__ = ["sentence", "summary", "write_report"]
