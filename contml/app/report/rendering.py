"""A page from its template: escaped, with pictures of the best quality with which it is small enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contml._support.pages import page_template, page_text
from contml._support.text import score_text
from contml.app.report.pictures import Album
from contml.evaluation.metrics import title_of

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
