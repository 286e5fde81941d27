"""The style of figures: sizes, colours, lines, panels and file formats.

People with any kind of colour vision can distinguish the colours (Okabe & Ito, 2008, "Color
Universal Design"). Line styles, markers and hatches distinguish series in grey print.
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
"""The metadata of files, without a date, so that the same figure gives the same bytes."""


def encoded(figure: Figure, format: Format) -> bytes:
    """Return the content of a figure's file in a format."""
    stream = io.BytesIO()
    figure.savefig(stream, format=format, metadata=_METADATA[format])
    return stream.getvalue()


# --- style ----------------------------------------------------------------------------------------

COLUMN, PAGE = 229 / 72.27, 469 / 72.27
"""A column's and a page's width in inches, in LaTeX's two-column ``article`` on letter paper."""

_UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}


def inches(width: str) -> float:
    """Convert ``column``, ``page`` or a length such as ``5.5in`` to inches.

    Raises:
        SpecError: if the text has another form, or is not between 1 and 20 inches.
    """
    if width in ("column", "page"):
        return COLUMN if width == "column" else PAGE
    match = re.fullmatch(r"(\d{1,4}(?:\.\d{1,4})?)(in|cm|mm|pt)", width)
    if not match or not 1 <= (length := float(match[1]) * _UNITS[match[2]]) <= 20:
        raise SpecError(
            f"width is {width!r}; it must be column, page or a length from 1in to 20in: 5.5in, "
            "12cm, 345pt."
        )
    return length


BLACK, WHITE, GREY = "#000000", "#ffffff", "#7f7f7f"
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, YELLOW = "#e69f00", "#56b4e9", "#f0e442"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""The colours of series in order; yellow is too light for a line on white."""

_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
# one more marker than colours, so that series 8 differs from series 1
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")

_LETTERS = 14  # of a text, per inch
_LINE = 0.13  # height of a line of text in inches
_PANEL = 1.5  # smallest width of a panel in inches
_GAP = 0.2  # between the titles of neighbouring panels, in inches
# inches: the width left of a legend's text, the height reserved for a legend
_HANDLE, _LEGEND = 0.6, 0.4

HAIR = 0.5
"""The width of auxiliary lines, in points."""

_SETTINGS = Path(__file__).with_name("drawing.mplstyle")


class Look(NamedTuple):
    """A series' colour, with its line, marker and hatch for grey print."""

    colour: str
    line: Any
    marker: str
    hatch: str


def look(index: int) -> Look:
    """Return the look of series number ``index``."""
    return Look(
        COLOURS[index % len(COLOURS)],
        _LINES[index % len(_LINES)],
        _MARKERS[index % len(_MARKERS)],
        _HATCHES[index % len(_HATCHES)],
    )


def line(index: int, colour: str = "") -> dict[str, Any]:
    """Return a series' look as options of ``Axes.plot``.

    Args:
        index: the number of the series in its figure.
        colour: its model's colour in all figures; "": the colour of ``index``.
    """
    of_number, style, marker, _ = look(index)
    return {"color": colour or of_number, "linestyle": style, "marker": marker}


class Style(NamedTuple):
    """The options of all figures."""

    width: float | None = None  # inches; None: the width of a column or a page, by figure
    titles: bool = True


PLAIN = Style()
_chosen: ContextVar[Style] = ContextVar("_chosen", default=PLAIN)


def column() -> float:
    """Return the chosen width, else a column's, in inches."""
    return _chosen.get().width or COLUMN


def page() -> float:
    """Return the chosen width, else a page's, in inches."""
    return _chosen.get().width or PAGE


def fitting(columns: int) -> int:
    """Return how many panels, at most ``columns``, fit in the chosen width."""
    width = _chosen.get().width
    return columns if width is None else max(1, min(columns, int(width / _PANEL)))


@contextmanager
def styled(style: Style = PLAIN) -> Iterator[None]:
    """Use ``style`` for figures in the context.

    The user's own settings of matplotlib are ignored.
    """
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


def wrapped(text: str, width: float) -> str:
    """Wrap a text in lines of at most ``width`` inches."""
    return textwrap.fill(text, int(width * _LETTERS), break_on_hyphens=False)


def beside(label: str) -> str:
    """Wrap a vertical axis' label to the height of a row."""
    return wrapped(label, 1.5)


def above(title: str, columns: int) -> str:
    """Wrap the lines of a panel's title.

    A row has at most ``columns`` panels, as in :func:`panels`.
    """
    width = page() if columns > 1 else column()
    room = width / fitting(columns) - _GAP
    return "\n".join(wrapped(text, room) for text in title.splitlines())


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """Add the axes' legend below the figure, which grows accordingly.

    The legend has at most ``columns`` columns, fewer if they do not fit.
    """
    handles, labels = axes.get_legend_handles_labels()
    labels = [wrapped(label, figure.get_figwidth() - _HANDLE) for label in labels]
    longest_first = sorted(
        (max(map(len, label.splitlines())) + 8 for label in labels), reverse=True
    )
    room = figure.get_figwidth() * _LETTERS
    fitting = [count for count in range(1, columns + 1) if sum(longest_first[:count]) <= room]
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=max(fitting, default=1)
    )
    height = legend.get_window_extent().height / figure.dpi
    figure.set_figheight(figure.get_figheight() + max(0, height - _LEGEND))


def panels(
    title: str,
    height: float,
    count: int = 1,
    columns: int = 1,
    *,
    width: float | None = None,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Make a figure with ``count`` axes in rows of ``columns``; the last row may be shorter.

    Args:
        title: shown at the top left; also the figure's label.
        height: of the figure, in inches, with a title of one line.
        count: the number of axes.
        columns: the number of axes in a row.
        width: in inches; by default a page's for several columns of axes, a column's for one.
        options: passed on to ``Figure.subplots``.
    """
    from matplotlib.figure import Figure

    chosen, wanted = _chosen.get(), -(-count // columns)
    width = chosen.width or width or (page() if columns > 1 else column())
    columns = fitting(columns)
    rows = -(-count // columns)
    shown = "\n".join(wrapped(line, width) for line in title.splitlines()) if chosen.titles else ""
    size = (width, height / wanted * rows + _LINE * shown.count("\n"))
    figure = Figure(figsize=size, layout="constrained")
    figure.set_label(title)
    if shown:
        figure.suptitle(shown, x=0.01, horizontalalignment="left")
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for unused in grid[count:]:
        unused.set_axis_off()
    for lowest in grid[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)  # shared axes have labels in the last row only
    return figure, list(grid[:count])
