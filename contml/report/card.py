"""`card.png`: the result of a run on one picture, for a link or a slide."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from contml._support.text import page_text, unbroken
from contml.data.decode import contained
from contml.data.renderers.text import font_for, shorten, wrapped
from contml.report.gallery import FRAME, SUBDUED, squared
from contml.report.plots import BLUE, INK

SIZE = (1200, 630)
_LEFT, _GAP, _TILE, _TOP = 48, 12, 132, 186


def card(title: str, headline: str, lines: Sequence[tuple[Image.Image, Sequence[Image.Image], str]]) -> Image.Image:
    """The name of the run, its result in a sentence, and up to three lines: a query, retrieved items, and a text."""
    canvas = Image.new("RGB", SIZE, "white")
    pen = ImageDraw.Draw(canvas)
    room = SIZE[0] - 2 * _LEFT
    pen.rectangle((0, 0, SIZE[0], 10), fill=BLUE)
    font, drawn_text = font_for(page_text(title), 24)
    pen.text((_LEFT, 28), shorten(drawn_text, font, room), fill=SUBDUED, font=font)
    for size in (36, 32, 28, 24):  # the largest with which the sentence fits
        font, drawn_text = font_for(unbroken(page_text(headline)), size, bold=True)
        headline_lines = wrapped(drawn_text, font, room, 2)
        if not headline_lines[-1:] or not headline_lines[-1].endswith("…"):
            break
    for index, text in enumerate(headline_lines):
        pen.text((_LEFT, 72 + 48 * index), text, fill=INK, font=font)
    for index, (query, items, text) in enumerate(lines[:3]):
        left, top = _LEFT, _TOP + index * (_TILE + _GAP)

        def paste(picture: Image.Image, left: int, top: int, line: str, width: int) -> None:
            tile = squared(contained(picture, (_TILE, _TILE), Image.Resampling.LANCZOS), _TILE)
            canvas.paste(tile, (left, top))
            pen.rectangle((left, top, left + _TILE - 1, top + _TILE - 1), outline=line, width=width)

        paste(query, left, top, BLUE, 4)
        left += _TILE + 3 * _GAP
        for item in items:
            if left + _TILE <= SIZE[0] - _LEFT:
                paste(item, left, top, FRAME, 1)
                left += _TILE + _GAP
        font, drawn_text = font_for(page_text(text), 24)
        for number, line in enumerate(wrapped(drawn_text, font, SIZE[0] - _LEFT - left, 4)):
            pen.text((left, top + 6 + 32 * number), line, fill=INK, font=font)
    return canvas
