"""The pictures of a page, as data URIs: figures, sample grids and energies of trainings."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jembench import drawing
from jembench.catalog import registry, trust
from jembench.errors import CheckpointError, error_text, printable
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report.headings import in_words
from jembench.report.protocols import parts_of, source_in_words
from jembench.report.rows import grouped
from jembench.store import pictures as sealed
from jembench.store import tensors
from jembench.store.fits import weights_digest
from jembench.store.layout import FRESH_SAMPLES, drawn_name
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jembench.report.figures.base import Planned

LARGEST = 2**20
"""The most bytes of a sample grid; larger grids are left out, so that pages can be sent."""


_SCORES = ("fid", "is", "kid")
"""The metrics whose samples are preferred."""

_OWN = ("buffer", "direct")
"""The sources of samples that a fit's own grid shows."""

_PIXELS = 110  # of a page, for an inch of a figure


class Picture(NamedTuple):
    """A picture with its title."""

    title: str
    image: str  # a data URI, which a browser shows without scripts and requests
    width: int = 0  # pixels, of a figure
    name: str = ""  # of a figure: the stem of its files
    source: str = ""  # of samples, and the metric that measured them


class Pictures:
    """Pictures of a store's results, drawn or read from files.

    Attributes:
        left_out: a sentence for each picture that cannot be drawn.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.left_out: dict[str, None] = {}

    def drawn(self, planned: Iterable[Planned]) -> list[Picture]:
        """Draw planned figures as SVG, with their titles apart."""
        pictures = []
        for figure in planned:
            try:
                pictures.append(_drawn(figure))
            except Exception as error:  # from a plugin
                self.note(f"The figure {figure.stem} cannot be drawn: {error_text(error)}")
        return pictures

    def of_samples(self, cells: Sequence[Cell], names: DisplayNames = NO_NAMES) -> Picture | None:
        """Return the samples of a model, of its first seed that has some.

        The samples are those that a metric measured, or the model's own.

        Args:
            cells: of one model.
            names: display names by canonical specs and recipes.
        """
        from jembench.report.figures.base import title_of

        in_order = sorted(cells, key=lambda cell: cell.fit.seed)
        for of_fit in grouped(in_order, lambda cell: cell.fit):
            image, source = self._measured(of_fit)
            if not image:
                image, source = self._own(of_fit[0]), "the model's own samples"
            if image:
                return Picture(title_of(of_fit[0].fit, names), image, source=source)
        return None

    def _measured(self, cells: Sequence[Cell]) -> tuple[str, str]:
        """Return the samples of a fit that a metric measured, and their source; "" twice: none."""
        on_samples = [cell for cell in cells if _source(cell)]
        if not on_samples:
            return "", ""
        # the first of the preferred metrics, else of all
        cell = min(on_samples, key=lambda cell: cell.metric.bare not in _SCORES)
        image = self._own(cell) if _source(cell) in _OWN else self._new_chains(cell)
        metric = in_words(cell.metric.bare)
        return image, f"{source_in_words(_source(cell))}, measured for {metric}"

    def _own(self, cell: Cell) -> str:
        """Return the sample grid of a fit as a data URI; "" if it has none."""
        path = self.store.fit_folder(cell.fit) / sealed.SAMPLES
        if not path.exists():
            return ""
        try:
            return data_uri("image/png", sealed.check(path, LARGEST))
        except OSError as error:
            self.note(f"{path.name} of {cell.fit}: {error.strerror}.")
        except CheckpointError as error:
            self.note(str(error))
        return ""

    def _new_chains(self, cell: Cell) -> str:
        """Return a grid of the new chains that a metric measured, as a data URI.

        The URI is "" if the chains are not stored.
        """
        options = cell.metric.options
        sampler = None
        try:
            count = int(options.get("images", FRESH_SAMPLES))
            steps = int(parts_of(_source(cell)).get("steps", "0"))
            if "sampler" in options:
                trust.refuse_code([options["sampler"]], "A result of the store")
                sampler = registry.resolve("samplers", options["sampler"])
            weights = weights_digest(self.store.fit_folder(cell.fit))
            folder = self.store.readings_of(cell.fit.id, weights)
            for conditional in (False, True):
                name = drawn_name(count, steps, conditional, sampler)
                path = folder / f"{name}.safetensors"
                if path.exists():
                    return _grid_of(path)
        except Exception as error:  # of a plugin's sampler, or of a file that another version wrote
            self.note(f"The samples that {cell.metric} of {cell.fit} measured: {error_text(error)}")
        return ""

    def note(self, problem: str) -> None:
        """Add a sentence about something that cannot be read or drawn."""
        self.left_out[printable(problem)] = None


def _drawn(planned: Planned) -> Picture:
    """Draw a planned figure as SVG."""
    with drawing.styled(drawing.Style(titles=False)):
        figure, _ = planned.draw()
        image = data_uri("image/svg+xml", drawing.encoded(figure, "svg"))
    title = str(figure.get_label()) or planned.stem
    width = round(figure.get_figwidth() * _PIXELS)
    return Picture(title, image, width, name=planned.stem)


def _grid_of(path: Path) -> str:
    """Return a file's samples as a grid of limited size, as a data URI."""
    import numpy as np

    from jembench.data.grid import GROUND, arranged, sheet

    images = tensors.read_arrays(path, "", placed=True)["images"]
    rows = max(1, min(10, LARGEST // (10 * images[0].size)))
    images = images[: 10 * rows]
    grid = arranged(np.arange(len(images)), 10, -(-len(images) // 10))
    return png(sheet(images, grid, ground=GROUND), LARGEST)


def _source(cell: Cell) -> str:
    """Return the source of the samples that a cell was measured on; "" without samples."""
    return parts_of(cell.outcome.protocol).get("source", "")


def png(pixels: NDArray[np.uint8], side: int) -> str:
    """Return an image (H, W, 3) as a data URI.

    The shorter side is reduced by a whole factor to less than twice ``side`` pixels.
    """
    from PIL import Image

    stream = io.BytesIO()
    factor = max(1, min(pixels.shape[:2]) // side)
    Image.fromarray(pixels).reduce(factor).save(stream, format="PNG")
    return data_uri("image/png", stream.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    """Return the data URI of a file."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
