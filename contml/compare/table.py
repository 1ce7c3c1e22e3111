"""A comparison as papers print it: text for the terminal, Markdown, CSV, and plain data for JSON."""

from __future__ import annotations

import csv
import io
import math
import statistics
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from contml._support.text import MISSING, number
from contml.compare.comparison import Comparison, Row, RunTable, is_normalized
from contml.compare.verdict import Verdict
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
        if any(metric in row.published for row in rows):
            columns.append(("published", [Cell(_published(table, row, metric, references)) for row in rows]))
    return columns


def sources(table: RunTable) -> list[str]:
    """The sources of the published metrics, in the order of their references."""
    rows = [row for row in table.rows if any(metric in row.published for metric in table.metrics)]
    return list(dict.fromkeys(row.source for row in rows if row.source))


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


def _mean(table: RunTable, row: Row, metric: str) -> str:
    """The mean as it is printed."""
    mean = row.mean(metric)
    if is_normalized(metric):
        return f"{100 * mean:.1f} %" if math.isfinite(mean) else MISSING
    return table.text(metric, mean)


def _ours(table: RunTable, row: Row, metric: str) -> str:
    values = row.values(metric)
    if not values:
        return NOT_MEASURED if metric in row.published else MISSING
    if len(values) == 1:
        return _mean(table, row, metric)
    if is_normalized(metric):
        return f"{100 * row.mean(metric):.1f} ± {100 * statistics.stdev(values):.1f} %"
    measure, mean = table.evaluation.measure_of(metric), _mean(table, row, metric)
    deviation = statistics.stdev(values if measure is None else map(measure.of, values))
    # As many decimals as the mean has.
    return f"{mean} ± {deviation:,.{len(mean.partition('.')[2])}f}"


def _published(table: RunTable, row: Row, metric: str, references: dict[str, int]) -> str:
    if metric not in row.published or row.source is None:
        return MISSING
    value, reference = row.published[metric], f"[{references[row.source]}]"
    measure = table.evaluation.measure_of(metric) or PLAIN
    difference = measure.gap(row.mean(metric), value)
    if measure.kind == "ratio":
        text, change = table.text(metric, value), f"{measure.before}{number(difference)}"
    elif measure.is_plain and abs(value) <= 1:  # all digits of the paper, three at least
        text, change = f"{value:.{max(3, len(f'{value:.6g}') - 2)}f}", f"{difference:+.3f}"
    else:
        text, change = table.text(metric, value), ("-" if difference < 0 else "+") + number(abs(difference))
    return f"{text} ({change}) {reference}" if math.isfinite(difference) else f"{text} {reference}"


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


def comma_separated(comparison: Comparison) -> str:
    """All rows as CSV, at full precision: one file for all test sets."""
    records = [_record(table["test_set"], row) for table in as_data(comparison)["tables"] for row in table["rows"]]
    names = list(dict.fromkeys(name for record in records for name in record))
    names = [*(n for n in names if n not in ("source", "folders")), "source", "folders"]  # wide ones last
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _record(test_set: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row of `as_data` as a line of the CSV file."""
    record = {"test_set": test_set, "split": row["split"], "checkpoint": row["checkpoint"], **row["config"]}
    record["runs"] = len(row["folders"])
    record["seeds"] = " ".join("" if seed is None else str(seed) for seed in row["seeds"])
    record["epochs"] = " ".join(f"{epoch:g}" for epoch in row["epochs"])
    record["untrained"] = sum(row["untrained"])
    for metric, statistics_of_metric in row["metrics"].items():
        for name, value in statistics_of_metric.items():
            if name != "values":
                record[metric if name == "mean" else f"{metric} {name}"] = value
    return {**record, "source": row["source"], "folders": " ".join(row["folders"])}


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
                        "source": row.source,
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
    labels = [replace(table, axis=None).label(row) for row in table.rows]
    return {
        "best": None if found.best is None else labels[found.best],
        "tied": [labels[n] for n in found.tied],
        "difference_to_second": None if found.second is None else found.second.mean,
        "interval": None if found.second is None else found.second.interval,
        "sentence": found.sentence,
    }


def _statistics(row: Row, metric: str) -> dict[str, Any]:
    values = row.values(metric)
    summary: dict[str, Any] = {"mean": row.mean(metric) if values else None, "values": values}
    if len(values) > 1:
        summary |= {"least": min(values), "largest": max(values), "deviation": statistics.stdev(values)}
    if metric in row.published:
        published = row.published[metric]
        summary |= {"published": published, "difference": row.mean(metric) - published if values else None}
    return summary


def _baselines(table: RunTable, metric: str) -> dict[str, Any] | None:
    score = table.score(metric)
    if score is None:
        return None
    random, oracle = (value if math.isfinite(value) else None for value in (score.random, score.oracle))
    return {"title": score.title, "better": score.better, "random": random, "oracle": oracle}
