"""The report as one self-contained HTML page: inline pictures, no scripts, no external files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from matplotlib.figure import Figure

from contml._support.files import write
from contml._support.text import unbroken
from contml.app.report.pictures import Album, panel_pictures, render, text, texts
from contml.app.report.plots import encode, picture_of, training_plot, watched
from contml.data.split import SPLIT_TITLES, Split
from contml.evaluation.evaluated import Evaluated, further, headline_words, sentence, shortened, summary
from contml.evaluation.metrics import title_of
from contml.evaluation.results import KINDS

#: Plots whose panels are pictures of their own on the page.
_PANELS = ("curves", "metrics")


@dataclass(frozen=True)
class About:
    """What a report says of the run beside its result.

    Attributes:
        title: the heading of the page: the data, the label, and the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`; the events "train" and "evaluation" are drawn.
        brief: the essentials for the header: data, backbone, parameters, loss, time, device, version.
        command: the command that started the run; empty if it was started from Python.
        facts: all of the run, for its foot: options, versions, ...
        usage: the lines of code that use the model.
        squared: whether the loss wants label distances proportional to squared embedding distances, or to plain ones;
            None: it wants no proportion.
    """

    title: str
    config: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    brief: Sequence[str] = ()
    command: str = ""
    facts: Sequence[tuple[str, str]] = ()
    usage: str = ""
    squared: bool | None = None


class Page(NamedTuple):
    """What the report of one kind of result shows.

    Attributes:
        template: the file of the page.
        album: its pictures of items.
        figures: the plots by the name of their file, beside that of the training.
        files: other files by name.
        values: of the template.
    """

    template: str
    album: Album
    figures: Mapping[str, Figure]
    files: Mapping[str, bytes]
    values: Mapping[str, Any]


class Content(Protocol):
    """What was found, which a report shows: a ranking, captions, or judgments."""

    def page(self, split: Split, evaluated: Evaluated, about: About) -> Page:
        """What the report shows of a result on this split."""
        ...


def write_report(folder: Path, content: Content, split: Split, evaluated: Evaluated, about: About) -> Path:
    """Write `report.html`, its plots as PNG, and other files into the folder; returns the page's path.

    The pictures of the page have the best quality with which it is small enough.

    Args:
        folder: where to write; made if it does not exist. Every file is replaced as a whole or not at all.
        content: what was found: a `RankingContent`, `CaptionContent` or `JudgmentContent`.
        split: the split of the result: it draws the pictures.
        evaluated: the metrics of the result, and which split and weights they are of.
        about: what the page says of the run.
    """
    page = content.page(split.with_short_names(), evaluated, about)
    folder.mkdir(parents=True, exist_ok=True)
    metrics, shown_split = evaluated.evaluation, watched(about.rows, evaluated)
    headline = f"{'Untrained weights. ' if evaluated.untrained else ''}{headline_words(metrics)}"
    trained = any(row.get("event") == "train" for row in about.rows)
    figures = {**({"curves": training_plot(about.rows, evaluated)} if trained else {}), **page.figures}
    plots = {name: picture_of(figure) for name, figure in figures.items()}
    files = {f"{name}.png": encode(picture) for name, picture in plots.items()}
    files |= page.files
    header, *table = summary(metrics)
    table, rest = shortened(table, str(metrics.k)) if KINDS[metrics.kind].ranked else (table, [])
    files["report.html"] = render(
        page.template,
        page.album,
        sections={
            name: panel_pictures(figure) if name in _PANELS else [plots[name]] for name, figure in figures.items()
        },
        title=text(about.title),
        headline=unbroken(text(headline)),
        result=unbroken(sentence(metrics)),
        date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        evaluation=metrics,
        description=evaluated.description,
        cautions=evaluated.notes,
        comparison="" if evaluated.without_head else unbroken(text(evaluated.comparison)),
        split=evaluated.split_words,
        watched=SPLIT_TITLES[shown_split],
        baselines=shown_split == evaluated.split,
        main=title_of(metrics.headline),
        header=header,
        table=texts(table),
        folded=texts([*rest, *further(metrics)]),
        config=text(about.config),
        brief=[text(fact) for fact in about.brief],
        facts=[(name, text(value)) for name, value in about.facts],
        command=text(about.command),
        usage=text(about.usage),
        **page.values,
    )
    for name, content_bytes in files.items():
        write(folder / name, methodcaller("write_bytes", content_bytes))
    return folder / "report.html"
