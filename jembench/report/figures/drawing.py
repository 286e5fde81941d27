"""How figures are drawn and written: sizes, colours, lines, panels, histograms, and the numbers behind each figure.

The colours are those of Okabe & Ito (2008), "Color Universal Design", which people with any kind of colour vision tell
apart. Line styles, markers and hatches repeat what colours say, for print in grey.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.report.formats import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["png", "svg"]
Numbers = NDArray[np.float64]


class Drawing(NamedTuple):
    """A figure, and a line of its CSV for each number that it shows; all lines have the same fields."""

    figure: Figure
    rows: Sequence[Mapping[str, Any]]


class Planned(NamedTuple):
    """A figure that can be drawn."""

    stem: str  # of its files' names
    draw: Callable[[], Drawing]


def render(planned: Planned, formats: Sequence[Format]) -> dict[str, bytes]:
    """Draw a figure: the contents of its files by their names, a picture in each format and the CSV.

    The same numbers give the same bytes: no file says when it was made.
    """
    with styled():
        figure, rows = planned.draw()
        files = {f"{planned.stem}.{format}": _picture(figure, format) for format in formats}
    return {**files, f"{planned.stem}.csv": csv_text(list(rows[0]), rows).encode()}


def _picture(figure: Figure, format: Format) -> bytes:
    stream = io.BytesIO()
    metadata = {"Software": "jembench"} if format == "png" else {"Date": None, "Creator": "jembench"}
    figure.savefig(stream, format=format, metadata=metadata)
    return stream.getvalue()


def rows_of(columns: Mapping[str, NDArray[Any] | Sequence[Any]], **shared: Any) -> list[dict[str, Any]]:
    """The lines of a CSV: the shared fields, then one entry of each column."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    return [{**shared, **dict(zip(columns, line, strict=True))} for line in zip(*lists, strict=True)]


# --- style ------------------------------------------------------------------------------------------------------------

COLUMN, PAGE = 3.3, 6.9
"""Widths in inches: of a column and of a page of a paper in two columns."""

_UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}


def inches(width: str) -> float:
    """The width that ``column``, ``page`` or a length such as ``5.5in`` means.

    Raises:
        SpecError: if it is none of these, or not between 1 and 20 inches.
    """
    if width in ("column", "page"):
        return COLUMN if width == "column" else PAGE
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,4})?)(in|cm|mm|pt)", width)
    if not found or not 1 <= (length := float(found[1]) * _UNITS[found[2]]) <= 20:
        raise SpecError(
            f"width is {width!r}; it must be column, page or a length from 1in to 20in: 5.5in, 12cm, 345pt."
        )
    return length


BLACK, WHITE = "#000000", "#ffffff"
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, YELLOW = "#e69f00", "#56b4e9", "#f0e442"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""In the order in which series take them; yellow is too light for a line on white."""

_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")  # one more than colours: series 8 is no second series 1
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")

_LETTERS = 14  # in an inch
_LINE = 0.13  # inches from one line of text to the next

HAIR = 0.5
"""The width of auxiliary lines, in points."""

_SETTINGS = Path(__file__).with_name("figures.mplstyle")


class Look(NamedTuple):
    """How one series looks, by colour and without it."""

    colour: str
    line: Any
    marker: str
    hatch: str


def look(index: int) -> Look:
    """The look of the series of that number."""
    return Look(
        COLOURS[index % len(COLOURS)],
        _LINES[index % len(_LINES)],
        _MARKERS[index % len(_MARKERS)],
        _HATCHES[index % len(_HATCHES)],
    )


def line(index: int) -> dict[str, Any]:
    """The look of a series of points and lines, as options of ``Axes.plot``."""
    colour, style, marker, _ = look(index)
    return {"color": colour, "linestyle": style, "marker": marker}


@contextmanager
def styled() -> Iterator[None]:
    """Within it, figures are made and saved in our style, whatever the user's own settings are."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(_SETTINGS, use_default_template=False)
        matplotlib.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
        yield


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure, in inches, with its title at the top left."""
    from matplotlib.figure import Figure

    title = "\n".join(wrapped(line, width) for line in title.splitlines())
    figure = Figure(figsize=(width, height + _LINE * title.count("\n")), layout="constrained")
    figure.suptitle(title, x=0.01, horizontalalignment="left")
    return figure


def wrapped(text: str, width: float) -> str:
    """A text in lines of at most ``width`` inches."""
    return textwrap.fill(text, int(width * _LETTERS), break_on_hyphens=False)


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """The legend of all that is in the axes, below the figure, in as many columns as fit and are wanted."""
    handles, labels = axes.get_legend_handles_labels()
    longest_first = sorted((max(map(len, label.splitlines())) + 8 for label in labels), reverse=True)
    room = figure.get_figwidth() * _LETTERS * 8 / 7
    fitting = [count for count in range(1, columns + 1) if sum(longest_first[:count]) <= room]
    figure.legend(handles, labels, loc="outside lower center", ncols=max(fitting, default=1))


def panels(
    width: float, height: float, title: str, count: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A new figure with ``count`` axes in rows of ``columns``; the last row may be shorter.

    Args:
        width: in inches, as ``height``.
        height: without what a title of several lines needs.
        title: at the top left.
        count: of axes.
        columns: axes in a row.
        options: of ``Figure.subplots``.
    """
    figure = new_figure(width, height, title)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **options).ravel()
    for unused in grid[count:]:
        unused.set_axis_off()
    for lowest in grid[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)  # axes that are shared have them in the last row alone
    return figure, list(grid[:count])


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
        colour, _, _, hatch = look(series)
        counts = counts_in(edges, sample)
        density = counts / (counts.sum() * np.diff(edges))
        axes.stairs(density, edges, fill=True, facecolor=colour, alpha=0.3, linewidth=0)
        axes.stairs(density, edges, fill=False, edgecolor=colour, linewidth=1.0, hatch=hatch, label=label)
        rows += histogram_rows(edges, counts, **of, images=label)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(bottom=0)
    return rows
