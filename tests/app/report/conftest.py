"""Plots of few pixels."""

import pytest


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Half the time."""
    monkeypatch.setattr("contml.app.report.plots.DPI", 60)
    monkeypatch.setattr("contml.app.report.embedding_map.DPI", 60)
