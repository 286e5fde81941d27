"""A figure with its numbers: what is drawn, the lines of its CSV, histograms and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.drawing import PLAIN, Format, Style
from jembench.interfaces import Value
from jembench.report.formats import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]


class Drawing(NamedTuple):
    """A figure, and a line of its CSV for each number that it shows; all lines have the same fields."""

    figure: Figure
    rows: Sequence[Mapping[str, Any]]


class Planned(NamedTuple):
    """A figure that can be drawn."""

    stem: str  # of its files' names
    draw: Callable[[], Drawing]


def render(planned: Planned, formats: Sequence[Format], style: Style = PLAIN) -> dict[str, bytes]:
    """Draw a figure: the contents of its files by their names, a picture in each format and the CSV.

    The same numbers give the same bytes: no file says when it was made.
    """
    with drawing.styled(style):
        figure, rows = planned.draw()
        files = {f"{planned.stem}.{format}": drawing.encoded(figure, format) for format in formats}
    return {**files, f"{planned.stem}.csv": csv_text(list(rows[0]), rows).encode()}


def rows_of(columns: Mapping[str, NDArray[Any] | Sequence[Any]], **shared: Any) -> list[dict[str, Any]]:
    """The lines of a CSV: the shared fields, then one entry of each column."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    return [{**shared, **dict(zip(columns, line, strict=True))} for line in zip(*lists, strict=True)]


# --- intervals --------------------------------------------------------------------------------------------------------


def error_bars(values: Sequence[Value]) -> list[list[float]]:
    """The distances from values down and up to the ends of their intervals; none where there is no interval."""
    down = [math.nan if value.low is None else value.value - value.low for value in values]
    up = [math.nan if value.high is None else value.high - value.value for value in values]
    return [down, up]


def with_interval(value: Value, decimals: int, unit: str = "") -> str:
    """``1.43 % [0.98, 2.71]``, or the value alone if its interval is not known."""
    text = f"{value.value:.{decimals}f}{unit}"
    if value.low is None or value.high is None:
        return text
    return f"{text} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"


# --- histograms -------------------------------------------------------------------------------------------------------

BINS = 40
_TAIL = 0.5  # % at either end of each sample that the first and the last bin take in, however far away it is


def edges_of(*samples: Numbers) -> Numbers:
    """The edges of the bins that samples share."""
    ends = [np.percentile(sample, [_TAIL, 100 - _TAIL]) for sample in samples]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    margin = 0.02 * (high - low) or 0.5  # one value alone has bins around it
    return np.linspace(low - margin, high + margin, BINS + 1)


def counts_in(edges: Numbers, sample: Numbers) -> NDArray[np.int64]:
    """How many are in each bin; those beyond the edges are in the first and the last."""
    counts: NDArray[np.int64] = np.histogram(np.clip(sample, edges[0], edges[-1]), edges)[0]
    return counts


def histogram_rows(edges: Numbers, counts: NDArray[np.int64], **of: Any) -> list[dict[str, Any]]:
    """The lines of a CSV: what the histogram is of, and each bin."""
    return rows_of({"bin_low": edges[:-1], "bin_high": edges[1:], "count": counts}, **of)


def histograms(axes: Axes, samples: Mapping[str, Numbers], **of: Any) -> list[dict[str, Any]]:
    """Draw histograms over one another, as densities: areas are compared, not heights. Returns the lines of their CSV.

    Args:
        axes: to draw in.
        samples: of any sizes, by their labels.
        of: fields of the CSV that they share.
    """
    edges, rows = edges_of(*samples.values()), []
    for series, (label, sample) in enumerate(samples.items()):
        colour, _, _, hatch = drawing.look(series)
        counts = counts_in(edges, sample)
        density = counts / (counts.sum() * np.diff(edges))
        axes.stairs(density, edges, fill=True, facecolor=colour, alpha=0.3, linewidth=0)
        axes.stairs(density, edges, fill=False, edgecolor=colour, linewidth=1.0, hatch=hatch, label=label)
        rows += histogram_rows(edges, counts, **of, images=label)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(bottom=0)
    return rows
