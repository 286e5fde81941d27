"""Histograms that are compared with one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jembench.report.figures.results import Numbers
from jembench.report.figures.style import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 40
_TAIL = 0.5  # % at either end of each sample that the first and the last bin take in, however far away it is


def edges_of(*samples: Numbers) -> Numbers:
    """The edges of the bins that samples share."""
    ends = [np.percentile(sample, [_TAIL, 100 - _TAIL]) for sample in samples]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    margin = 0.02 * (high - low) or 0.5  # one value alone has bins around it
    return np.linspace(low - margin, high + margin, BINS + 1)


def counts_in(edges: Numbers, sample: Numbers) -> NDArray[np.int64]:
    """How many are in each bin; those beyond the edges are in the first and the last."""
    counts: NDArray[np.int64] = np.histogram(np.clip(sample, edges[0], edges[-1]), edges)[0]
    return counts


def draw(axes: Axes, edges: Numbers, counts: NDArray[np.int64], series: int, label: str) -> None:
    """Draw one of several histograms that lie over one another, as a density: areas are compared, not heights."""
    colour, _, _, hatch = look(series)
    density = counts / (counts.sum() * np.diff(edges))
    axes.stairs(density, edges, fill=True, facecolor=colour, alpha=0.3, linewidth=0)
    axes.stairs(density, edges, fill=False, edgecolor=colour, linewidth=1.0, hatch=hatch, label=label)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(bottom=0)


def rows(edges: Numbers, counts: NDArray[np.int64], **of: Any) -> list[dict[str, Any]]:
    """The lines of a CSV: what the histogram is of, and each bin."""
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    return [{**of, "bin_low": low, "bin_high": high, "count": count} for low, high, count in bins]
