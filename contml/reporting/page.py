"""One HTML page that holds everything: pictures inline, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from contml._support.files import write
from contml.data.split import Split
from contml.evaluation.results import Evaluation, Ranking
from contml.reporting.embedding_map import map_figure
from contml.reporting.figures import class_density_figure, density_figure, metrics_figure, png, training_figure
from contml.reporting.gallery import encode, explain_pair, gallery_strips, printable, stack
from contml.reporting.table import sentence, summary, unit_words


class Section(NamedTuple):
    """A heading, how to read what is under it, and the pictures: (PNG in base64, words in its place)."""

    name: str
    heading: str
    caption: str
    pictures: list[tuple[str, str]]


def write_report(
    folder: Path,
    *,
    title: str,
    config: str,
    rows: Sequence[Mapping[str, Any]],
    evaluation: Evaluation,
    ranking: Ranking,
    split: Split,
    pair: tuple[int, int] | None = None,
) -> Path:
    """Write `report.html` into the folder, and its figures beside it as PNG; returns the path of the page.

    A split that has a method `explain(query, row, size)` also gets a picture `match.png`: what the label distance of
    a pair is made of.

    Args:
        folder: where to write; made if it is not there. Every file is replaced as a whole or not at all.
        title: the heading of the page, usually the name of the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`; the events "train" and "evaluation" are drawn.
        evaluation: the figures of the test split.
        ranking: who was retrieved on it.
        split: the test split itself: it draws the pictures.
        pair: the rows whose label distance `match.png` explains; default the first query and its best retrieval.
    """
    folder.mkdir(parents=True, exist_ok=True)
    broken: dict[int, str] = {}
    strips, match = gallery_strips(split, ranking, broken), explain_pair(split, ranking, broken, pair)
    classes = "recall" in evaluation.curves
    density = class_density_figure(ranking.pairs) if classes else density_figure(ranking.pairs, evaluation.spearman)
    trained = any(row.get("event") == "train" for row in rows)
    figures = {
        **({"curves": png(training_figure(rows, evaluation))} if trained else {}),
        "metrics": png(metrics_figure(evaluation)),
        "gallery": encode(stack(strips)),
        **({} if match is None else {"match": encode(match.picture)}),
        "density": png(density),
        "map": png(map_figure(split, ranking.embeddings, broken)),
    }
    for name, content in figures.items():
        write(folder / f"{name}.png", methodcaller("write_bytes", content))
    # On the page the gallery is one picture a query, so that no query is torn in two by a page break in print.
    inline = {name: [(_base64(content), "")] for name, content in figures.items()}
    inline["gallery"] = [(_base64(encode(strip.picture)), strip.words) for strip in strips]
    if match is not None:
        inline["match"] = [(inline["match"][0][0], match.words)]
    captions = _captions(len(strips), classes)
    if pair is not None:
        captions = [_CHOSEN if section[0] == "match" else section for section in captions]
    sections = [
        Section(name, heading, caption, [(data, words or heading) for data, words in inline[name]])
        for name, heading, caption in captions
        if name in inline
    ]
    table = summary(evaluation)
    page = _template().render(
        title=_text(title),
        result=sentence(evaluation),
        date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        evaluation=evaluation,
        unit=_text(unit_words(evaluation)),
        header=table[0],
        table=[[_text(cell) for cell in line] for line in table[1:]],
        sections=sections,
        broken=[f"{printable(split.name(row))}: {printable(error)}" for row, error in broken.items()],
        config=_text(config),
    )
    path = folder / "report.html"
    write(path, methodcaller("write_bytes", page.encode()))
    return path


_CHOSEN = ("match", "Two chosen items", "Two items of the test split: what their label distance is made of.")


def _captions(queries: int, classes: bool) -> list[tuple[str, str, str]]:
    """Name, heading and caption of each section, in the order of the page."""
    captions = [
        (
            "metrics",
            "Metrics over the number of neighbours",
            "Each metric over the K nearest neighbours (solid). It lies between a random ranking (dotted) and the "
            "oracle (dashed), which ranks by the true label distance and is the best that any embedding can do.",
        ),
        (
            "gallery",
            "Retrievals",
            f"{queries} queries at even steps of the quality of retrieval (mean label distance of the top five), from "
            "good to bad: they are not the best ones. Upper row: the nearest by the embedding; lower row: the nearest "
            "by the true label distance. The number under a picture is its label distance to the query: lower is "
            "better.",
        ),
        (
            "match",
            "The first query and its best retrieval",
            "Query 1 and the item that the embedding ranks first for it: what their label distance is made of.",
        ),
        (
            "density",
            "Label distance against embedding distance",
            "A sample of all pairs of a query and a gallery item; darker cells hold more pairs, on a log scale. "
            "The better the embedding, the more steadily the median rises and the closer the quartiles lie to it.",
        ),
        (
            "map",
            "Map of the embeddings",
            "The embeddings of the test split on their two principal components, on the same scale. Each cell shows "
            "the item nearest its centre, so neighbours on the map should have similar labels; how many items a cell "
            "holds is not shown, and the outermost 1 % along each axis may lie outside the frame.",
        ),
        (
            "curves",
            "Training",
            "Left: the loss of each recorded step (pale) and its running mean (dark). Middle: the label distance of "
            "the retrieved on the test split, which should fall from the dotted line, a random ranking, towards the "
            "dashed one, the oracle. Right: the learning rate.",
        ),
    ]
    own = _class_captions(queries) if classes else {}
    return [(name, *own.get(name, (heading, caption))) for name, heading, caption in captions]


def _class_captions(queries: int) -> dict[str, tuple[str, str]]:
    """Heading and caption of the sections that say something else where labels are classes."""
    return {
        "gallery": (
            "Retrievals",
            f"{queries} queries at even steps of the quality of retrieval (how many of the top five are of their "
            "class), from good to bad: they are not the best ones. Upper row: the nearest by the embedding; lower row: "
            "items of the query's class.",
        ),
        "density": (
            "Embedding distance within and between classes",
            "The embedding distances of a sample of all pairs of a query and a gallery item: both areas are 1, however "
            "many pairs there are. The less they overlap, the better the embedding tells classes apart.",
        ),
        "map": (
            "Map of the embeddings",
            "The embeddings of the test split on their two principal components, on the same scale. Each cell shows "
            "the item nearest its centre, so items of a class should lie together; how many items a cell holds is not "
            "shown, and the outermost 1 % along each axis may lie outside the frame.",
        ),
        "curves": (
            "Training",
            "Left: the loss of each recorded step (pale) and its running mean (dark). Middle: Recall@1 on the test "
            "split, which should rise from the dotted line, a random ranking, towards the dashed one, the oracle. "
            "Right: the learning rate.",
        ),
    }


def _template() -> jinja2.Template:
    # Everything is escaped: titles, file names and configs are somebody else's text.
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
