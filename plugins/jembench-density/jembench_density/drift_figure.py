"""Long chains: energies and distances against the number of steps, and images of a few chains.

With ``chain-drift:at=5+10+20+50+100`` it is Figure 3 of the reproducibility report of Grathwohl et
al. (2020).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jembench import drawing
from jembench.data.grid import sheet
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, rows_of
from jembench.report.figures.images import draw_sheet

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
    """Draw a panel of curves for each quantity, and a strip of images for each start."""
    from matplotlib.ticker import NullLocator

    starts = [start for start in _STARTS if f"moved-{start}" in arrays]
    times, trained = arrays["times"], int(arrays["trained"])
    places, texts = np.where(times > 0, times, times[1] / 3), [f"{time:,}" for time in times]
    strips = -(-len(starts) // 2)
    strip = (drawing.page() / 2 - 0.3) * _CHAINS / len(times) + 0.35
    figure, panels = drawing.panels(
        title, 3.6 + strip * strips, 4 + len(starts), 2, height_ratios=[1.6, 1.6, *[strip] * strips]
    )
    rows: list[dict[str, Any]] = []
    for axes, (quantity, (name, unit)) in zip(panels, _CURVES.items(), strict=False):
        drawn = []
        for number, start in enumerate(starts):
            values = arrays[f"{quantity}-{start}"].astype("float64")
            means = values if values.ndim == 1 else values.mean(axis=1)
            means = means - arrays["energy-test"].mean() * (quantity == "energy")
            axes.plot(places, means, label=_STARTS[start], **drawing.line(number))
            # noise itself is far away, and its curve comes in from above
            drawn.append(means[start == "noise" :])
            rows += rows_of({"steps": times, "value": means}, quantity=quantity, start=start)
        axes.axvline(
            trained,
            color=drawing.BLACK,
            linewidth=drawing.HAIR,
            linestyle=":",
            label="steps in training",
        )
        low, high = np.concatenate(drawn).min(), np.concatenate(drawn).max()
        margin = 0.06 * (high - low)
        axes.set(
            xscale="log",
            xlabel="steps",
            ylabel=unit,
            title=drawing.above(name, 2),
            ylim=(low - margin, high + margin),
        )
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(places, texts)
    for axes, start in zip(panels[4:], starts, strict=True):
        images = arrays[f"images-{start}"][:, :_CHAINS].swapaxes(0, 1)
        places = np.arange(images.shape[0] * images.shape[1]).reshape(images.shape[:2])
        picture = sheet(images.reshape(-1, *images.shape[2:]), places)
        draw_sheet(axes, picture)
        axes.set_xticks((np.arange(len(times)) + 0.5) * picture.shape[1] / len(times), texts)
        axes.set(title=_STARTS[start], xlabel="steps")
    drawing.legend_below(figure, panels[0], columns=4)
    return Drawing(figure, rows)
