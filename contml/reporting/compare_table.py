"""A comparison as papers print it: text for the terminal, Markdown, CSV, and plain data for JSON."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from contml._support.text import MISSING, number
from contml.reporting.compare import Comparison, Group, Row

NOT_MEASURED = "not measured"


class Cell(NamedTuple):
    """A text of a table, and whether it is the best of its column."""

    text: str
    best: bool = False


def header(group: Group) -> list[str]:
    """The titles of a table's columns."""
    titles = [*group.columns]
    if any(len(row.runs) > 1 for row in group.rows):
        titles.append("runs")
    for metric in group.metrics:
        titles.append(title(group, metric))
        if _reported(group, metric):
            titles.append("published")
    return titles


def title(group: Group, metric: str) -> str:
    """What a metric is called."""
    score = group.score(metric)
    return metric if score is None else score.title


def body(group: Group) -> list[list[Cell]]:
    """The rows of a table."""
    several = any(len(row.runs) > 1 for row in group.rows)
    best = {metric: _best(group, metric) for metric in group.metrics}
    marks = {source: n for n, source in enumerate(sources(group), 1)}
    lines = []
    for row in group.rows:
        line = [Cell(cell) for cell in row.cells]
        if several:
            line.append(Cell(str(len(row.runs))))
        for metric in group.metrics:
            line.append(Cell(_ours(row, metric), _mean(row, metric) == best[metric]))
            if _reported(group, metric):
                line.append(Cell(_published(row, metric, marks)))
        lines.append(line)
    return lines


def sources(group: Group) -> list[str]:
    """Where published metrics stand, in the order of their marks."""
    shown = [row.published for row in group.rows if row.published is not None]
    return list(dict.fromkeys(p.source for p in shown if any(metric in p.metrics for metric in group.metrics)))


def remarks(group: Group) -> list[str]:
    """What stands under a table: the sources, and what an entry of several runs says."""
    lines = [f"[{n}] {source}" for n, source in enumerate(sources(group), 1)]
    if lines:
        lines.append("published: the paper's figure, and in brackets by how much ours is above it")
    if any(len(row.values(metric)) > 1 for row in group.rows for metric in group.metrics):
        lines.append("±: the standard deviation over the runs of a row")
    return lines


def _mean(row: Row, metric: str) -> str:
    """The mean as it is printed: what looks the same is as good."""
    mean = row.mean(metric)
    if metric.endswith("/normalized"):
        return f"{100 * mean:.1f} %" if math.isfinite(mean) else MISSING
    return number(mean)


def _ours(row: Row, metric: str) -> str:
    values = row.values(metric)
    if not values:
        return NOT_MEASURED if row.published is not None and metric in row.published.metrics else MISSING
    if len(values) == 1:
        return _mean(row, metric)
    mean, deviation = row.mean(metric), statistics.stdev(values)
    if metric.endswith("/normalized"):
        return f"{100 * mean:.1f} ± {100 * deviation:.1f} %"
    # As many decimals as the mean has.
    decimals = len(number(mean).partition(".")[2])
    return f"{number(mean)} ± {deviation:,.{decimals}f}"


def _published(row: Row, metric: str, marks: dict[str, int]) -> str:
    if row.published is None or metric not in row.published.metrics:
        return MISSING
    theirs, mark = row.published.metrics[metric], f"[{marks[row.published.source]}]"
    away = row.mean(metric) - theirs
    if abs(theirs) <= 1:  # all digits of the paper, three at least
        text, more = f"{theirs:.{max(3, len(f'{theirs:.6g}') - 2)}f}", f"{away:+.3f}"
    else:
        text, more = number(theirs), ("-" if away < 0 else "+") + number(abs(away))
    return f"{text} ({more}) {mark}" if math.isfinite(away) else f"{text} {mark}"


def _reported(group: Group, metric: str) -> bool:
    return any(row.published is not None and metric in row.published.metrics for row in group.rows)


