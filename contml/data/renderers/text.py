"""Text below a picture, the font of drawn text, and texts that fit a width."""

from __future__ import annotations

import colorsys
import textwrap
from bisect import bisect_right
from functools import cache, lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from contml._support.pages import page_text
from contml.data.decode import contained

#: In smaller pictures text is not readable, so it is omitted.
READABLE = 120
_PAPER, _INK = "#f4f3ef", "#222222"
#: A name in place of a picture: side of the picture and size of its font in pixels, characters of a line, lines.
_NAME_SIDE, _NAME_POINTS, _NAME_COLUMNS, _NAME_LINES = 256, 28, 14, 6
#: The largest share of the height for text.
_TEXT_SHARE = 0.42


def draw_words(picture: Image.Image, text: str, size: int, colour: tuple[int, int, int] | None = None) -> Image.Image:
    """Draw a picture with the lines of a text below, `size` pixels square, in a frame if `colour` is given.

    A line of text that needs more than two lines of the picture is cut. Lines without room are cut too.
    """
    canvas = picture.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    texts = text.split("\n") if text and size >= READABLE else []
    if texts:
        font_size = round(9 + 0.03 * size)
        line_height, margin = round(1.3 * font_size), round(0.6 * font_size)
        font, _ = font_for("".join(texts), font_size)
        max_lines, lines = int(_TEXT_SHARE * size) // line_height, list[str]()
        for each in texts:
            printable = " ".join(font_for(each, font_size)[1].split())
            lines += wrapped(printable, font, size - 2 * margin, 2 if len(texts) <= max_lines else 1)
        lines = lines[:max_lines]
        height = size - len(lines) * line_height - margin
        canvas = Image.new("RGB", (size, size), _PAPER)
        fitted = contained(picture, (size, height), Image.Resampling.BICUBIC)
        canvas.paste(fitted, ((size - fitted.width) // 2, (height - fitted.height) // 2))
        pen = ImageDraw.Draw(canvas)
        for index, line in enumerate(lines):
            pen.text((margin, height + margin // 2 + index * line_height), line, fill=_INK, font=font)
    if colour is not None:
        ImageDraw.Draw(canvas).rectangle((0, 0, size - 1, size - 1), outline=colour, width=max(2, size // 56))
    return canvas


def name_picture(name: str) -> Image.Image:
    """Draw the end of a name in place of a picture, 256 pixels square."""
    parts = page_text(name).replace("/", "/\n").split("\n")
    lines = [line for part in parts for line in textwrap.wrap(part, _NAME_COLUMNS)][-_NAME_LINES:]
    canvas = Image.new("RGB", (_NAME_SIDE, _NAME_SIDE), "#e4e4e0")
    font, text = font_for("\n".join(lines), _NAME_POINTS)
    middle = _NAME_SIDE // 2
    ImageDraw.Draw(canvas).multiline_text((middle, middle), text, fill=_INK, font=font, anchor="mm", align="center")
    return canvas


def class_colour(number: int) -> tuple[int, int, int]:
    """Return a colour for a class. Classes with similar numbers get different colours."""
    # Golden-ratio steps give each number a hue far from the hues of the previous numbers.
    red, green, blue = colorsys.hsv_to_rgb(0.618034 * number % 1, 0.85 - 0.3 * (number % 2), 0.95 - 0.25 * (number % 3))
    return round(255 * red), round(255 * green), round(255 * blue)


@cache
def load_font(points: float, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the font that comes with matplotlib. It is the same on every machine, and has most alphabets."""
    return ImageFont.truetype(str(_matplotlib_font(bold)), points)


def font_for(text: str, points: float, bold: bool = False) -> tuple[ImageFont.FreeTypeFont, str]:
    """Return a font that has the characters of a text, and the text.

    Matplotlib's font has no Chinese, Japanese and Korean, so an installed font is used for them. If no installed font
    has them, words that the font cannot write are left out, since they would be boxes.
    """
    characters = frozenset(character for character in text if not character.isspace())
    missing = characters - _characters(_matplotlib_font(bold))
    if not missing:
        return load_font(points, bold), text
    path = _installed_font(characters)
    if path is not None:
        return ImageFont.truetype(str(path), points), text
    return load_font(points, bold), " ".join(word for word in text.split(" ") if missing.isdisjoint(word))


def _matplotlib_font(bold: bool) -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")


@lru_cache(maxsize=256)
def _installed_font(characters: frozenset[str]) -> Path | None:
    """Return an installed font that has all of these characters. Of several, prefer a regular font without serifs."""
    from matplotlib.font_manager import findSystemFonts

    paths = sorted(map(Path, findSystemFonts()), key=lambda p: ("Sans" not in p.name, "Regular" not in p.name, p.name))
    return next((path for path in paths if characters <= _characters(path)), None)


@lru_cache(maxsize=256)
def _characters(path: Path) -> frozenset[str]:
    """Return the characters of a font. Return none for a file that is not a font, or has no outlines."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(str(path))
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


def shorten(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """Return the text, or its longest beginning that fits into `width`, followed by "…"."""
    if font.getlength(text) <= width:
        return text
    count = bisect_right(range(1, len(text) + 1), width, key=lambda n: font.getlength(text[:n] + "…"))
    return text[:count].rstrip() + "…"


def wrapped(text: str, font: ImageFont.FreeTypeFont, width: float, max_lines: int) -> list[str]:
    """Break the text between words into at most `max_lines` lines. Text that does not fit is cut, and ends in "…"."""
    lines: list[str] = []
    words = text.split(" ")
    while words and len(lines) < max_lines:
        count = 1
        while count < len(words) and font.getlength(" ".join(words[: count + 1])) <= width:
            count += 1
        is_last = len(lines) == max_lines - 1 and count < len(words)
        lines.append(shorten(" ".join(words if is_last else words[:count]), font, width))
        words = words[count:]
    return lines
