"""A page from its template: escaped, with pictures of the best quality with which it is small enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from contml._support.text import page_text
from contml.report.pictures import Album

#: A page of more bytes is written again with a lower quality of its pictures, down to the last one.
LIMIT, QUALITIES = 2_000_000, (80, 65, 50, 35, 20)


def render(template: str, album: Album, **values: Any) -> bytes:
    """The page; the album encodes its pictures, and knows what could not be drawn."""
    # Everything is escaped: titles, file names and configs may hold HTML.
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page_template, page = environment.get_template(template), b""
    broken = [f"{album.name(row)}: {page_text(error)}" for row, error in album.broken.items()]
    for quality in QUALITIES:
        album.quality = quality
        page = page_template.render(**values, album=album, broken=broken).encode()
        if len(page) < LIMIT:
            break
    return page


def text(given: str) -> str:
    """A text that HTML can hold, without the folders of absolute paths."""
    return page_text(given, lines=True)


def texts(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows of such texts."""
    return [[text(cell) for cell in row] for row in rows]
