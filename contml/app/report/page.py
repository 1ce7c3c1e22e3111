"""The report as one self-contained HTML page, and pages from templates: inline pictures, no scripts."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from matplotlib.figure import Figure
from PIL import Image

from contml._support.files import write
from contml._support.pages import page_template, page_text, picture_bytes, unbroken
from contml._support.text import score_text
from contml.app.report.examples import Example, drawn
from contml.app.report.plots import encode, picture_of, training_plot, watched
from contml.data.split import SPLIT_TITLES, Split
from contml.evaluation.evaluated import Evaluated, headline_words, sentence, shortened, summary
from contml.evaluation.metrics import title_of
from contml.evaluation.results import KINDS

#: Sides in pixels of a query and of a retrieved item; the page shows them at about 0.6 of that.
QUERY, ITEM = 300, 176
#: The widest picture of a page in pixels.
_WIDEST = 1440


def narrowed(picture: Image.Image, width: int) -> Image.Image:
    """Return the picture, at most `width` pixels wide."""
    if picture.width <= width:
        return picture
    return picture.resize((width, max(1, round(picture.height * width / picture.width))), Image.Resampling.LANCZOS)


class Album:
    """The pictures of a page, encoded with `quality`. Rows of its split that could not be drawn are noted in `broken`.

    The page writes the text of a label below its picture. The picture itself shows only the drawing of the split's
    renderer.
    """

    def __init__(self, split: Split) -> None:
        self.split, self.quality = split, 80
        self.broken: dict[int, str] = {}
        self._pictures: dict[tuple[int, int], Image.Image] = {}

    def embedded(self, picture: Image.Image) -> str:
        """Return a picture as a data URI of a WebP file, at most 1440 pixels wide."""
        content = picture_bytes(narrowed(picture, _WIDEST).convert("RGB"), "WEBP", quality=self.quality, method=2)
        return "data:image/webp;base64," + base64.b64encode(content).decode("ascii")

    def prepare(self, examples: Sequence[Example]) -> None:
        """Draw the pictures of these examples, and note the rows that cannot be drawn."""
        for example in examples:
            rows = [item.row for _, items in example.lines for item in items]
            for row in (example.row, *rows):
                self.picture(row, QUERY if row == example.row else ITEM)
                self.label(row)

    def picture(self, row: int, size: int = ITEM) -> Image.Image:
        """Return the picture of a row, at most `size` pixels wide and high."""
        if (row, size) not in self._pictures:
            has_label = self.split.view.renderer is not None
            self._pictures[row, size] = drawn(self.split, row, size, self.broken, label=has_label)
        return self._pictures[row, size]

    def item(self, row: int) -> str:
        """Return the picture of a retrieved item, as a data URI."""
        return self.embedded(self.picture(row))

    def query(self, row: int) -> str:
        """Return the picture of a query, as a data URI."""
        return self.embedded(self.picture(row, QUERY))

    def name(self, row: int) -> str:
        """Return the name of a row."""
        return page_text(self.split.name(row))

    def label(self, row: int) -> str:
        """Return the label of a row as text.

        It is empty if there is no text, or if the label space fails, which is noted.
        """
        try:
            return page_text(self.split.labels.text(row), lines=True)
        except Exception as error:  # as in `draw`
            self.broken.setdefault(row, f"{type(error).__name__}: {error}")
            return ""


#: A page of more bytes is written again with a lower quality of its pictures, down to the last one.
LIMIT, QUALITIES = 2_000_000, (80, 65, 50, 35, 20)


def render(template: str, album: Album, **values: Any) -> bytes:
    """Return the page. The album encodes its pictures, and knows the rows that could not be drawn.

    `contents` of the template collects the headings, for a list of them.
    """
    whole, page = page_template(Path(__file__).with_name(template)), b""
    broken = [f"{album.name(row)}: {page_text(error)}" for row, error in album.broken.items()]
    for quality in QUALITIES:
        album.quality = quality
        page = whole.render(**values, album=album, broken=broken, contents=[]).encode()
        if len(page) < LIMIT:
            break
    return page


def text(given: str) -> str:
    """Return a text that HTML can hold, without the folders of absolute paths."""
    return page_text(given, lines=True)


def texts(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Convert rows of texts with `text`."""
    return [[text(cell) for cell in row] for row in rows]


