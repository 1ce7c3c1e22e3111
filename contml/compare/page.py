"""Several runs on the same queries, as one self-contained HTML page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from datetime import datetime

from contml._support.text import MISSING, percent, unbroken
from contml.compare.comparison import Comparison, Row, RunTable
from contml.compare.plot import curves_plot, legend_of
from contml.compare.table import body, header, remarks
from contml.data.split import Split
from contml.evaluation.kinds import KINDS
from contml.evaluation.results import Score
from contml.evaluation.table import headline_words, unit_words
from contml.report.examples import Example
from contml.report.pictures import Album, panel_pictures
from contml.report.plots import picture_of
from contml.report.rendering import render, text, texts


def comparison_page(
    comparison: Comparison, split: Split, queries: Sequence[Example], metrics: Sequence[str], notes: Sequence[str]
) -> bytes:
    """The page: which run is best in a sentence, all runs in a table, their curves, and what they retrieve.

    Args:
        comparison: the runs, tested on the same data.
        split: the data that they were tested on.
        queries: some queries, with a line for what each run retrieves.
        metrics: the metrics of the table.
        notes: what to know about the queries.
    """
    (table,) = comparison.tables
    metric = table.evaluation.headline
    score = table.score(metric)
    assert score is not None  # every evaluation has its main metric
    ranked = sorted(table.rows, key=lambda row: _order(row, metric, score))
    evaluation = table.evaluation
    figure = curves_plot(comparison, metrics)
    full_picture = picture_of(figure)
    album = Album(split.with_short_names())
    album.prepare(queries)
    return render(
        "comparison.html",
        album,
        curves=panel_pictures(figure) or [full_picture],
        title=text(f"{table.title.partition(',')[0]}: {sum(len(row.runs) for row in table.rows)} runs compared"),
        headline=unbroken(text(_headline(table, ranked[0], metric))),
        verdict=text("" if (found := table.verdict(metric)) is None else found.sentence),
        about=text(table.title),
        date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        metric=text(evaluation.titled(metric, score.title)),
        several=any(len(row.runs) > 1 for row in ranked),
        ranked=texts(_ranked(table, ranked, metric, score)),
        header=[text(cell) for cell in header(table)],
        table=[[(text(cell), is_best) for cell, is_best in line] for line in body(table)],
        words=len(table.keys),
        remarks=[text(line) for line in (*remarks(table), *comparison.notes, *comparison.left_out)],
        lines=[(colour, dash, text(name)) for colour, dash, name in legend_of(figure)],
        queries=queries,
        legend=[(colour, text(name)) for colour, name in split.view.legend],
        unit=text(unit_words(evaluation)),
        unit_of_numbers=text(KINDS[evaluation.kind].unit_of_numbers(evaluation.unit, evaluation.measure)),
        notes=[text(note) for note in notes],
        folders=[(text(table.label(row)), [text(str(run.folder)) for run in row.runs]) for row in ranked],
    )


def _order(row: Row, metric: str, score: Score) -> float:
    """The place of a row among the others: the best is the lowest; rows without the metric come last."""
    mean = row.mean(metric)
    return math.inf if math.isnan(mean) else -mean if score.better == "higher" else mean


def _headline(table: RunTable, first: Row, metric: str) -> str:
    """The result of the best row in a sentence; that there is none, where there is none."""
    found, words = table.verdict(metric), headline_words(table.evaluation, first.mean(metric))
    if found is None:
        return f"Untrained weights. {words}" if first.untrained else words
    if found.best is None:
        return f"{found.sentence[:1].upper()}{found.sentence[1:]}."
    return f"{table.label(first)} is best. {words}"


def _ranked(table: RunTable, rows: Sequence[Row], metric: str, score: Score) -> list[list[str]]:
    """Name, main metric in the unit of the labels, normalized score, epoch, number of runs, and the range over them."""

    def shown(value: float) -> str:
        return table.text(metric, value)

    lines = []
    for row in rows:
        values = row.values(metric)
        spread = f"{shown(min(values))} to {shown(max(values))}" if len(values) > 1 else MISSING
        normalized = [Score("", "", value, score.random, score.oracle).normalized() for value in values]
        normalized_mean = percent(statistics.fmean(normalized)) if normalized else MISSING
        cells = [shown(row.mean(metric)), normalized_mean, row.epochs, str(len(row.runs)), spread]
        lines.append([table.label(row), *cells])
    lines.append(["random", shown(score.random), percent(0), MISSING, MISSING, MISSING])
    lines.append(["best possible", shown(score.oracle), percent(1), MISSING, MISSING, MISSING])
    return lines
