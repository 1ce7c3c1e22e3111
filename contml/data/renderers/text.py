"""The font of drawn text, and shortening of text to a width."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from PIL import ImageFont


@cache
def load_font(points: float, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib: the same on every machine, with most alphabets."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), points)


def shorten(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The text, or its longest beginning that fits into `width`, followed by "…"."""
    if font.getlength(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle] + "…") <= width else (low, middle - 1)
    return text[:low].rstrip() + "…"
