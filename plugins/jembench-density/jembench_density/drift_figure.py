"""Long chains: energies and distances against steps, and images of some chains.

With ``chain-drift:at=5+10+20+50+100`` the figure is Figure 3 of the reproducibility report of
Grathwohl et al. (2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from jembench import drawing
from jembench.data.grid import Pixels, sheet
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, rows_of
from jembench.report.figures.images import draw_sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVES = {
    "energy": ("mean E(x) above that of test images", "nats"),
    "fid": ("FID towards training images", "FID"),
    "nearest": ("distance to the nearest training image", "RMS"),
    "moved": ("distance to the start of the chain", "RMS"),
}
_STARTS = {"data": "from test images", "noise": "from noise", "buffer": "from the buffer"}
_CHAINS = 3
"""Chains in a strip."""


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan a figure for each model."""
    for result in results:
        yield result.figure("chain-drift", drift, result.title, result.arrays)


def drift(title: str, arrays: Arrays) -> Drawing:
    """Draw a panel per quantity, and a strip of images per start."""
    from matplotlib.ticker import NullLocator

    starts = [start for start in _STARTS if f"moved-{start}" in arrays]
    times = arrays["times"]
    trained = int(arrays["trained"])
    places = np.where(times > 0, times, times[1] / 3)
    texts = [f"{time:,}" for time in times]
    strips = -(-len(starts) // 2)
    # so high that the strips' images are square
    strip = (drawing.page() / 2 - 0.3) * _CHAINS / len(times) + 0.35
    heights = [1.6, 1.6, *[strip] * strips]
    height = 3.6 + strip * strips
    figure, panels = drawing.panels(title, height, 4 + len(starts), 2, height_ratios=heights)
    rows: list[dict[str, Any]] = []
    pairs = zip(panels, _CURVES.items(), strict=False)
    for axes, (quantity, (name, unit)) in pairs:
        drawn = []
        for number, start in enumerate(starts):
            values = arrays[f"{quantity}-{start}"].astype("float64")
            means = values if values.ndim == 1 else values.mean(axis=1)
            if quantity == "energy":
                means = means - arrays["energy-test"].mean()
            style = drawing.line(number)
            axes.plot(places, means, label=_STARTS[start], **style)
            # limits leave out the start of noise, which is far away: its curve comes in from above
            drawn.append(means[start == "noise" :])
            columns = {"steps": times, "value": means}
            rows += rows_of(columns, quantity=quantity, start=start)
        style = {"color": drawing.BLACK, "linewidth": drawing.HAIR, "linestyle": ":"}
        axes.axvline(trained, label="steps in training", **style)
        low = np.concatenate(drawn).min()
        high = np.concatenate(drawn).max()
        margin = 0.06 * (high - low)
        ylim = (low - margin, high + margin)
        axes.set(xscale="log", xlabel="steps", ylabel=unit, ylim=ylim)
        axes.set_title(drawing.above(name, 2))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(places, texts)
    for axes, start in zip(panels[4:], starts, strict=True):
        _draw_strip(axes, arrays[f"images-{start}"][:, :_CHAINS], texts)
        axes.set(title=_STARTS[start], xlabel="steps")
    drawing.legend_below(figure, panels[0], columns=4)
    return Drawing(figure, rows)


def _draw_strip(axes: Axes, images: Pixels, texts: list[str]) -> None:
    """Draw images (T, N, C, H, W), a row per chain."""
    by_chain = images.swapaxes(0, 1)
    chains, count, *shape = by_chain.shape
    places = np.arange(chains * count).reshape(chains, count)
    picture = sheet(by_chain.reshape(-1, *shape), places)
    draw_sheet(axes, picture)
    middles = np.arange(count) + 0.5
    axes.set_xticks(middles * picture.shape[1] / count, texts)
