"""True and models' densities of the plane, with samples of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.report.figures.base import Drawing, Numbers, Planned, Result, figure_of
from jembench.report.rows import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = 256
_COLUMNS = 6
_DOTS = 500
"""The largest number of samples that are shown."""


class _Density(NamedTuple):
    title: str
    cells: Numbers
    samples: NDArray[Any] | None


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan a figure for each dataset of the plane, with all models."""
    planar = []
    for result in results:
        if np.size(result.arrays.get("true-cells", ())) == _LEVELS**2:
            planar.append(result)
    for group in grouped(planar, lambda result: result.place):
        yield figure_of(group, "density-error", densities, group)


def densities(results: Sequence[Result]) -> Drawing:
    """Draw the true density and each model's, above its samples."""
    first = results[0].arrays
    columns = drawing.fitting(min(_COLUMNS, 1 + len(results)))
    width = drawing.page() if columns > 2 else drawing.column()
    side = width / columns - 0.06
    shown = [_Density("truth", first["true-cells"], first["test"])]
    for result in results:
        title = f"{drawing.wrapped(result.model, side)}\nKL {result.values['kl'].value:.3f}"
        cells = np.exp(result.arrays["log-cells"])
        shown.append(_Density(title, cells, result.arrays.get("samples")))
    rows = -(-len(shown) // columns)
    lines = max(title.count("\n") for title, _, _ in shown)
    height = 0.65 + rows * (0.3 + 0.13 * lines + 2 * side)
    fit = results[0].fit
    name = f"Density and samples on {fit.dataset}, seed {fit.seed}; KL(data || model) in nats"
    count = 2 * rows * columns
    figure, grid = drawing.panels(name, height, count, columns, width=width)
    for axes in grid:
        axes.set_axis_off()
    for place, (title, cells, samples) in enumerate(shown):
        above = 2 * columns * (place // columns) + place % columns
        highest = float(first["true-cells"].max())
        _draw(grid[above], title, cells, highest)
        if samples is not None:
            # shuffled, since samples of classes may come in turns
            drawn = np.random.default_rng(0).permutation(samples)[:_DOTS]
            _scatter(grid[above + columns], drawn)
    scale: dict[str, Any] = {"extend": "max", "extendfrac": 0.02, "aspect": 60, "shrink": 0.6}
    scale |= {"ticks": [], "label": "p(x): 0 to the highest true one"}
    figure.colorbar(grid[0].images[0], ax=grid, location="bottom", **scale)
    table = []
    for result in results:
        for quantity, value in result.values.items():
            columns_of_row = {"model": result.model, "quantity": quantity, "value": value.value}
            table.append({**columns_of_row, "low": value.low, "high": value.high})
    return Drawing(figure, table)


def _draw(axes: Axes, title: str, cells: Numbers, top: float) -> None:
    """Draw the masses of all cells (M,), images' first numbers horizontally."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = [drawing.WHITE, drawing.SKY, drawing.BLUE, drawing.BLACK]
    colours = LinearSegmentedColormap.from_list("", shades)
    picture = cells.reshape(_LEVELS, _LEVELS).T
    axes.imshow(picture, origin="lower", cmap=colours, vmin=0, vmax=top)
    _frame(axes)
    axes.set_title(title)


def _scatter(axes: Axes, samples: NDArray[Any]) -> None:
    """Draw images of two numbers, (n, 2), as dots."""
    style = {"color": drawing.BLUE, "markersize": 1.2}
    axes.plot(*samples.T, ".", **style)
    limits = (-0.5, _LEVELS - 0.5)
    axes.set(aspect="equal", xlim=limits, ylim=limits)
    _frame(axes)


def _frame(axes: Axes) -> None:
    """Show all four edges of a panel, and no ticks."""
    axes.set_axis_on()
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
