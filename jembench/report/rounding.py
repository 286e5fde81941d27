"""How many digits of a number are worth showing: two significant ones of its uncertainty."""

from __future__ import annotations

import math

_WITHOUT_UNCERTAINTY = 4  # significant digits
_MOST_DECIMALS = 6


def decimals_for(value: float, uncertainty: float | None) -> int:
    """The decimals that show two significant digits of the uncertainty, or four of the value where none is known."""
    if uncertainty is not None and math.isfinite(uncertainty) and uncertainty > 0:
        return max(0, 1 - math.floor(math.log10(uncertainty)))
    magnitude = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    return max(0, _WITHOUT_UNCERTAINTY - 1 - magnitude)


def fixed(value: float, decimals: int) -> str:
    """``value`` with so many decimals; in scientific notation where that would be a long row of digits."""
    if not math.isfinite(value):
        return "not finite"
    if decimals > _MOST_DECIMALS or abs(value) >= 10**_MOST_DECIMALS:
        return f"{value:.2e}"
    return f"{round(value, decimals) or 0.0:.{decimals}f}"  # no "-0.0"


def plain(value: float) -> str:
    """A published number as it is printed, without digits of ours: 92.9, 300, 0.0001."""
    return f"{value:.10g}" if math.isfinite(value) else "not finite"
