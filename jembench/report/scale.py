"""Axes for the values of a column, without outliers."""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from jembench.report.rows import Better, Row

_LETTER = 8.0
"""The width of a digit in % of the narrowest column."""

_PREFIXES = {1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k"}

_FAR = 10.0
"""Values farther than this many spreads from the median are outliers."""

_LARGEST = 1e100
"""Values from here on have no place on an axis, whose length may overflow."""


class TickLabel(NamedTuple):
    """The label of a tick."""

    text: str
    middle: float  # in % of the axis


class Scale(NamedTuple):
    """The axis of a column; outliers lie beyond its ends."""

    low: float
    high: float
    ticks: tuple[float, ...]
    better: Better = ""

    def place(self, value: float) -> float:
        """Return a value's position in % of the axis.

        A value beyond the axis is at the nearer end.
        """
        inside = min(max(value, self.low), self.high)
        return round(100 * (inside - self.low) / (self.high - self.low), 2)

    @property
    def labels(self) -> list[TickLabel]:
        """The labels of ticks that have room in a narrow column."""
        labels: list[TickLabel] = []
        taken = -math.inf
        for tick in self.ticks:
            text, place = tick_text(tick), self.place(tick)
            width = len(text) * _LETTER
            # labels near an end stay inside of the column
            start = min(max(place - width / 2, 0.0), 100.0 - width)
            if start >= taken:
                labels.append(TickLabel(text, round(start + width / 2, 2)))
                taken = start + width + _LETTER
        return labels


def tick_text(number: float) -> str:
    """Return a short text of a tick: ``0.25``, ``180k``, ``1.25M``."""
    if 1e4 <= abs(number) < 1e15:
        for factor, prefix in _PREFIXES.items():
            if abs(number) >= factor:
                return f"{number / factor:g}{prefix}"
    return f"{number:g}"


def scale(rows: Sequence[Row]) -> Scale | None:
    """Return an axis for values and intervals, without outliers.

    The spread is the median distance from the median or, if it is larger, the median half-width of
    the intervals.

    Returns:
        None without finite values.
    """
    values = [row.value for row in rows if row.value is not None and abs(row.value) < _LARGEST]
    if not values:
        return None
    ends: list[float] = []
    half_widths: list[float] = []
    for row in rows:
        if row.low is None or row.high is None:
            continue
        if -_LARGEST < row.low <= row.high < _LARGEST:
            ends += (row.low, row.high)
            half_widths.append((row.high - row.low) / 2)

    centre = median(values)
    spread = median(abs(value - centre) for value in values)
    if half_widths:
        spread = max(spread, median(half_widths))
    inside = values
    if spread:
        inside = [value for value in (*values, *ends) if abs(value - centre) <= _FAR * spread]
    margin = 0.06 * (max(inside) - min(inside)) or 0.1 * abs(centre) or 1.0
    low, high = min(inside) - margin, max(inside) + margin
    from matplotlib.ticker import MaxNLocator

    ticks = (float(f"{tick:.6g}") for tick in MaxNLocator(3).tick_values(low, high))
    return Scale(low, high, tuple(tick for tick in ticks if low <= tick <= high), rows[0].better)
