"""The joint view: every model in every respect, with the Pareto front and published numbers.

A page shows the same values on axes of the same kind, as elements that sort and filter
(``page/plots.html``).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jembench import drawing
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.interfaces import Value
from jembench.report.figures.base import Drawing, Planned, error_bars, legend_entry, planned
from jembench.report.respects import COSTS, compared, front, headline
from jembench.report.rows import Row, grouped
from jembench.report.scale import Scale, scale
from jembench.report.table import fixed
from jembench.report.tables import heading_of, outliers_in
from jembench.store.outcome import Trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jembench.report.layout import Report
    from jembench.report.significance import Significance

_IN_A_LINE = 6
"""The most panels side by side."""

_LOOKS: Mapping[str, dict[str, Any]] = {
    "on the Pareto front": {"color": drawing.BLUE},
    "dominated by another model": {"color": drawing.BLACK, "markerfacecolor": drawing.WHITE},
    "not tested": {"color": drawing.BLACK},
    "not compared": {"color": drawing.GREY, "markerfacecolor": drawing.WHITE},
    "published": {"marker": "D", "color": drawing.GREY},
}
"""The markers of models by their standing; circles by default."""


def plan(report: Report, names: DisplayNames = NO_NAMES) -> Iterator[Planned]:
    """Plan a figure for each dataset with several models and respects."""
    rows = []
    for row in report.joined:
        name = names.models.get((row.model, row.recipe), row.name)
        rows.append(replace(row, name=name))
    for on in grouped(rows, lambda row: row.dataset):
        respects, dataset = headline(on), on[0].dataset
        fits = [cell.fit for cell in report.cells if cell.fit.dataset == dataset]
        several_models = len({fit.names for fit in fits}) > 1
        if several_models and len(respects.keys() - COSTS.keys()) > 1:
            title = f"All respects at once: {on[0].dataset_name}"
            yield planned("joint", fits, partial(panels, title, respects, report.significance))


def panels(
    title: str, respects: Mapping[str, Sequence[Row]], significance: Significance | None
) -> Drawing:
    """Draw a panel for each respect, with a value and its interval for each model.

    Models in the front are bold.
    """
    in_front = front(respects, significance.is_better) if significance else None
    comparable = compared(respects)
    labels = _labels(respects)
    places, end = {}, 0
    for model, label in labels.items():
        lines_of_label = 1 + label.count("\n")  # a row is as high as its label
        places[model] = end + lines_of_label / 2
        end += lines_of_label

    count = len(respects)
    rows_of_panels = 1 + (count > _IN_A_LINE)
    columns = -(-count // rows_of_panels)
    if drawing.page() < drawing.PAGE:
        rows_of_panels, columns = count, 1  # beside the names there is room for only one panel
    height = rows_of_panels * (1.1 + 0.2 * end)
    figure, axes_of_respects = drawing.panels(title, height, count, columns, sharey=True)
    lines: list[dict[str, Any]] = []
    for axes, (respect, rows) in zip(axes_of_respects, respects.items(), strict=True):
        first = next(row for row in rows if row.value is not None and not row.source)
        heading = heading_of(first, outliers_in(first))
        axes.set(title=respect, xlabel=f"{heading.label}\n{heading.detail}", ylim=(end, 0))
        texts = list(labels.values())
        ticks = axes.set_yticks(list(places.values()), texts)
        for tick, (fit, _) in zip(ticks, labels, strict=True):
            tick.label1.set_fontweight("bold" if fit in (in_front or ()) else "normal")
        axis = scale(rows)
        if axis:
            _show(axes, axis)
        for row in rows:
            standing = _standing(row, comparable, in_front)
            place = places[row.fit, row.name]
            _draw(axes, row, place, _LOOKS[standing], axis)
            about = {"model": row.name, "respect": respect, "value_of": heading.in_one_line}
            numbers = {"value": row.value, "low": row.low, "high": row.high}
            lines.append({**about, "standing": standing, **numbers})
    for standing in dict.fromkeys(line["standing"] for line in lines):
        look = {"marker": "o", "linestyle": "none", **_LOOKS[standing]}
        legend_entry(axes_of_respects[0], standing, **look)
    drawing.legend_below(figure, axes_of_respects[0], columns=3)
    return Drawing(figure, lines)


def _labels(respects: Mapping[str, Sequence[Row]]) -> dict[tuple[Trained, str], str]:
    """Return the label of each model, our models before those of papers."""
    labels = {}
    rows = itertools.chain(*respects.values())
    for row in sorted(rows, key=lambda row: bool(row.source)):
        name = row.name
        if row.source:
            name, _, _ = name.rpartition(" · ")
        labels[row.fit, row.name] = drawing.wrapped(name, 1.7)
    return labels


def _standing(
    row: Row, comparable: Collection[Trained], in_front: Collection[Trained] | None
) -> str:
    """Return a model's standing, which decides on the look.

    ``in_front`` is None if no difference was tested.
    """
    if row.source:
        return "published"
    if row.fit not in comparable:
        return "not compared"
    if in_front is None:
        return "not tested"
    if row.fit in in_front:
        return "on the Pareto front"
    return "dominated by another model"


def _show(axes: Axes, axis: Scale) -> None:
    """Show the range of a scale, with its first and last tick."""
    from matplotlib.ticker import EngFormatter

    axes.set_xlim(axis.low, axis.high)
    axes.set_xticks(sorted({*axis.ticks[:1], *axis.ticks[-1:]}))
    axes.xaxis.set_major_formatter("{x:g}")
    if axis.high >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw(axes: Axes, row: Row, place: float, look: Mapping[str, Any], axis: Scale | None) -> None:
    """Draw a value; beyond the axis, a number at the end; without one, words."""
    at_end: dict[str, Any] = {"transform": axes.get_yaxis_transform()}
    at_end |= {"va": "center", "fontsize": "small"}
    if row.value is None or axis is None:
        reason = "N/A" if row.status == "na" else row.status
        axes.text(0.5, place, reason, ha="center", color=drawing.GREY, **at_end)
    elif row.value > axis.high:
        axes.text(1, place, f"{fixed(row.value, 1)} ▸", ha="right", **at_end)
    elif row.value < axis.low:
        axes.text(0, place, f"◂ {fixed(row.value, 1)}", ha="left", **at_end)
    else:
        value = Value(row.value, row.low, row.high, row.n or 0)
        ends = error_bars([value])
        marker = {"marker": "o", "linestyle": "none", "elinewidth": 0.8, **look}
        axes.errorbar(row.value, place, xerr=ends, **marker)
