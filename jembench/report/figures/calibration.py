"""Reliability diagrams: the accuracy of a model at each confidence.

Guo et al. (2017), arXiv:1706.04599, Figure 1; Grathwohl et al. (2020), arXiv:1912.03263, Figure 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jembench import drawing
from jembench.metrics.binning import Reliability, reliability
from jembench.report.figures.base import (
    GUIDE,
    Drawing,
    Planned,
    Result,
    figure_of,
    rows_of,
    with_interval,
)
from jembench.report.rows import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BARS: dict[str, Any] = {"align": "edge", "linewidth": 0.5}


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan a reliability diagram of each result, and one of all models of a dataset.

    A model may have results before and after scaling.
    """
    for result in results:
        yield result.figure("reliability", diagram, result)
    for group in grouped(results, _peers):
        if len(group) > 1:
            yield figure_of(group, "reliability-compared", comparison, group)


def _peers(result: Result) -> tuple[object, ...]:
    shared = ("split", "images", "bins", "data_noise", "under")
    return *result.place, *map(result.protocol.get, shared)


def diagram(result: Result) -> Drawing:
    """Draw the accuracy in each bin of confidence, and below the number of images.

    A gap leads from the accuracy to the mean confidence.
    """
    name, error = _names(result)
    title = f"{name} on {result.trained_on}\n{error}"
    shape: dict[str, Any] = {"sharex": True, "height_ratios": (3, 1)}
    figure, (above, below) = drawing.panels(title, 4.1, 2, **shape)
    bins, rows = _draw_gaps(above, result)
    above.set_ylabel("accuracy")
    look = {"color": drawing.BLUE, "edgecolor": drawing.BLACK, **_BARS}
    widths = np.diff(bins.edges)
    below.bar(bins.edges[:-1], bins.counts, widths, **look)
    below.set(xlabel="confidence", ylabel="images", yscale="log")
    below.set_ylim(0.5, 2 * bins.counts.sum())
    below.yaxis.set_major_formatter("{x:g}")
    drawing.legend_below(figure, above, columns=2)
    return Drawing(figure, rows)


def comparison(results: Sequence[Result]) -> Drawing:
    """Draw a panel for each model and scaling: the accuracy in each bin.

    A gap leads to the mean confidence.
    """
    title = results[0].trained_on
    of_models = grouped(results, lambda result: result.model)
    ordered = list(itertools.chain(*of_models))
    count = len(ordered)
    columns = drawing.fitting(2 if count == 4 else min(3, count))
    side = 0.3 + drawing.page() / columns
    height = 0.7 + -(-count // columns) * side
    figure, panels = drawing.panels(title, height, count, columns, sharex=True, sharey=True)
    rows: list[dict[str, Any]] = []
    for axes, result in zip(panels, ordered, strict=True):
        rows += _draw_gaps(axes, result)[1]
        axes.set_aspect("equal")
        name, error = _names(result)
        axes.set_title(drawing.above(f"{name}\n{error}", columns))
    for axes in panels[-columns:]:
        axes.set_xlabel("confidence")
    for axes in panels[::columns]:
        axes.set_ylabel("accuracy")
    drawing.legend_below(figure, panels[0], columns=2)
    return Drawing(figure, rows)


def _names(result: Result) -> tuple[str, str]:
    """Return two labels: the model, and its calibration error.

    The first label has the scaling and the attack, if any.
    """
    parts = [result.model]
    if "scaling" in result.options:
        parts.append(f"{result.options['scaling']} scaling")
    if "under" in result.options:
        parts.append(f"under {result.options['under']}")
    ece = next(iter(result.values.values()))
    return ", ".join(parts), f"ECE {with_interval(ece, 2, ' %')}"


def _draw_gaps(axes: Axes, result: Result) -> tuple[Reliability, list[dict[str, Any]]]:
    """Draw the accuracy in each bin and its gap to the mean confidence.

    Returns the bins and the lines of their CSV.
    """
    correct = result.arrays["correct"].astype(bool)
    count = int(result.protocol["bins"])
    bins = reliability(result.arrays["confidence"], correct, count)
    filled = bins.counts > 0
    left = bins.edges[:-1][filled]
    width = np.diff(bins.edges)[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    look = {"color": drawing.SKY, "edgecolor": drawing.BLACK, **_BARS}
    axes.bar(left, accuracy, width, label="accuracy", **look)
    gap = np.abs(accuracy - confidence)
    look = {"facecolor": "none", "edgecolor": drawing.VERMILLION, "hatch": "/////", **_BARS}
    bottom = np.minimum(accuracy, confidence)
    axes.bar(left, gap, width, bottom, label="gap to mean confidence", **look)
    axes.plot([0, 1], [0, 1], **GUIDE)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))

    ece = next(iter(result.values.values()))
    scaling = result.options.get("scaling", "none")
    of_all = {"model": result.model, "scaling": scaling, "ece": ece.value}
    columns = {"bin_low": bins.edges[:-1], "bin_high": bins.edges[1:]}
    columns |= {"count": bins.counts, "accuracy": bins.accuracy, "confidence": bins.confidence}
    return bins, rows_of(columns, **of_all, ece_low=ece.low, ece_high=ece.high)
