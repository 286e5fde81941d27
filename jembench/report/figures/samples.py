"""What samples look like: class by class, and those that the model is most confident of.

Grathwohl et al. (2020), arXiv:1912.03263, Figures 2, 7, 9 and 12.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jembench.report.figures.drawing import Drawing, Planned
from jembench.report.figures.images import Panel, grids
from jembench.report.figures.results import Arrays, Result, needs

_PICTURES = {"images": "M C H W", "shown": "M", "predicted": "N", "confidence": "N"}


@needs({**_PICTURES, "grid": "K S"}, optional={"labels": "N"})
def by_class(results: list[Result]) -> Iterator[Planned]:
    """For each model a row of samples for each class."""
    for result in results:
        yield result.figure("samples", class_grid, f"{_source(result)}: {result.title}", result.arrays)


@needs(_PICTURES)
def confident(results: list[Result]) -> Iterator[Planned]:
    """For each model the samples that it is most confident of."""
    for result in results:
        yield result.figure("confident", confident_grid, f"most confident: {result.title}", result.arrays)


def _source(result: Result) -> str:
    source = str(result.cell.outcome.details.get("source", "samples"))
    conditional = " on E(x, y)" if "labels" in result.arrays else ""
    known = {"buffer": "replay buffer", "direct": "samples"}
    return known.get(source, f"new chains of {source.rpartition('=')[2]} steps") + conditional


def class_grid(title: str, arrays: Arrays) -> Drawing:
    """A row of samples for each class: the one that they were drawn for, else the one that the model sees.

    Their score is the model's confidence, max p(y|x).
    """
    classes = arrays.get("labels", arrays["predicted"])
    labels = [str(number) for number in range(len(arrays["grid"]))]
    return grids(title, arrays, classes, [Panel("", arrays["grid"], arrays["confidence"], labels)], columns=1)


def confident_grid(title: str, arrays: Arrays) -> Drawing:
    """The samples that the model is most confident of, row by row, in a square."""
    count = len(arrays["images"])
    side = int(np.ceil(np.sqrt(count)))
    grid = np.full(side * side, -1)
    grid[:count] = np.arange(count)
    panel = Panel("", grid.reshape(side, side), arrays["confidence"])
    return grids(title, arrays, arrays["predicted"], [panel], columns=1)
