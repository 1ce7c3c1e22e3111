"""The report as one self-contained HTML page: inline pictures, no scripts, no external files."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import methodcaller
from pathlib import Path
from typing import Any

import jinja2

from contml._support.files import write
from contml.data.split import SPLIT_TITLES, Split
from contml.evaluation.results import Evaluated, Ranking
from contml.report.embedding_map import MAX_TSNE, map_plot, tsne_plot
from contml.report.gallery import encode, explain_pair, gallery_strips, printable, stack
from contml.report.plots import class_density_plot, density_plot, metrics_plot, png, training_plot, watched
from contml.report.table import sentence, summary, unit_words


def write_report(
    folder: Path,
    *,
    title: str,
    config: str,
    rows: Sequence[Mapping[str, Any]],
    evaluation: Evaluated,
    ranking: Ranking,
    split: Split,
    pair: tuple[int, int] | None = None,
) -> Path:
    """Write `report.html` into the folder, and its plots beside it as PNG; returns the path of the page.

    Where the split has an explainer, it also draws `match.png`: the parts of the label distance of a pair.

    Args:
        folder: where to write; made if it does not exist. Every file is replaced as a whole or not at all.
        title: the heading of the page, usually the name of the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`; the events "train" and "evaluation" are drawn.
        evaluation: the metrics of the result, and which split and weights they are of.
        ranking: the items retrieved on this split.
        split: the split itself: it draws the pictures.
        pair: the rows whose label distance `match.png` explains; default the first query and its nearest item.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metrics, shown = evaluation.evaluation, watched(rows, evaluation)
    broken: dict[int, str] = {}
    strips, match = gallery_strips(split, ranking, broken), explain_pair(split, ranking, broken, pair)
    classes = "recall" in metrics.curves
    density = class_density_plot(ranking.pairs) if classes else density_plot(ranking.pairs, metrics.spearman)
    trained = any(row.get("event") == "train" for row in rows)
    files = {
        **({"curves": png(training_plot(rows, evaluation))} if trained else {}),
        "metrics": png(metrics_plot(metrics)),
        "gallery": encode(stack(strips)),
        **({} if match is None else {"match": encode(match.picture)}),
        "density": png(density),
        "map": png(map_plot(split, ranking.embeddings, broken)),
        "tsne": png(tsne_plot(split, ranking.embeddings, broken)),
    }
    for name, content in files.items():
        write(folder / f"{name}.png", methodcaller("write_bytes", content))
    pictures = {name: [(_base64(content), "")] for name, content in files.items()}
    # On the page each query has a picture of its own, so that no page break in print splits a query.
    pictures["gallery"] = [(_base64(encode(strip.picture)), strip.description) for strip in strips]
    if match is not None:
        pictures["match"] = [(_base64(files["match"]), match.description)]
    header, *table = summary(metrics)
    page = _template().render(
        title=_text(title),
        result=sentence(metrics),
        date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        evaluation=metrics,
        description=evaluation.description,
        doubt=evaluation.doubt,
        split=evaluation.split_words,
        watched=SPLIT_TITLES[shown],
        baselines=shown == evaluation.split,
        unit=_text(unit_words(metrics)),
        header=header,
        table=[[_text(cell) for cell in row] for row in table],
        classes=classes,
        chosen_pair=pair is not None,
        largest_tsne=MAX_TSNE,
        pictures=pictures,
        broken=[f"{printable(split.name(row))}: {printable(error)}" for row, error in broken.items()],
        config=_text(config),
    )
    path = folder / "report.html"
    write(path, methodcaller("write_bytes", page.encode()))
    return path


def _template() -> jinja2.Template:
    # Everything is escaped: titles, file names and configs may hold HTML.
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _text(text: str) -> str:
    """Text that UTF-8 and HTML can hold: control characters and lone surrogates are escaped."""
    return "".join(c if c in "\n\t" else printable(c) if ord(c) < 32 or "\ud800" <= c <= "\udfff" else c for c in text)
