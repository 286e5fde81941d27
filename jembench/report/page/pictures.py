"""The pictures of a page, as data URIs: figures, sample grids and energies of trainings."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
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
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jembench.report.figures.base import Planned

LARGEST = 2**20
"""Bytes of a sample grid above which it is left out: the page is to be sent around."""


_SCORES = ("fid", "is", "kid")
"""The metrics whose samples are preferred."""

_OWN = ("buffer", "direct")
"""The sources whose samples the grid of a fit shows."""

_PIXELS = 110  # of a page, for an inch of a figure


class Picture(NamedTuple):
    """A picture with its title."""

    title: str
    image: str  # a data URI, which a browser shows without scripts and requests
    width: int = 0  # pixels, of a figure
    name: str = ""  # of a figure, as of its files
    source: str = ""  # of samples, and what they were measured for


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
                title, width = (
                    str(figure.get_label()) or one.stem,
                    round(figure.get_figwidth() * _PIXELS),
                )
                found.append(Picture(title, image, width, name=one.stem))
        return found

    def of_samples(self, cells: Sequence[Cell], names: DisplayNames = NO_NAMES) -> Picture | None:
        """Return the samples of a model, of its first seed that has some.

        They are those that a metric measured, or the model's own.

        Args:
            cells: of one model.
            names: display names by canonical specs and recipes.
        """
        from jembench.report.figures.base import title_of

        for group in grouped(sorted(cells, key=lambda cell: cell.fit.seed), lambda cell: cell.fit):
            measured = sorted(
                filter(_source, group), key=lambda cell: cell.metric.bare not in _SCORES
            )
            for cell in measured[:1]:
                source = (
                    f"{source_in_words(_source(cell))}, measured for {in_words(cell.metric.bare)}"
                )
                if image := (self._own if _source(cell) in _OWN else self._new_chains)(cell):
                    return Picture(title_of(cell.fit, names), image, source=source)
            if image := self._own(group[0]):
                return Picture(
                    title_of(group[0].fit, names), image, source="the model's own samples"
                )
        return None

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

        It is "" if they are not stored.
        """
        import numpy as np

        from jembench.data.grid import GROUND, arranged, sheet
        from jembench.running.fit_samples import FRESH_SAMPLES, drawn_name

        options, steps = (
            cell.metric.options,
            parts_of(_source(cell)).get("steps", "0"),
        )
        n = int(options.get("images", FRESH_SAMPLES))
        try:
            trust.refuse_code([options.get("sampler", "")], "A result of the store")
            sampler = (
                registry.resolve("samplers", options["sampler"]) if "sampler" in options else None
            )
            folder = self.store.readings_of(
                cell.fit.id, weights_digest(self.store.fit_folder(cell.fit))
            )
            for name in (
                drawn_name(n, int(steps), conditional, sampler) for conditional in (False, True)
            ):
                if (path := folder / f"{name}.safetensors").exists():
                    images = tensors.read(path, "", placed=True).tensors["images"].numpy()
                    images = images[: 10 * max(1, min(10, LARGEST // (10 * images[0].size)))]
                    grid = arranged(np.arange(len(images)), 10, -(-len(images) // 10))
                    return png(sheet(images, grid, ground=GROUND), LARGEST)
        except Exception as error:  # of a plugin's sampler, or of a file that another version wrote
            self.note(f"The samples that {cell.metric} of {cell.fit} measured: {error_text(error)}")
        return ""

    def note(self, problem: str) -> None:
        """Add a sentence about something that cannot be read or drawn."""
        self.left_out[printable(problem)] = None


def _source(cell: Cell) -> str:
    """Return the source of the samples that a cell was measured on; "" if it needs none."""
    return parts_of(cell.outcome.protocol).get("source", "")


def png(pixels: NDArray[np.uint8], side: int) -> str:
    """Return an image (H, W, 3) as a data URI.

    It is reduced by a whole factor to less than twice ``side`` pixels.
    """
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).reduce(max(1, min(pixels.shape[:2]) // side)).save(stream, format="PNG")
    return data_uri("image/png", stream.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    """Return the address that holds a file of a media type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
