"""Reliability diagrams: the accuracy of a model at each confidence.

Guo et al. (2017), arXiv:1706.04599, Figure 1; Grathwohl et al. (2020), arXiv:1912.03263, Figure 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jembench import drawing
from jembench.interfaces import Value
from jembench.metrics.classification import Reliability, reliability
from jembench.report.figures.base import Drawing, Planned, Result, figure_of, rows_of, with_interval
from jembench.report.rows import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BARS: dict[str, Any] = {"align": "edge", "linewidth": 0.5}


class Calibration(NamedTuple):
    """The reliability of one model's confidences."""

    model: str
    scaling: str  # of the confidences; "none"
    bins: Reliability
    ece: Value  # in %

    def __str__(self) -> str:
        return self.model if self.scaling == "none" else f"{self.model}, {self.scaling} scaling"

    @property
    def error(self) -> str:
        """The calibration error with its interval, for a title."""
        return f"ECE {with_interval(self.ece, 2, ' %')}"


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan a diagram for each model, before and after scaling, and one that compares the models of a dataset."""
    for result in results:
        yield result.figure("reliability", diagram, result)
    for group in grouped(results, _peers):
        if len(group) > 1:
            yield figure_of(group, "reliability-compared", comparison, group)


def _peers(result: Result) -> tuple[object, ...]:
    return *result.place, *(result.protocol.get(part) for part in ("split", "images", "bins", "data_noise"))


def _calibration_of(result: Result) -> Calibration:
    confidence, correct = result.arrays["confidence"], result.arrays["correct"].astype(bool)
    return Calibration(
        result.model,
        result.options.get("scaling", "none"),
        reliability(confidence, correct, int(result.protocol["bins"])),
        next(iter(result.values.values())),
    )


def diagram(result: Result) -> Drawing:
    """Draw the accuracy in each bin of confidence with its gap to the mean confidence, and below the images in each."""
    calibration = _calibration_of(result)
    title = f"{calibration} on {result.fit.dataset}, seed {result.fit.seed}\n{calibration.error}"
    figure, (above, below) = drawing.panels(drawing.column(), 4.1, title, 2, sharex=True, height_ratios=(3, 1))
    bins = calibration.bins
    _draw_gaps(above, bins)
    above.set_ylabel("accuracy")
    below.bar(bins.edges[:-1], bins.counts, np.diff(bins.edges), color=drawing.BLUE, edgecolor=drawing.BLACK, **_BARS)
    below.set_yscale("log")
    below.set_ylim(0.5, 2 * bins.counts.sum())
    below.yaxis.set_major_formatter("{x:g}")
    below.set_ylabel("images")
    below.set_xlabel("confidence")
    drawing.legend_below(figure, above, columns=2)
    return Drawing(figure, _rows(calibration))


def comparison(results: Sequence[Result]) -> Drawing:
    """Draw a panel for each model and scaling: the accuracy in each bin, with its gap to the mean confidence."""
    title = f"{results[0].fit.dataset}, seed {results[0].fit.seed}"
    of_models = grouped(map(_calibration_of, results), lambda calibration: calibration.model)
    ordered = [calibration for of_model in of_models for calibration in of_model]
    columns = 4 if len(ordered) == 4 else min(3, len(ordered))
    height = 0.7 + -(-len(ordered) // columns) * (0.3 + drawing.page() / columns)
    figure, panels = drawing.panels(drawing.page(), height, title, len(ordered), columns, sharex=True, sharey=True)
    for axes, calibration in zip(panels, ordered, strict=True):
        _draw_gaps(axes, calibration.bins)
        axes.set_aspect("equal")
        name = drawing.wrapped(str(calibration), drawing.page() / columns - 0.2)
        axes.set_title(f"{name}\n{calibration.error}", fontsize=7)
    for axes in panels[-columns:]:
        axes.set_xlabel("confidence")
    for axes in panels[::columns]:
        axes.set_ylabel("accuracy")
    drawing.legend_below(figure, panels[0], columns=2)
    return Drawing(figure, [row for calibration in ordered for row in _rows(calibration)])


def _draw_gaps(axes: Axes, bins: Reliability) -> None:
    filled = bins.counts > 0
    left, width = bins.edges[:-1][filled], np.diff(bins.edges)[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    axes.bar(left, accuracy, width, color=drawing.SKY, edgecolor=drawing.BLACK, label="accuracy", **_BARS)
    gap: dict[str, Any] = {
        "bottom": np.minimum(accuracy, confidence),
        "facecolor": "none",
        "edgecolor": drawing.VERMILLION,
    }
    label = "gap to mean confidence"
    axes.bar(left, np.abs(accuracy - confidence), width, hatch="/////", label=label, **gap, **_BARS)
    axes.plot([0, 1], [0, 1], color=drawing.BLACK, linestyle=":", linewidth=drawing.HAIR)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)


def _rows(calibration: Calibration) -> list[dict[str, Any]]:
    bins, ece = calibration.bins, calibration.ece
    of_all = {"model": calibration.model, "scaling": calibration.scaling, "ece": ece.value}
    columns = {"bin_low": bins.edges[:-1], "bin_high": bins.edges[1:], "count": bins.counts}
    columns |= {"accuracy": bins.accuracy, "confidence": bins.confidence}
    return rows_of(columns, **of_all, ece_low=ece.low, ece_high=ece.high)
