"""Numbers, durations and options as short text."""

from __future__ import annotations

import inspect
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

#: Categories of characters: control, format, surrogates, separators of lines and paragraphs.
_NOT_SHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Zero width non-joiner and joiner.
_JOINERS = "\u200c\u200d"
#: Printed in place of a missing number.
MISSING = "-"
#: The most decimals of a number with an interval.
_MOST_PLACES = 6


def number(value: float) -> str:
    """Format a number with three significant digits: `0.0381`, `12.4`, `1,234`. NaN and infinities are a dash.

    Below 0.0001, and from 1e15 on, the text has a power of ten: `3.81e-05`.
    """
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")  # 0.9996 -> 1.00, before its digits are counted
    digits = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.2e}" if not -4 <= digits < 15 else f"{value:,.{max(0, 2 - digits)}f}"


def score_text(value: float) -> str:
    """Format a score or an embedding distance as `number` does, but with four decimals below 0.0001: `0.0000`."""
    return number(value) if not abs(value) < 1e-4 or value == 0 else f"{value:.4f}".removeprefix("-")


def value_text(value: float) -> str:
    """Format a number of the data. Whole numbers have all digits, `2012`. Others have at least four significant digits.

    From 10,000 on, the text has thousands separators. Years have none.
    """
    value = float(f"{value:.12g}")  # without the rounding of a change of units
    size = max(abs(value), abs(float(f"{value:.4g}")))  # 9999.6 is 10,000
    if size >= 1e15 or not (size >= 1e4 or value.is_integer()):
        return f"{value:.4g}"
    return f"{value:,.0f}" if size >= 1e4 else f"{value:.0f}"


def interval_texts(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Format a number and the ends of its interval.

    They are rounded to two significant digits of the distance to the nearer end. `412345.678, 310000, 520000` is
    `410,000`, `310,000`, `520,000`. Numbers that have no such digit are written as `value_text` does.
    """
    numbers = value, low, high
    margins = [each for each in (min(value - low, high - value), (high - low) / 2) if 0 < each < math.inf]
    places = 1 - math.floor(math.log10(float(f"{margins[0]:.1e}"))) if margins else math.inf
    if places > _MOST_PLACES or max(map(abs, numbers)) >= 1e15:
        return value_text(value), value_text(low), value_text(high)
    rounded = [round(number, int(places)) + 0.0 for number in numbers]
    separator = "," if max(map(abs, rounded)) >= 1e4 else ""
    first, second, third = (f"{number:{separator}.{max(0, int(places))}f}" for number in rounded)
    return first, second, third


def percent(fraction: float) -> str:
    """Format a fraction as a whole percentage: `73 %`. NaN and infinities are a dash."""
    return f"{100 * fraction + 0.0:.0f} %".replace("-0 %", "0 %") if math.isfinite(fraction) else MISSING


def plain_text(text: str, *, lines: bool = False) -> str:
    """Escape text from data, so that a terminal, a page or a table can show it. All such text is printed this way.

    The function escapes control characters, which a terminal obeys, and line breaks. It escapes marks that reverse the
    direction of the text after them, and lone surrogates, which UTF-8 cannot hold. It keeps the joiners that some
    scripts and emoji need.

    With `lines`, line breaks and tabs are kept.
    """
    if text.isprintable():
        return text
    kept = _JOINERS + "\n\t" if lines else _JOINERS
    hidden = {c for c in text if unicodedata.category(c) in _NOT_SHOWN and c not in kept}
    return "".join(c.encode("unicode_escape").decode("ascii") if c in hidden else c for c in text)


def duration(seconds: float) -> str:
    """Format a duration in the unit that suits it: `40 s`, `2.5 min`, `1.5 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 99.95 * 60 else f"{seconds / 3600:.1f} h"


def options_of(part: object) -> str:
    """Return the constructor arguments that the object keeps as attributes: `margin=0.1, distance='cosine'`."""
    attributes = vars(part)
    names = inspect.signature(type(part)).parameters
    option_names = (name for name in names if isinstance(attributes.get(name), bool | int | float | str))
    return ", ".join(f"{name}={attributes[name]!r}" for name in option_names)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested sections as flat keys: `{"loss.margin": 0.1}`."""
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        flattened |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flattened
