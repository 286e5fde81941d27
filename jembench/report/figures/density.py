"""Log p(x) of test images by class, and the images at either end.

Figures 9 to 11 of Grathwohl et al. (2020), arXiv:1912.03263, show the same of generated samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, counts_in, edges_of, histogram_rows, rows_of
from jembench.report.figures.images import Panel, grids


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan the extremes of each model and, where there are labels, the figures of its classes."""
    for result in results:
        kinds = {"log-density-extremes": extremes}
        if "labels" in result.arrays:
            kinds |= {"log-density-by-class": by_class, "log-density-top": make_up}
        if "highest" in result.arrays:
            kinds["log-density-images"] = images_of_classes
        for figure, draw in kinds.items():
            yield result.figure(figure, draw, result.title, result.arrays)


def by_class(title: str, arrays: Arrays) -> Drawing:
    """Draw a histogram of log p(x) for each class, one above the other on one scale."""
    scores, labels = arrays["log-px"], arrays["labels"]
    classes = np.unique(labels).tolist()
    edges = edges_of(scores)
    counts = np.stack([counts_in(edges, scores[labels == number]) for number in classes])
    medians = [float(np.median(scores[labels == number])) for number in classes]
    share = counts / counts.sum(axis=1, keepdims=True)
    figure, (axes,) = drawing.panels(drawing.column(), 0.7 + min(8.0, 0.28 * len(classes)), title)
    for place in range(len(classes)):
        base = len(classes) - 1 - place
        line = base + 1.3 * share[place] / share.max()
        drawn: dict[str, Any] = {"baseline": base, "zorder": place}  # a high one hides a part of the one above
        axes.stairs(line, edges, fill=True, facecolor=drawing.SKY, edgecolor=drawing.BLACK, linewidth=0.5, **drawn)
        axes.plot([medians[place]] * 2, [base, base + 0.35], color=drawing.VERMILLION, zorder=place)
    axes.plot([], [], color=drawing.VERMILLION, label="median")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.04))
    axes.set_yticks(range(len(classes)), [str(number) for number in reversed(classes)])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylabel("class")
    axes.set_xlabel("log p(x) + constant, nats")
    rows = []
    for number, median, counted in zip(classes, medians, counts, strict=True):
        rows += histogram_rows(edges, counted, **{"class": number, "median": median})
    return Drawing(figure, rows)


def images_of_classes(title: str, arrays: Arrays) -> Drawing:
    """Draw for each class the images of the highest log p(x), random ones, and those of the lowest."""
    labels = [str(number) for number in range(len(arrays["highest"]))]
    panels = [
        Panel(name, arrays[kind], arrays["log-px"], labels if kind == "highest" else ())
        for kind, name in (("highest", "highest log p(x)"), ("random", "at random"), ("lowest", "lowest log p(x)"))
    ]
    return grids(title, arrays, arrays["labels"], panels, columns=3)


def extremes(title: str, arrays: Arrays) -> Drawing:
    """Draw the images of the highest and of the lowest log p(x), and p(y|x) where the model classifies."""
    panels = [
        Panel("highest log p(x)", arrays["top"], arrays["log-px"]),
        Panel("lowest log p(x)", arrays["bottom"], arrays["log-px"]),
    ]
    if {"top-confidence", "bottom-confidence", "confidence"} <= arrays.keys():
        panels += [
            Panel("highest p(y|x)", arrays["top-confidence"], arrays["confidence"]),
            Panel("lowest p(y|x)", arrays["bottom-confidence"], arrays["confidence"]),
        ]
    return grids(title, arrays, arrays.get("labels"), panels, columns=2)


def make_up(title: str, arrays: Arrays) -> Drawing:
    """Count the classes among the images of the highest and of the lowest log p(x)."""
    labels = arrays["labels"]
    classes = np.unique(labels)
    sides = {"highest": _labels_in("top", arrays), "lowest": _labels_in("bottom", arrays)}
    counts = {side: [int((found == number).sum()) for number in classes] for side, found in sides.items()}
    figure, (axes,) = drawing.panels(drawing.column(), 2.2, title)
    places = np.arange(len(classes))
    for index, (side, heights) in enumerate(counts.items()):
        colour, _, _, hatch = drawing.look(index)
        options: dict[str, Any] = {"color": colour, "alpha": 0.7, "hatch": hatch, "edgecolor": drawing.BLACK}
        label = f"{len(sides[side])} {side}"
        axes.bar(places + 0.4 * (index - 0.5), heights, 0.4, linewidth=0.4, label=label, **options)
    shares = [float((labels == number).mean()) for number in classes]
    expected = np.array(shares) * len(sides["highest"])
    edges = np.arange(len(classes) + 1) - 0.5
    axes.stairs(expected, edges, baseline=None, color=drawing.BLACK, linestyle=":", label="expected")
    axes.set_xticks(places, [str(number) for number in classes])
    axes.set_xlabel("class")
    axes.set_ylabel("images by log p(x)")
    drawing.legend_below(figure, axes, columns=3)
    return Drawing(figure, rows_of({"class": classes, **counts, "share_of_all": shares}))


def _labels_in(grid: str, arrays: Arrays) -> NDArray[Any]:
    pictures = arrays[grid][arrays[grid] >= 0]
    labels: NDArray[Any] = arrays["labels"][arrays["shown"][pictures]]
    return labels
