"""The joint view: every model in every respect, with the Pareto front and published numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jembench import drawing
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.interfaces import Value
from jembench.report.figures.base import Drawing, Planned, error_bars, planned
from jembench.report.respects import COSTS, compared, front, headline
from jembench.report.rows import Row, grouped
from jembench.report.scale import Scale, scale
from jembench.report.table import fixed
from jembench.report.tables import heading_of, outliers_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jembench.report.layout import Report
    from jembench.report.significance import Significance

_IN_A_LINE = 6
"""The most panels side by side."""

_LOOKS: Mapping[str, dict[str, Any]] = {
    "on the Pareto front": {"marker": "o", "color": drawing.BLUE},
    "dominated by another model": {
        "marker": "o",
        "color": drawing.BLACK,
        "markerfacecolor": drawing.WHITE,
    },
    "not compared": {"marker": "o", "color": drawing.GREY, "markerfacecolor": drawing.WHITE},
    "published": {"marker": "D", "color": drawing.GREY},
}


def plan(report: Report, names: DisplayNames = NO_NAMES) -> Iterator[Planned]:
    """Plan a figure for each dataset with several models and respects."""
    named = [
        replace(row, name=names.models.get((row.model, row.recipe), row.name))
        for row in report.joined
    ]
    for on in grouped(named, lambda row: row.dataset):
        respects = headline(on)
        fits = [cell.fit for cell in report.cells if cell.fit.dataset == on[0].dataset]
        if len(respects.keys() - COSTS.keys()) > 1 and len({fit.names for fit in fits}) > 1:
            title = f"All respects at once: {on[0].dataset_name}"
            yield planned("joint", fits, partial(panels, title, respects, report.significance))


def panels(
    title: str, respects: Mapping[str, Sequence[Row]], significance: Significance | None
) -> Drawing:
    """Draw a panel for each respect, with a value and its interval for each model.

    Models in the front are bold.
    """
    from matplotlib.ticker import EngFormatter

    every = sorted(
        (row for found in respects.values() for row in found), key=lambda row: bool(row.source)
    )
    names = {
        (row.fit, row.name): row.name.rpartition(" · ")[0] if row.source else row.name
        for row in every
    }
    models = list(names)
    in_front = front(respects, significance.is_better) if significance else set()
    looks = list(_LOOKS)
    standing = {fit: looks[fit not in in_front] for fit in compared(respects)}
    lines_of_panels = 1 + (len(respects) > _IN_A_LINE)
    labels = [drawing.wrapped(name, 1.7) for name in names.values()]
    lines_of_labels = [1 + label.count("\n") for label in labels]
    ends = list(itertools.accumulate(lines_of_labels))  # a row is as high as its label
    places = [end - count / 2 for end, count in zip(ends, lines_of_labels, strict=True)]
    height = lines_of_panels * (1.1 + 0.2 * ends[-1])
    columns = -(-len(respects) // lines_of_panels)
    if drawing.page() < drawing.PAGE:
        columns = 1  # beside the names there is room for one panel
        height *= len(respects) / lines_of_panels
    figure, axes_of = drawing.panels(title, height, len(respects), columns, sharey=True)
    lines: list[dict[str, Any]] = []
    for axes, (respect, found) in zip(axes_of, respects.items(), strict=True):
        first = next(row for row in found if row.value is not None and not row.source)
        heading = heading_of(first, outliers_in(first.protocol))
        axes.set(title=respect, xlabel=f"{heading.label}\n{heading.detail}", ylim=(ends[-1], 0))
        ticks = axes.set_yticks(places, labels)
        for tick, (fit, _) in zip(ticks, models, strict=True):
            tick.label1.set_fontweight("bold" if fit in in_front else "normal")
        if axis := scale(found):
            axes.set(xlim=(axis.low, axis.high), xticks=sorted({*axis.ticks[:1], *axis.ticks[-1:]}))
            axes.xaxis.set_major_formatter(EngFormatter(sep="") if axis.high >= 10_000 else "{x:g}")
        for row in found:
            look = "published" if row.source else standing.get(row.fit, "not compared")
            _draw(axes, row, places[models.index((row.fit, row.name))], _LOOKS[look], axis)
            about = {
                "model": row.name,
                "respect": respect,
                "value_of": heading.in_one_line,
                "standing": look,
            }
            lines.append({**about, "value": row.value, "low": row.low, "high": row.high})
    for label in dict.fromkeys(line["standing"] for line in lines):
        axes_of[0].plot([], [], linestyle="none", label=label, **_LOOKS[label])
    drawing.legend_below(figure, axes_of[0], columns=3)
    return Drawing(figure, lines)


def _draw(axes: Axes, row: Row, place: float, look: Mapping[str, Any], axis: Scale | None) -> None:
    """Draw a value; one beyond the axis as a number at its end, and N/A in words."""
    at_end: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "fontsize": "small",
    }
    if row.value is None or axis is None:
        axes.text(
            0.5,
            place,
            {"na": "N/A"}.get(row.status, row.status),
            ha="center",
            color=drawing.GREY,
            **at_end,
        )
        return
    if row.value > axis.high:
        axes.text(1, place, f"{fixed(row.value, 1)} ▸", ha="right", **at_end)
    elif row.value < axis.low:
        axes.text(0, place, f"◂ {fixed(row.value, 1)}", ha="left", **at_end)
    else:
        ends = error_bars([Value(row.value, row.low, row.high, row.n or 0)])
        axes.errorbar(row.value, place, xerr=ends, linestyle="none", elinewidth=0.8, **look)
