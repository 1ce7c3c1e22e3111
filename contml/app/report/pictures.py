"""Pages from their templates: escaped, with pictures of the best quality with which they are small enough."""

from __future__ import annotations

import base64
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from contml._support.pages import page_template, picture_bytes
from contml._support.text import page_text, score_text
from contml.app.report.examples import Example, drawn
from contml.app.report.plots import STYLE, as_picture
from contml.data.split import Split
from contml.evaluation.metrics import title_of

#: Sides in pixels of a query and of a retrieved item; the page shows them at about 0.6 of that.
QUERY, ITEM = 300, 176
#: The widest picture of a page in pixels.
_WIDEST = 1440


def narrowed(picture: Image.Image, width: int) -> Image.Image:
    """The picture, at most `width` pixels wide."""
    if picture.width <= width:
        return picture
    height = max(1, round(picture.height * width / picture.width))
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def panel_pictures(figure: Figure) -> list[Image.Image]:
    """Each panel of a plot as a picture of its own, all of one size, so that a page can place them below each other.

    `picture_of` the plot must have been taken: it places the panels, on the canvas that is drawn on here.
    """
    canvas: Any = figure.canvas  # its methods have no types
    renderer, pad, pictures = canvas.get_renderer(), 0.06 * figure.dpi, []
    height, width = canvas.buffer_rgba().shape[:2]
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # as in `picture_of`
        for axes in figure.axes:
            if axes.axison:
                renderer.clear()  # titles may reach into a neighbour
                figure.patch.draw(renderer)
                axes.draw(renderer)
                box = axes.get_tightbbox(renderer)
                assert box is not None  # it is visible
                left, right = max(0, int(box.x0 - pad)), min(width, int(box.x1 + pad))
                top, bottom = max(0, int(height - box.y1 - pad)), min(height, int(height - box.y0 + pad))
                pictures.append(as_picture(np.asarray(canvas.buffer_rgba())[top:bottom, left:right]))
    width, height = max(picture.width for picture in pictures), max(picture.height for picture in pictures)
    ground = to_hex(figure.get_facecolor())
    return [ImageOps.expand(each, (0, height - each.height, width - each.width, 0), ground) for each in pictures]


class Album:
    """The pictures of a page, encoded with `quality`; rows of its split that could not be drawn are noted in `broken`.

    The page writes the words of a label below its picture: on it is only what the renderer of the split draws.
    """

    def __init__(self, split: Split) -> None:
        self.split, self.quality = split, 80
        self.broken: dict[int, str] = {}
        self._pictures: dict[tuple[int, int], Image.Image] = {}

    def embedded(self, picture: Image.Image) -> str:
        """A picture as a data URI of a WebP file, at most 1440 pixels wide."""
        content = picture_bytes(narrowed(picture, _WIDEST).convert("RGB"), "WEBP", quality=self.quality, method=2)
        return "data:image/webp;base64," + base64.b64encode(content).decode("ascii")

    def prepare(self, examples: Sequence[Example]) -> None:
        """Draw what these examples show, and note what cannot be drawn."""
        for example in examples:
            rows = [item.row for _, items in example.lines for item in items]
            for row in (example.row, *rows):
                self.picture(row, QUERY if row == example.row else ITEM)
                self.label(row)

    def picture(self, row: int, size: int = ITEM) -> Image.Image:
        """The picture of a row, at most `size` pixels wide and high."""
        if (row, size) not in self._pictures:
            self._pictures[row, size] = drawn(
                self.split, row, size, self.broken, label=self.split.view.renderer is not None
            )
        return self._pictures[row, size]

    def item(self, row: int) -> str:
        """The picture of a retrieved item, as a data URI."""
        return self.embedded(self.picture(row))

    def query(self, row: int) -> str:
        """The picture of a query, as a data URI."""
        return self.embedded(self.picture(row, QUERY))

    def name(self, row: int) -> str:
        """The name of a row."""
        return page_text(self.split.name(row))

    def label(self, row: int) -> str:
        """The label of a row in words; empty if it has none, or if the label space fails, which is noted."""
        try:
            return page_text(self.split.labels.text(row), lines=True)
        except Exception as error:  # as in `draw`
            self.broken.setdefault(row, f"{type(error).__name__}: {error}")
            return ""


#: A page of more bytes is written again with a lower quality of its pictures, down to the last one.
LIMIT, QUALITIES = 2_000_000, (80, 65, 50, 35, 20)


def render(template: str, album: Album, **values: Any) -> bytes:
    """The page; the album encodes its pictures, and knows what could not be drawn.

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
    """A text that HTML can hold, without the folders of absolute paths."""
    return page_text(given, lines=True)


def texts(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows of such texts."""
    return [[text(cell) for cell in row] for row in rows]


def interval_rows(means: Mapping[str, float], intervals: Mapping[str, float]) -> list[list[str]]:
    """Each metric with its 95 % interval, as strings; `intervals`: half the width of each, NaN where it has none."""
    rows = []
    for name, mean in means.items():
        half = intervals.get(name, math.nan)
        interval = "" if math.isnan(half) else f"{score_text(mean - half)} to {score_text(mean + half)}"
        rows.append([title_of(name), score_text(mean), interval])
    return rows