def interval_rows(means: Mapping[str, float], intervals: Mapping[str, float]) -> list[list[str]]:
    """Return each metric with its 95 % interval, as strings.

    `intervals` has half the width of each interval. NaN means that a metric has none.
    """
    rows = []
    for name, mean in means.items():
        half = intervals.get(name, math.nan)
        interval = "" if math.isnan(half) else f"{score_text(mean - half)} to {score_text(mean + half)}"
        rows.append([title_of(name), score_text(mean), interval])
    return rows


@dataclass(frozen=True)
class About:
    """Facts on a run for its report, beside its result.

    Attributes:
        title: the heading of the page: the data, the label, and the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`. The events "train" and "evaluation" are drawn.
        brief: the essentials for the header: data, backbone, parameters, loss, time, device, version.
        command: the command that started the run. It is empty if the run was started from Python.
    """

    title: str
    config: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    brief: Sequence[str] = ()
    command: str = ""


class Page(NamedTuple):
    """The content of the report of one kind of result.

    Attributes:
        template: the file of the page.
        album: its pictures of items.
        figures: the plots by the name of their file, without the plot of the training.
        values: the values of the template.
    """

    template: str
    album: Album
    figures: Mapping[str, Figure]
    values: Mapping[str, Any]


class Content(Protocol):
    """A result that a report shows: a ranking, captions, or judgments."""

    def page(self, split: Split, evaluated: Evaluated) -> Page:
        """Return the content of the report of a result on this split."""


def write_report(folder: Path, content: Content, split: Split, evaluated: Evaluated, about: About) -> Path:
    """Write `report.html`, and its plots as PNG into the folder. Return the path of the page.

    The pictures of the page have the best quality with which it is small enough.

    Args:
        folder: where to write. It is made if it does not exist. Every file is replaced completely or not at all.
        content: the result: a `RankingContent`, `CaptionContent` or `JudgmentContent`.
        split: the split of the result, which draws the pictures.
        evaluated: the metrics of the result, with their split and weights.
        about: facts on the run.
    """
    page = content.page(split.with_short_names(), evaluated)
    folder.mkdir(parents=True, exist_ok=True)
    metrics, shown_split = evaluated.evaluation, watched(about.rows, evaluated)
    headline = f"{'Untrained weights. ' if evaluated.untrained else ''}{headline_words(metrics)}"
    trained = any(row.get("event") == "train" for row in about.rows)
    figures = {**({"curves": training_plot(about.rows, evaluated)} if trained else {}), **page.figures}
    plots = {name: picture_of(figure) for name, figure in figures.items()}
    files = {f"{name}.png": encode(picture) for name, picture in plots.items()}
    header, *table = summary(metrics)
    table, rest = shortened(table, str(metrics.k)) if KINDS[metrics.kind].ranked else (table, [])
    values: dict[str, Any] = {"title": text(about.title), "config": text(about.config), "command": text(about.command)}
    values |= {"header": header, "table": texts(table), "folded": texts(rest), "brief": [*map(text, about.brief)]}
    values |= {"headline": unbroken(text(headline)), "result": unbroken(sentence(metrics)), "sections": plots}
    values |= {"description": evaluated.description, "cautions": evaluated.notes, "split": evaluated.split_words}
    values |= {"watched": SPLIT_TITLES[shown_split], "baselines": shown_split == evaluated.split}
    values |= {"evaluation": metrics, "main": title_of(metrics.headline)}
    values["comparison"] = "" if evaluated.without_head else unbroken(text(evaluated.comparison))
    values["date"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    files["report.html"] = render(page.template, page.album, **values, **page.values)
    for name, content_bytes in files.items():
        write(folder / name, methodcaller("write_bytes", content_bytes))
    return folder / "report.html"
