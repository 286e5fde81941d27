"""The first view of a page: results in a line, overview and dot plot.

The overview has samples of each model.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from jembench import drawing
from jembench.data.grid import GROUND, Pixels
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report import respects
from jembench.report.headings import distinct
from jembench.report.page.pictures import Picture, png
from jembench.report.rows import Row
from jembench.report.scale import Scale, scale
from jembench.report.table import Table, numbered
from jembench.store.outcome import Cell, Trained

if TYPE_CHECKING:
    from jembench.report.significance import Significance


class Overview(NamedTuple):
    """The overview of some results."""

    table: Table
    labels: Sequence[str]  # of each line: the model, with dataset and recipe where names are alike
    # of each line: what identifies it beside the model, such as its recipe; (): nothing
    below: Sequence[str]
    # of each line: some samples side by side; an empty image: no samples
    strips: Sequence[Picture]
    scales: Sequence[Scale | None]  # of each column; None: no numbers
    colours: Sequence[str]  # of each line: the model's colour in figures; grey: published


def overview(
    rows: Sequence[Row],
    grids: Mapping[Trained, Picture],
    significance: Significance | None = None,
    names: DisplayNames = NO_NAMES,
    colours: Mapping[Trained, str] = MappingProxyType({}),
) -> Overview | None:
    """Return the overview of some results; None if no respect has a value.

    Args:
        rows: of the joint view.
        grids: sample grids, by model.
        significance: tests differences between values; None: no value is marked.
        names: display names of recipes.
        colours: of the models in figures.
    """
    table = respects.table(rows, significance, names=names)
    if table is None:
        return None
    (table,) = numbered([table])
    strips, looks = [], []
    for line in table.rows:
        first = next(cell.row for cell in line if cell.row)
        grid = grids.get(first.fit, Picture("", ""))
        strips.append(grid._replace(image=strip(grid)))
        colour = colours.get(first.fit, drawing.BLACK)
        looks.append("gray" if first.source else _on_page(colour))
    scales = []
    for column in zip(*table.rows, strict=True):
        scales.append(scale([cell.row for cell in column if cell.row]))

    # the byline has the other parts
    parts = table.title.split(" · ")
    title = [part for part in parts if not part.startswith(("dataset ", "seed"))]
    table = replace(table, title=" · ".join(title))
    return Overview(table, _labels(table), _below(table), strips, scales, looks)


def _on_page(colour: str) -> str:
    """Return a figure's colour on a page, where black becomes the colour of text."""
    if colour == drawing.BLACK:
        return "currentColor"
    return colour


def _below(table: Table) -> list[str]:
    """Return the texts below the models' names, in place of columns of their own."""
    columns = []
    for heading, column in zip(table.headings, zip(*table.rows, strict=True), strict=True):
        texts = [cell.value for cell in column]
        if heading.label == "seeds":
            texts = [f"seeds {text}" if "," in text else f"seed {text}" for text in texts]
        if heading.identifies and heading.label != "model":
            columns.append(texts)
    return [" · ".join(line) for line in zip(*columns, strict=True)]


def _labels(table: Table) -> list[str]:
    columns = []
    for heading, column in zip(table.headings, zip(*table.rows, strict=True), strict=True):
        if heading.identifies and heading.label != "seeds":
            columns.append([cell.value for cell in column])
    lines = list(zip(*columns, strict=True))
    short = distinct({" · ".join(line): line[0] for line in lines})
    return [short[" · ".join(line)] for line in lines]


def byline(rows: Sequence[Row], cells: Sequence[Cell]) -> str:
    """Return date, data, seeds, limits, hardware and version of results in one line."""
    dates, hardware, versions = [], [], []
    for provenance in (cell.provenance for cell in cells):
        dates.append(str(provenance.get("time", ""))[:10])
        machine = provenance.get("hardware") or {}
        hardware.append(str(machine.get("gpu") or machine.get("processor") or ""))
        version = (provenance.get("packages") or {}).get("jembench")
        versions.append(f"jembench {version}" if version else "")
    datasets = [row.dataset_name for row in rows if not row.source]
    images = [cell.images for cell in cells]

    seeds = sorted({cell.fit.seed for cell in cells})
    word = "seed" if len(seeds) == 1 else "seeds"
    of_seeds = f"{word} {', '.join(map(str, seeds))}" if seeds else ""
    parts = [sorted(dates), datasets, [of_seeds], images, hardware, versions]
    texts = [", ".join(filter(None, dict.fromkeys(part))) for part in parts]
    return " · ".join(filter(None, texts))


# --- samples --------------------------------------------------------------------------------------

_SAMPLES = 8  # in a strip
_SIDE = 32  # pixels of a sample's shorter side, or up to twice as many
_MOST_PIXELS = 2**24  # of a grid


def strip(grid: Picture) -> str:
    """Return some samples of a grid side by side, as a data URI.

    The URI is "" if there are no samples, or the grid is damaged or too large.

    Args:
        grid: images on a grey ground, as :func:`jembench.data.grid.write_png` writes them.
    """
    content = io.BytesIO(base64.b64decode(grid.image.partition(",")[2]))
    try:
        with Image.open(content, formats=["PNG"]) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                return ""
            pixels = np.asarray(picture.convert("RGB"))
    # SyntaxError: a damaged PNG
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return ""
    images = _images_in(pixels)
    if not images:
        return ""
    first = images[0]
    gap = np.full_like(first[:, : max(1, min(first.shape[:2]) // 8)], GROUND)
    parts = []
    for index in range(min(_SAMPLES, len(images))):
        parts += [gap, images[index * len(images) // _SAMPLES]]
    return png(np.concatenate(parts[1:], axis=1), _SIDE)


def _images_in(pixels: Pixels) -> list[Pixels]:
    """Return the images of a grid that have the size of the first."""
    ground = (pixels == GROUND).all(axis=2)
    rows, columns = _spans(ground.all(axis=1)), _spans(ground.all(axis=0))
    images = []
    for row, column in itertools.product(rows, columns):
        if not ground[row, column].all():
            images.append(pixels[row, column])
    return [image for image in images if image.shape == images[0].shape]


def _spans(is_ground: NDArray[np.bool_]) -> list[slice]:
    """Return the spans of pixel lines that are not wholly background."""
    changes = np.diff(np.pad(is_ground, 1, constant_values=True))
    return [slice(*ends) for ends in np.flatnonzero(changes).reshape(-1, 2)]
