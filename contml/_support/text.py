"""Numbers as short text."""

from __future__ import annotations

import math

#: Printed in place of a missing number.
MISSING = "-"


def number(value: float) -> str:
    """Returns a number with three significant digits: `0.0381`, `12.4`, `1,234`; a dash for NaN and infinities."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")  # 0.9996 -> 1.00, before its digits are counted
    digits = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.2e}" if digits < -4 else f"{value:,.{max(0, 2 - digits)}f}"


def percent(fraction: float) -> str:
    """Returns a fraction as a whole percentage: `73 %`; a dash for NaN and infinities."""
    return f"{100 * fraction + 0.0:.0f} %".replace("-0 %", "0 %") if math.isfinite(fraction) else MISSING
