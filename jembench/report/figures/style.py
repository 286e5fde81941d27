"""The one style of all figures: sizes, colours, lines and the settings of matplotlib.

The colours are those of Okabe & Ito (2008), "Color Universal Design", which people with any kind of colour vision tell
apart. Line styles, markers and hatches repeat what colours say, for print in grey.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench.interfaces import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 6.9
"""Widths in inches: of a column and of a page of a paper in two columns."""

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

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "figure.titlesize": 8,
    "figure.labelsize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "text.parse_math": False,  # a $ in a name is a $
    "savefig.dpi": 200,
    "svg.hashsalt": "jembench",  # the same figure gives the same bytes
    "svg.fonttype": "path",
}


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


@contextmanager
def styled() -> Iterator[None]:
    """Within it, figures are made and saved in our style, whatever the user's own settings are."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
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


def panels(figure: Figure, count: int, columns: int, **options: Any) -> list[Axes]:
    """``count`` axes in rows of ``columns``; the last row may be shorter."""
    rows = -(-count // columns)
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for unused in grid[count:]:
        unused.set_axis_off()
    for lowest in grid[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)  # axes that are shared have them in the last row alone
    return list(grid[:count])


def error_bars(values: Sequence[Value]) -> list[list[float]]:
    """The distances from values down and up to the ends of their intervals; none where there is no interval."""
    down = [math.nan if value.low is None else value.value - value.low for value in values]
    up = [math.nan if value.high is None else value.high - value.value for value in values]
    return [down, up]
