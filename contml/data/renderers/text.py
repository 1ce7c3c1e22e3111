"""The font of drawn text, and shortening of text to a width."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from PIL import ImageFont


@cache
def load_font(points: float, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib: the same on every machine, with most alphabets."""
    return ImageFont.truetype(str(_matplotlib_font(bold)), points)


def font_for(text: str, points: float, bold: bool = False) -> tuple[ImageFont.FreeTypeFont, str]:
    """A font that has the characters of a text, and the text.

    Matplotlib's font has no Chinese, Japanese and Korean: then it is an installed one. If there is none, the text is
    without the words that it cannot write, which would be boxes.
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

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name


@lru_cache(maxsize=256)
def _installed_font(characters: frozenset[str]) -> Path | None:
    """An installed font that has all of these characters; of several, a regular one without serifs."""
    from matplotlib.font_manager import findSystemFonts

    paths = sorted(map(Path, findSystemFonts()), key=lambda p: ("Sans" not in p.name, "Regular" not in p.name, p.name))
    return next((path for path in paths if characters <= _characters(path)), None)


@lru_cache(maxsize=256)
def _characters(path: Path) -> frozenset[str]:
    """The characters of a font; none for a file that is no font, or has no outlines."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(str(path))
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


def shorten(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The text, or its longest beginning that fits into `width`, followed by "…"."""
    if font.getlength(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle] + "…") <= width else (low, middle - 1)
    return text[:low].rstrip() + "…"
