"""The first view of a page: results in a line, overview and dot plot.

The overview has samples of each model.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from jembench import drawing
from jembench.data.grid import GROUND
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
    # of each line: some samples side by side; without an image, there are none
    strips: Sequence[Picture]
    scales: Sequence[Scale | None]  # of each column; None: it has no numbers
    colours: Sequence[str]  # of each line: that of the model in figures; grey: published


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
        grids: samples of the models that have some.
        significance: tests differences between values; None: none are marked.
        names: display names of recipes.
        colours: of the models in figures.
    """
    table = respects.table(rows, significance, names=names)
    if table is None:
        return None
    (table,) = numbered([table])
    firsts = [next(cell.row for cell in line if cell.row) for line in table.rows]
    samples = [grids.get(row.fit, Picture("", "")) for row in firsts]
    looks = [
        "gray" if row.source else _on_page(colours.get(row.fit, drawing.BLACK)) for row in firsts
    ]
    strips = [grid._replace(image=strip(grid)) for grid in samples]
    columns = (
        [cell.row for cell in column if cell.row] for column in zip(*table.rows, strict=True)
    )
    # as the byline
    title = [part for part in table.title.split(" · ") if not part.startswith(("dataset ", "seed"))]
    table = replace(table, title=" · ".join(title))
    return Overview(table, _labels(table), strips, [scale(column) for column in columns], looks)


def _on_page(colour: str) -> str:
    """Return the colour of a figure on a page, where black is the colour of texts."""
    return "currentColor" if colour == drawing.BLACK else colour


def _labels(table: Table) -> list[str]:
    names = [
        index
        for index, heading in enumerate(table.headings)
        if heading.identifies and heading.label != "seeds"
    ]
    lines = [[line[index].value for index in names] for line in table.rows]
    short = distinct({" · ".join(line): line[0] for line in lines})
    return [short[" · ".join(line)] for line in lines]


def byline(rows: Sequence[Row], cells: Sequence[Cell]) -> str:
    """Return date, data, seeds, limits, hardware and version of results in one line."""
    provenances = [cell.provenance for cell in cells]
    dates = sorted({str(provenance.get("time", ""))[:10] for provenance in provenances})
    datasets = [row.dataset_name for row in rows if not row.source]
    seeds = sorted({cell.fit.seed for cell in cells})
    numbers = ", ".join(map(str, seeds))
    limits = [f"{cell.limit:,} test images" for cell in cells if cell.limit]
    hardware, versions = [], []
    for provenance in provenances:
        machine = provenance.get("hardware") or {}
        hardware.append(str(machine.get("gpu") or machine.get("processor") or ""))
        version = (provenance.get("packages") or {}).get("jembench")
        versions.append(f"jembench {version}" if version else "")

    of_seeds = f"seeds {numbers}" if len(seeds) > 1 else f"seed {numbers}" if seeds else ""
    parts = [dates, datasets, [of_seeds], limits, hardware, versions]
    texts = [", ".join(filter(None, dict.fromkeys(part))) for part in parts]
    return " · ".join(filter(None, texts))


# --- samples --------------------------------------------------------------------------------------

_SAMPLES = 8  # in a strip
_SIDE = 32  # pixels of the shorter side of a sample, at most twice as many
_MOST_PIXELS = 2**24  # of a grid


def strip(grid: Picture) -> str:
    """Return some samples of a grid side by side, as a data URI.

    It is "" if there are none, or if the grid is damaged or too large.

    Args:
        grid: images on a grey ground, as :func:`jembench.data.grid.write_png` writes them.
    """
    try:
        with Image.open(
            io.BytesIO(base64.b64decode(grid.image.partition(",")[2])), formats=["PNG"]
        ) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                return ""
            pixels = np.asarray(picture.convert("RGB"))
    # SyntaxError: a damaged PNG
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return ""
    ground = (pixels == GROUND).all(axis=2)
    rows, columns = (
        np.flatnonzero(np.diff(np.pad(ground.all(axis=axis), 1, constant_values=True))).reshape(
            -1, 2
        )
        for axis in (1, 0)
    )
    places = [np.s_[slice(*row), slice(*column)] for row in rows for column in columns]
    images = [pixels[place] for place in places if not ground[place].all()]
    images = [image for image in images if image.shape == images[0].shape]
    if not images:
        return ""
    chosen = [
        images[index * len(images) // _SAMPLES] for index in range(min(_SAMPLES, len(images)))
    ]
    side = min(images[0].shape[:2])
    gap = np.full_like(images[0][:, : max(1, side // 8)], GROUND)
    parts = [part for image in chosen for part in (gap, image)]
    return png(np.concatenate(parts[1:], axis=1), _SIDE)
