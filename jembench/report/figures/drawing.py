"""A figure with the numbers behind it, and how both are written."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jembench.report.figures.style import styled
from jembench.report.formats import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["png", "svg"]


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
