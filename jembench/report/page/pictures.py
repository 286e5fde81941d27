"""The pictures of a page, as data URIs: figures, sample grids and energies of trainings."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jembench import drawing
from jembench.errors import error_text, printable
from jembench.experiment.names import NO_NAMES, Names
from jembench.files import read_bytes
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jembench.report.figures.base import Planned

LARGEST = 2**20
"""Bytes of a sample grid above which it is left out: the page is to be sent around."""


_PIXELS = 110  # of a page, for an inch of a figure


class Picture(NamedTuple):
    """A picture with its title."""

    title: str
    image: str  # a data URI, which a browser shows without scripts and requests
    width: int  # pixels
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
        """Draw planned figures as SVG, with their titles apart from them."""
        found = []
        for one in planned:
            try:
                with drawing.styled(drawing.Style(titles=False)):
                    figure, _ = one.draw()
                    image = data_uri("image/svg+xml", drawing.encoded(figure, "svg"))
            except Exception as error:  # of a plugin
                self.note(f"The figure {one.stem} cannot be drawn: {error_text(error)}")
            else:
                title, width = str(figure.get_label()) or one.stem, round(figure.get_figwidth() * _PIXELS)
                found.append(Picture(title, image, width, name=one.stem))
        return found

    def of_samples(self, cells: Sequence[Cell], names: Names = NO_NAMES) -> list[Picture]:
        """Return the sample grid of each model, of its first seed that has one."""
        from jembench.report.figures.base import title_of

        found: dict[tuple[str, str, str], Picture | None] = {cell.fit.names: None for cell in cells}
        for fit in sorted({cell.fit.id: cell.fit for cell in cells}.values(), key=lambda fit: fit.seed):
            path = self.store.fit_folder(fit) / "samples.png"
            try:
                grid = b"" if found[fit.names] else read_bytes(path, LARGEST)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.note(f"{path.name} of {fit}: {error.strerror}.")
                continue
            if grid.startswith(b"\x89PNG\r\n\x1a\n"):
                width = int.from_bytes(grid[16:20])
                found[fit.names] = Picture(title_of(fit, names), data_uri("image/png", grid), width)
        return [picture for picture in found.values() if picture]

    def note(self, problem: str) -> None:
        """Add a sentence about something that cannot be read or drawn."""
        self.left_out[printable(problem)] = None


def png(pixels: NDArray[np.uint8], side: int) -> str:
    """Return an image (H, W, 3) as a data URI, reduced by a whole factor to less than twice ``side`` pixels."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).reduce(max(1, min(pixels.shape[:2]) // side)).save(stream, format="PNG")
    return data_uri("image/png", stream.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    """Return the address that holds a file of a media type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
