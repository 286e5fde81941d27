"""Log p(x) of test images or samples by class, and the images at either end.

Figures 9 to 12 of Grathwohl et al. (2020), arXiv:1912.03263, are those of ``source=kept``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jembench import drawing
from jembench.report.figures.base import (
    Arrays,
    Drawing,
    Planned,
    Result,
    edges_of,
    histogram,
    legend_entry,
)
from jembench.report.figures.images import Panel, grids

_SOURCES = {"kept": ": kept chains, predicted classes", "fresh": ": new chains, predicted classes"}


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan each model's images of extreme log p(x), and log p(x) per class."""
    for result in results:
        source = _SOURCES.get(result.options.get("source", ""), "")
        kinds = {"log-density-extremes": extremes}
        if "labels" in result.arrays:
            kinds["log-density-by-class"] = by_class
        if "highest" in result.arrays:
            kinds["log-density-images"] = images_of_classes
        for figure, draw in kinds.items():
            yield result.figure(figure, draw, result.title + source, result.arrays)


def by_class(title: str, arrays: Arrays) -> Drawing:
    """Draw a histogram of log p(x) for each class, one above the other on one scale."""
    scores, labels = arrays["log-px"], arrays["labels"]
    classes, edges = np.unique(labels).tolist(), edges_of(scores)
    medians, shares = [], []
    rows: list[dict[str, Any]] = []
    for number in classes:
        of_class = scores[labels == number]
        median = float(np.median(of_class))
        counts, lines = histogram(edges, of_class, **{"class": number, "median": median})
        medians.append(median)
        shares.append(counts / counts.sum())
        rows += lines

    highest = max(share.max() for share in shares)
    height = 0.9 + min(8.0, 0.28 * len(classes))
    figure, (axes,) = drawing.panels(title, height)
    look: dict[str, Any] = {"facecolor": drawing.SKY, "edgecolor": drawing.BLACK, "linewidth": 0.5}
    for place, (share, median) in enumerate(zip(shares, medians, strict=True)):
        base = len(classes) - 1 - place
        heights = base + 1.3 * share / highest
        # a high histogram covers a part of the next one above
        axes.stairs(heights, edges, baseline=base, fill=True, zorder=place, **look)
        line = [base, base + 0.35]
        axes.plot([median, median], line, color=drawing.VERMILLION, zorder=place)
    legend_entry(axes, "median", color=drawing.VERMILLION)
    drawing.legend_below(figure, axes, columns=1)
    texts = list(map(str, reversed(classes)))
    axes.set_yticks(range(len(texts)), texts)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set(xlabel="log p(x) + constant, nats", ylabel="class")
    return Drawing(figure, rows)


def images_of_classes(title: str, arrays: Arrays) -> Drawing:
    """Draw each class's images of the highest, random and the lowest log p(x)."""
    labels = list(map(str, range(len(arrays["highest"]))))
    score = arrays["log-px"]
    panels = [
        Panel("highest log p(x)", arrays["highest"], score, labels),
        Panel("at random", arrays["random"], score),
        Panel("lowest log p(x)", arrays["lowest"], score),
    ]
    return grids(title, arrays, arrays["labels"], panels, columns=3)


def extremes(title: str, arrays: Arrays) -> Drawing:
    """Draw the images of the highest and of the lowest log p(x).

    Where the model classifies, images of extreme p(y|x) follow.
    """

    def panel(title: str, name: str, score: str) -> Panel:
        grid = arrays[name]
        is_used = (grid >= 0).any(axis=1)
        return Panel(title, grid[is_used], arrays[score])

    panels = [
        panel("highest log p(x)", "top", "log-px"),
        panel("lowest log p(x)", "bottom", "log-px"),
    ]
    if {"top-confidence", "bottom-confidence", "confidence"} <= arrays.keys():
        panels.append(panel("highest p(y|x)", "top-confidence", "confidence"))
        panels.append(panel("lowest p(y|x)", "bottom-confidence", "confidence"))
    return grids(title, arrays, arrays.get("labels"), panels, columns=2)
