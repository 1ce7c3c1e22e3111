"""A comparison as papers print it: text for the terminal, Markdown, and plain data for JSON."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict
from typing import Any, NamedTuple

from contml._support.text import MISSING, number
from contml.app.trials.compare import Comparison, Row, RunTable
from contml.app.trials.verdict import Verdict
from contml.contracts import PLAIN

NOT_MEASURED = "not measured"


class Cell(NamedTuple):
    """A text of a table, and whether it is the best of its column."""

    text: str
    best: bool = False


def header(table: RunTable) -> list[str]:
    """The titles of a table's columns."""
    return [text for text, _ in _columns(table)]


def title(table: RunTable, metric: str) -> str:
    """The title of a metric, with the unit of a label distance; its name where it was not measured."""
    score = table.score(metric)
    return metric if score is None else table.evaluation.titled(metric, score.title)


def body(table: RunTable) -> list[list[Cell]]:
    """The rows of a table."""
    return [list(line) for line in zip(*(cells for _, cells in _columns(table)), strict=True)]


def _columns(table: RunTable) -> list[tuple[str, list[Cell]]]:
    """The title and the cells of each column."""
    rows, references = table.rows, {source: n for n, source in enumerate(sources(table), 1)}
    columns = [(text, [Cell(row.cells[n]) for row in rows]) for n, text in enumerate(table.columns)]
    if any(len(row.runs) > 1 for row in rows):
        columns.append(("runs", [Cell(str(len(row.runs))) for row in rows]))
    if any(row.folds for row in rows):
        columns.append(("folds", [Cell(str(len(row.folds))) for row in rows]))
    columns.append(("epoch", [Cell(row.epochs) for row in rows]))
    for metric in table.metrics:
        found = table.verdict(metric)
        best = None if found is None else found.best
        cells = [Cell(_ours(table, row, metric), n == best) for n, row in enumerate(rows)]
        columns.append((title(table, metric), cells))
        if any(row.paper and metric in row.paper.metrics for row in rows):
            columns.append(("published", [Cell(_published(table, row, metric, references)) for row in rows]))
    return columns


def sources(table: RunTable) -> list[str]:
    """The sources of the published metrics, in the order of their references."""
    papers = [row.paper for row in table.rows if row.paper and {*table.metrics} & {*row.paper.metrics}]
    return list(dict.fromkeys(paper.source for paper in papers))


def remarks(table: RunTable) -> list[str]:
    """The lines under a table: which row is best, the sources, and how to read an entry of several runs."""
    found = main_verdict(table)
    lines = [] if found is None else [found.sentence]
    lines += [f"[{n}] {source}" for n, source in enumerate(sources(table), 1)]
    if sources(table):
        lines.append("published: the value of the paper, and in brackets ours minus that (of factors: divided by that)")
    if any(len(row.values(metric)) > 1 for row in table.rows for metric in table.metrics):
        lines.append("±: the standard deviation over the runs of a row")
    return lines


def main_verdict(table: RunTable) -> Verdict | None:
    """Which row is best by the main metric, or by the first one if the table does not show that."""
    main = table.evaluation.headline
    shown = {metric.partition("/")[0] for metric in table.metrics}
    return table.verdict(main if main in shown else table.metrics[0])


def _ours(table: RunTable, row: Row, metric: str) -> str:
    values, mean = row.values(metric), table.text(metric, row.mean(metric))
    if not values:
        return NOT_MEASURED if row.paper and metric in row.paper.metrics else MISSING
    if len(values) == 1:
        return mean
    measure = table.evaluation.measure_of(metric) or PLAIN
    # As many decimals as the mean has.
    return f"{mean} ± {statistics.stdev(map(measure.of, values)):,.{len(mean.partition('.')[2])}f}"


def _published(table: RunTable, row: Row, metric: str, references: dict[str, int]) -> str:
    if row.paper is None or metric not in row.paper.metrics:
        return MISSING
    value, measure = row.paper.metrics[metric], table.evaluation.measure_of(metric) or PLAIN
    difference = measure.gap(row.mean(metric), value)
    sign = measure.before if measure.kind == "ratio" else "-" if difference < 0 else "+"
    change = f" ({sign}{number(abs(difference))})" if math.isfinite(difference) else ""
    return f"{table.text(metric, value)}{change} [{references[row.paper.source]}]"


def markdown(comparison: Comparison) -> str:
    """All tables with their remarks and the notes, as a Markdown document."""
    blocks = []
    for table in comparison.tables:
        scores = [score for metric in table.metrics if (score := table.score(metric))]
        arrows = {score.title: " ↓" if score.better == "lower" else " ↑" for score in scores}
        titles = [text + arrows.get(text, "") for text in header(table)]
        lines = [titles, ["---"] * len(titles)]
        lines += [[f"**{cell.text}**" if cell.best else cell.text for cell in line] for line in body(table)]
        blocks.append(_escaped(table.title))
        blocks.append("\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines))
        blocks += _markdown_list(remarks(table))
    for name, entries in (("Notes:", comparison.notes), ("Not in the table:", comparison.left_out)):
        if entries:
            blocks += [name, *_markdown_list(entries)]
    return "\n\n".join(blocks) + "\n"


def _markdown_list(entries: list[str] | tuple[str, ...]) -> list[str]:
    return ["\n".join(f"- {_escaped(entry)}" for entry in entries)] if entries else []


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "tables": [
            {
                "test_set": table.title,
                "verdict": None if (found := main_verdict(table)) is None else _verdict(table, found),
                "unit": table.evaluation.unit,
                "measure": asdict(table.evaluation.measure),
                "metrics": {metric: _baselines(table, metric) for metric in table.metrics},
                "rows": [
                    {
                        "split": row.runs[0].evaluated.split,
                        "checkpoint": row.runs[0].evaluated.checkpoint,
                        "config": dict(zip(table.keys, row.cells, strict=True)),
                        "folders": [str(run.folder) for run in row.runs],
                        "seeds": [run.config.get("seed") for run in row.runs],
                        "folds": [run.fold for run in row.runs],
                        "epochs": [run.evaluated.epoch for run in row.runs],
                        "untrained": [bool(run.evaluated.untrained) for run in row.runs],
                        "source": row.paper and row.paper.source,
                        "metrics": {metric: _statistics(row, metric) for metric in table.metrics},
                    }
                    for row in table.rows
                ],
            }
            for table in comparison.tables
        ],
        "left_out": list(comparison.left_out),
        "notes": list(comparison.notes),
    }


def _verdict(table: RunTable, found: Verdict) -> dict[str, Any]:
    labels = [table.label(row) for row in table.rows]
    return {
        "best": None if found.best is None else labels[found.best],
        "tied": [labels[n] for n in found.tied],
        "difference_to_second": found.second and found.second.mean,
        "interval": found.second and found.second.interval,
        "sentence": found.sentence,
    }


def _statistics(row: Row, metric: str) -> dict[str, Any]:
    values, published = row.values(metric), row.paper.metrics.get(metric) if row.paper else None
    summary: dict[str, Any] = {"mean": row.mean(metric) if values else None, "values": values}
    if len(values) > 1:
        summary |= {"least": min(values), "largest": max(values), "deviation": statistics.stdev(values)}
    if published is not None:
        summary |= {"published": published, "difference": row.mean(metric) - published if values else None}
    return summary


def _baselines(table: RunTable, metric: str) -> dict[str, Any] | None:
    score = table.score(metric)
    if score is None:
        return None
    random, oracle = (value if math.isfinite(value) else None for value in (score.random, score.oracle))
    return {"title": score.title, "better": score.better, "random": random, "oracle": oracle}
