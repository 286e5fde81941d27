"""The pictures of a page: figures as SVG, sample grids and energies of trainings."""

from __future__ import annotations

import base64
import io
import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from jembench.errors import printable
from jembench.experiment.sweep import bare_name
from jembench.files import read_bytes
from jembench.report.names import NO_NAMES, Names
from jembench.report.record import grouped
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.report.figures.planned import Planned

LARGEST = 2**20
"""Bytes of a sample grid above which it is left out: the page is to be sent around."""


class Picture(NamedTuple):
    """A picture with its title. Exactly one of ``svg`` and ``png`` is not empty."""

    title: str
    svg: str = ""  # safe markup
    png: str = ""  # a data URI
    notes: tuple[str, ...] = ()  # numbered as in the picture
    width: int = 0  # pixels
    name: str = ""  # of a figure, as of its files


class Pictures:
    """The pictures of a store's results. What was drawn once is drawn again only for other results.

    Attributes:
        left_out: a sentence for each that cannot be drawn.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.left_out: dict[str, None] = {}
        self._known: dict[Hashable, list[Picture]] = {}

    def of_metrics(self, cells: Sequence[Cell], names: Names = NO_NAMES) -> dict[str, list[Picture]]:
        """The figures of each metric that has some."""
        from jembench.report.figures import catalogue

        groups = grouped((cell for cell in cells if cell.outcome.status == "ok"), lambda cell: bare_name(cell.metric))
        figures = {
            bare_name(group[0].metric): self._drawn(
                ("metric", *names.items(), *_state(group)),
                partial(catalogue.figures, group, self.store.read_arrays, self.note, names=names),
            )
            for group in groups
        }
        return {name: pictures for name, pictures in figures.items() if pictures}

    def of_seeds(self, cells: Sequence[Cell], names: Names = NO_NAMES) -> list[Picture]:
        """The values of several seeds."""
        from jembench.report.figures import training

        return self._drawn(("seeds", *names.items(), *_state(cells)), partial(training.seeds_of, cells, names))

    def of_trainings(self, cells: Sequence[Cell], names: Names = NO_NAMES) -> list[Picture]:
        """The energies of each training, with what the guard did."""
        from jembench.report.figures import training

        found: list[Picture] = []
        for group in grouped(cells, lambda cell: cell.fit.id):
            drawn = self._drawn(
                ("training", *names.items(), group[0].fit.id),
                partial(training.energies_of, group[:1], self.store.history, self.note, names),
            )
            notes = tuple(map(str, group[0].provenance.get("interventions") or ()))
            found += [picture._replace(notes=notes) for picture in drawn]
        return found

    def of_samples(self, cells: Sequence[Cell], names: Names = NO_NAMES) -> list[Picture]:
        """The sample grid of each model, of its first seed that has one."""
        from jembench.report.figures.results import title_of

        found = []
        for group in grouped(cells, lambda cell: cell.fit.names):
            fits = {cell.fit.id: cell.fit for cell in sorted(group, key=lambda cell: cell.fit.seed)}
            grids = ((title_of(fit, names), grid) for fit in fits.values() if (grid := self._samples(fit)))
            found += [Picture(title, png=_data_uri(grid), width=_width(grid)) for title, grid in [*grids][:1]]
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
        """Take a sentence in about something that cannot be read or drawn."""
        self.left_out[printable(problem)] = None

    def _drawn(self, key: Hashable, planned: Callable[[], Iterable[Planned]]) -> list[Picture]:
        if key not in self._known:
            self._known[key] = list(self._draw(planned))
        return self._known[key]

    def _draw(self, planned: Callable[[], Iterable[Planned]]) -> Iterator[Picture]:
        for one in planned():
            try:
                yield draw(one)
            except Exception as error:  # of a plugin
                self.note(f"The figure {one.stem} cannot be drawn: {type(error).__name__}: {error}")


def _state(cells: Iterable[Cell]) -> Iterator[Hashable]:
    """What figures of cells depend on."""
    return ((cell.id, cell.arrays, str(cell.provenance.get("time"))) for cell in cells)


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _width(png: bytes) -> int:
    return int.from_bytes(png[16:20])


# --- figures as a part of a page --------------------------------------------------------------------------------------

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_SHAPES = {"path", "use", "rect", "circle", "ellipse", "polygon", "polyline", "line", "text", "tspan", "image"}
_KEPT = _SHAPES | {"svg", "g", "defs", "clipPath", "pattern", "linearGradient", "radialGradient", "stop"}
_TO_ID = re.compile(r"""(?<=url\(#)[^)]+|(?<=href="#)[^"]+""")
_DECIMALS = re.compile(r"(\.\d\d)\d+")
_PIXELS = 110  # of a page, for an inch of a figure


def draw(planned: Planned) -> Picture:
    """A planned figure; its title is apart from it, and its text is text."""
    import matplotlib

    from jembench import drawing

    with drawing.styled():
        matplotlib.rcParams["svg.fonttype"] = "none"
        figure, _ = planned.draw()
        title = figure.get_suptitle() or planned.stem
        figure.suptitle("")
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    svg, width = inline(stream.getvalue().decode(), title), round(figure.get_figwidth() * _PIXELS)
    return Picture(title, svg=svg, width=width, name=planned.stem)


def inline(svg: str, title: str) -> str:
    """A figure as a part of a page: shapes, text and pictures alone, without styles, scripts and links.

    Its ids are those of no other figure.

    Args:
        svg: as matplotlib writes it.
        title: for readers who do not see it.
    """
    root = ElementTree.fromstring(svg)
    prefix = f"f{zlib.crc32(f'{title} {svg}'.encode()):08x}"
    new_ids = {name: f"{prefix}-{number}" for number, name in enumerate(_TO_ID.findall(svg))}
    _clean(root, new_ids)
    kept = {name: root.get(name, "") for name in ("viewBox",)}
    root.attrib.clear()
    root.attrib |= {**kept, "role": "img", "aria-label": " ".join(title.split())}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element, new_ids: Mapping[str, str]) -> None:
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib = dict(_attributes(element.attrib, new_ids))
    element.tail = None
    if element.tag not in ("text", "tspan"):
        element.text = None
    for child in list(element):
        if isinstance(child.tag, str) and child.tag.removeprefix(_SVG) in _KEPT:
            _clean(child, new_ids)
        else:
            element.remove(child)


def _attributes(given: Mapping[str, str], new_ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The attributes that draw; a style becomes attributes, which a page's policy allows."""
    for name, value in given.items():
        if name == "style":
            declared = (part.partition(":") for part in value.split(";"))
            yield from _attributes({key.strip(): text.strip() for key, _, text in declared if text}, new_ids)
        elif name == "id":
            if value in new_ids:
                yield name, new_ids[value]
        elif name == _LINK:
            if value.startswith(("#", "data:image/png;base64,")):
                yield "href", f"#{new_ids[value[1:]]}" if value[0] == "#" else "".join(value.split())
        elif name in ("d", "x", "y", "points"):
            yield name, " ".join(_DECIMALS.sub(r"\1", value).split())
        elif name == "font":  # of matplotlib before 3.10
            yield "font-size", next((part for part in value.split() if part.endswith("px")), "8px")
        elif not name.startswith(("on", "{", "font-family")):
            yield name, _TO_ID.sub(lambda found: new_ids[found[0]], value)
