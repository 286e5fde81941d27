"""How figures are drawn and written: sizes, colours, lines, panels and file formats.

The colours are those of Okabe & Ito (2008), "Color Universal Design", which people with any kind of colour vision tell
apart. Line styles, markers and hatches repeat what colours say, for print in grey.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jembench.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["png", "svg", "pdf"]


_METADATA: dict[Format, dict[str, str | None]] = {
    "png": {"Software": "jembench"},
    "svg": {"Date": None, "Creator": "jembench"},
    "pdf": {"CreationDate": None, "Creator": "jembench"},
}
"""What a file says of its origin. The same figure gives the same bytes: no date is in it."""


def encoded(figure: Figure, format: Format) -> bytes:
    """The content of a file."""
    stream = io.BytesIO()
    figure.savefig(stream, format=format, metadata=_METADATA[format])
    return stream.getvalue()


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
_PANEL = 1.5  # inches that a panel needs at least

HAIR = 0.5
"""The width of auxiliary lines, in points."""

_SETTINGS = Path(__file__).with_name("drawing.mplstyle")


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


class Style(NamedTuple):
    """What may be chosen of all figures."""

    width: float | None = None  # inches; None: as wide as each is by itself, a column or a page
    titles: bool = True


PLAIN = Style()
_chosen: ContextVar[Style] = ContextVar("_chosen", default=PLAIN)


def column() -> float:
    """The width of a figure that is as wide as a column, unless another width was chosen."""
    return _chosen.get().width or COLUMN


def page() -> float:
    """The same of one that is as wide as a page."""
    return _chosen.get().width or PAGE


def fitting(columns: int) -> int:
    """Return how many panels stand side by side where ``columns`` do on a page."""
    width = _chosen.get().width
    return columns if width is None else max(1, min(columns, int(width / _PANEL)))


@contextmanager
def styled(style: Style = PLAIN) -> Iterator[None]:
    """Within it, figures are made and saved in our style, whatever the user's own settings are."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(_SETTINGS, use_default_template=False)
        matplotlib.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
        token = _chosen.set(style)
        try:
            yield
        finally:
            _chosen.reset(token)


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure, in inches, with its title at the top left, and as its label."""
    from matplotlib.figure import Figure

    chosen = _chosen.get()
    width = chosen.width or width
    shown = "\n".join(wrapped(line, width) for line in title.splitlines()) if chosen.titles else ""
    figure = Figure(figsize=(width, height + _LINE * shown.count("\n")), layout="constrained")
    figure.set_label(title)
    if shown:
        figure.suptitle(shown, x=0.01, horizontalalignment="left")
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
    rows, columns = -(-count // columns), fitting(columns)
    figure = new_figure(width, height / rows * -(-count // columns), title)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **options).ravel()
    for unused in grid[count:]:
        unused.set_axis_off()
    for lowest in grid[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)  # axes that are shared have them in the last row alone
    return figure, list(grid[:count])