def _best(group: Group, metric: str) -> str | None:
    """The best mean as it is printed; None where there is nothing to choose from."""
    score = group.score(metric)
    rows = [row for row in group.rows if row.values(metric)]
    if score is None or len(rows) < 2 or len({_mean(row, metric) for row in rows}) < 2:
        return None
    return _mean((min if score.better == "lower" else max)(rows, key=lambda row: row.mean(metric)), metric)


def markdown(comparison: Comparison) -> str:
    """All tables with what has to be said of them, as a Markdown document."""
    parts = []
    for group in comparison.groups:
        titles = header(group)
        arrows = {title(group, m): _arrow(group, m) for m in group.metrics}
        lines = [[text + arrows.get(text, "") for text in titles], ["---"] * len(titles)]
        lines += [[f"**{cell.text}**" if cell.best else cell.text for cell in line] for line in body(group)]
        parts.append(_escaped(group.title))
        parts.append("\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines))
        if remarks(group):
            parts.append("\n".join(f"- {_escaped(line)}" for line in remarks(group)))
    for name, entries in (("Notes:", comparison.notes), ("Not in the table:", comparison.left_out)):
        if entries:
            parts += [name, "\n".join(f"- {_escaped(line)}" for line in entries)]
    return "\n\n".join(parts) + "\n"


def _arrow(group: Group, metric: str) -> str:
    score = group.score(metric)
    return "" if score is None else " ↓" if score.better == "lower" else " ↑"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def comma_separated(comparison: Comparison) -> str:
    """All rows as CSV, at full precision: one file, whatever the test sets."""
    data = [{"test_set": group.title, **_record(row, group)} for group in comparison.groups for row in group.rows]
    names = list(dict.fromkeys(name for record in data for name in record))
    names = [*(n for n in names if n not in ("source", "folders")), "source", "folders"]  # wide ones last
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(data)
    return text.getvalue()


def _record(row: Row, group: Group) -> dict[str, Any]:
    record: dict[str, Any] = dict(zip(group.keys, row.cells, strict=True))
    record |= {"runs": len(row.runs), "seeds": " ".join(str(run.config.get("seed", "")) for run in row.runs)}
    for metric in group.metrics:
        for name, value in _figures(row, metric).items():
            if name not in ("values",):
                record[metric if name == "mean" else f"{metric} {name}"] = value
    record["source"] = row.published.source if row.published is not None else None
    record["folders"] = " ".join(str(run.folder) for run in row.runs)
    return record


def _figures(row: Row, metric: str) -> dict[str, Any]:
    values = row.values(metric)
    figures: dict[str, Any] = {"mean": None, "values": values}
    if values:
        figures["mean"] = statistics.fmean(values)
    if len(values) > 1:
        figures |= {"least": min(values), "largest": max(values), "deviation": statistics.stdev(values)}
    if row.published is not None and metric in row.published.metrics:
        theirs = row.published.metrics[metric]
        figures |= {"published": theirs, "difference": row.mean(metric) - theirs if values else None}
    return figures


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "tables": [
            {
                "test_set": group.title,
                "metrics": {m: _baselines(group, m) for m in group.metrics},
                "rows": [
                    {
                        "config": dict(zip(group.keys, row.cells, strict=True)),
                        "folders": [str(run.folder) for run in row.runs],
                        "seeds": [run.config.get("seed") for run in row.runs],
                        "source": row.published.source if row.published is not None else None,
                        "figures": {metric: _figures(row, metric) for metric in group.metrics},
                    }
                    for row in group.rows
                ],
            }
            for group in comparison.groups
        ],
        "left_out": list(comparison.left_out),
        "notes": list(comparison.notes),
    }


def _baselines(group: Group, metric: str) -> dict[str, Any] | None:
    score = group.score(metric)
    if score is None:
        return None
    sides: Sequence[tuple[str, float]] = (("random", score.random), ("oracle", score.oracle))
    return {"title": score.title, "better": score.better} | {n: v if math.isfinite(v) else None for n, v in sides}
