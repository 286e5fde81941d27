"""The pictures of a page, as data URIs: figures, sample grids and energies of trainings."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jembench.errors import error_text, printable
from jembench.files import read_bytes
from jembench.report.rows import grouped
from jembench.report.select import NO_NAMES, Names
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.report.figures.base import Planned

LARGEST = 2**20
"""Bytes of a sample grid above which it is left out: the page is to be sent around."""


class Picture(NamedTuple):
    """A picture with its title."""

    title: str
    image: str  # a data URI, which a browser shows without scripts and requests
    width: int  # pixels
    notes: tuple[str, ...] = ()  # numbered as in the picture
    name: str = ""  # of a figure, as of its files


class Pictures:
    """Draws and reads the pictures of a store's results.

    Attributes:
        left_out: a sentence for each that cannot be drawn.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.left_out: dict[str, None] = {}

    def drawn(self, planned: Iterable[Planned]) -> list[Picture]:
        """Draw planned figures."""
        found = []
        for one in planned:
            try:
                found.append(draw(one))
            except Exception as error:  # of a plugin
                self.note(f"The figure {one.stem} cannot be drawn: {error_text(error)}")
        return found

    def of_samples(self, cells: Sequence[Cell], names: Names = NO_NAMES) -> list[Picture]:
        """Return the sample grid of each model, of its first seed that has one."""
        from jembench.report.figures.base import title_of

        found = []
        for group in grouped(cells, lambda cell: cell.fit.names):
            for fit in {cell.fit.id: cell.fit for cell in sorted(group, key=lambda cell: cell.fit.seed)}.values():
                if grid := self._samples(fit):
                    found.append(Picture(title_of(fit, names), _data_uri("png", grid), int.from_bytes(grid[16:20])))
                    break
        return found

    def _samples(self, fit: FitKey) -> bytes:
        path = self.store.fit_folder(fit) / "samples.png"
        try:
            content = read_bytes(path, LARGEST)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.note(f"{path.name} of {fit}: {error.strerror}.")
            return b""
        return content if content.startswith(b"\x89PNG\r\n\x1a\n") else b""

    def note(self, problem: str) -> None:
        """Add a sentence about something that cannot be read or drawn."""
        self.left_out[printable(problem)] = None


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


_PIXELS = 110  # of a page, for an inch of a figure


def draw(planned: Planned) -> Picture:
    """Draw a planned figure as SVG, with its title apart from it."""
    from jembench import drawing

    with drawing.styled(drawing.Style(titles=False)):
        figure, _ = planned.draw()
        image = _data_uri("svg+xml", drawing.encoded(figure, "svg"))
    return Picture(
        str(figure.get_label()) or planned.stem, image, round(figure.get_figwidth() * _PIXELS), name=planned.stem
    )
