"""From cells to the document of a report: rows, our tables with published rows below, then the published tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jembench.errors import SpecError
from jembench.experiment.names import NO_NAMES, Names
from jembench.experiment.plan import Part
from jembench.report import respects
from jembench.report.formats import Document
from jembench.report.published import Published, beside, published_table
from jembench.report.rows import FIELDS, ORIGIN, Row, headed, mark_chance, mark_incomparable, mean, rows
from jembench.report.select import WHOLE, Selection, select
from jembench.report.table import Footnote, Footnotes, Table
from jembench.report.tables import Tables
from jembench.store.outcome import Cell

if TYPE_CHECKING:
    from jembench.report.comparison import Read, Significance

NOTHING = "No results yet."
NO_RESPECT = "No result has a value that stands for a respect of the joint view."


def build(
    cells: Iterable[Cell],
    *,
    parts: Sequence[Part] = (),
    published: Sequence[Published] = (),
    selection: Selection = WHOLE,
    names: Names = NO_NAMES,
    joint: bool = False,
    read: Read | None = None,
    page: Callable[..., Any] | None = None,
) -> Document:
    """Return the results of cells, as means over their seeds: the rows of ours, then the published ones.

    Args:
        cells: in the order in which their models shall appear.
        parts: of a suite, each with metrics of its own; none: all metrics of the cells.
        published: the numbers of papers to show.
        selection: which metrics and columns are shown.
        names: display names by canonical specs and recipes.
        joint: whether the joint view is the table of ours.
        read: gives a cell's per-example values, by which the best values are found; None: none are marked.
        page: collects the page of the rows of the joint view, our tables, the published tables and the tests.
    """
    seeds = rows(cells, names)
    labels = list(dict.fromkeys(select("column", selection.columns, [row.column for row in seeds], str)))
    seeds = [row for row in seeds if row.column in labels]
    means = mark_chance(mark_incomparable(mean(seeds)))
    fits = list(dict.fromkeys(row.fit for row in means))
    means += [headed(row, names) for row in _not_run(means, parts)]
    means = select("metric", selection.metrics if means else None, means, lambda row: row.metric)
    metrics = dict.fromkeys(row.metric for row in means)
    if selection.columns is not None:
        means = sorted((row for row in means if row.column in labels), key=lambda row: labels.index(row.column))
    means = sorted(means, key=lambda row: fits.index(row.fit))
    if selection.metrics is not None:
        parts = [part._replace(metrics=tuple(name for name in metrics if name in part.metrics)) for part in parts]
    if selection.metrics is not None or selection.columns is not None:
        published = [number for number in published if number.quantity in labels]
    order = labels if selection.columns else ()
    shown = [*means, *(number.row for number in published)]

    def all_tables(significance: Significance | None = None) -> list[Table]:
        ours, others = found(significance)
        if others and not all(number.requested for number in published):
            names = ",".join(dict.fromkeys(number.table for number in published))
            hint = Footnote(f"Published numbers that are not comparable with these: --reference {names} shows them.")
            others, ours[-1] = [], replace(ours[-1], footnotes=(*ours[-1].footnotes, hint))
        return [*ours, *others]

    chosen = [row for row in seeds if row.metric in metrics]

    def joined() -> list[Row]:
        return respects.rows_of(chosen, means, beside(published, means)[0])

    def found(significance: Significance | None) -> tuple[list[Table], list[Table]]:
        return tables(means, parts, published, order, significance, names, joined() if joint else None)

    def tests() -> Significance | None:
        from jembench.report.comparison import Significance  # slow to import, and to use

        return Significance([*seeds, *respects.over_sets(chosen)], read) if read else None

    def whole_page() -> Any:
        significance = tests()
        return page and page(joined(), *found(significance), significance)

    return Document(
        tables=lambda: all_tables(tests() if joint else None),
        judged=lambda: all_tables(tests()),
        records=lambda: [row.as_dict() for row in shown],
        fields=FIELDS,
        page=whole_page if page else None,
        rows=means,
        seeds=mark_chance(seeds),
    )


def _not_run(rows: Sequence[Row], parts: Iterable[Part]) -> list[Row]:
    """Return a row for each value that a part of a suite asks for and a trained model lacks."""
    known, fits = {(row.fit, row.metric) for row in rows}, {row.fit: row for row in rows}
    labels: dict[str, dict[str, Row]] = {}
    for row in rows:
        labels.setdefault(row.metric, {}).setdefault(row.label, row)
    asked = dict.fromkeys((fit, metric) for part in parts for fit in part.rows for metric in part.rows[fit])
    found = []
    for fit, metric in asked:
        if fit in fits and (fit, metric) not in known:
            model: dict[str, Any] = {name: getattr(fits[fit], name) for name in _MODEL}
            for label, like in labels.get(metric, {"": Row(name="", dataset="")}).items():
                value: dict[str, Any] = {"label": label, "unit": like.unit, "better": like.better}
                found.append(Row(**model, **value, metric=metric, status="not run"))
    return found


_MODEL = ("model", "name", "dataset", "recipe", "dataset_name")
"""The fields of a row that are of its model."""


def tables(
    rows: Sequence[Row],
    parts: Sequence[Part],
    published: Sequence[Published],
    labels: Sequence[str],
    significance: Significance | None,
    names: Names,
    joined: Sequence[Row] | None = None,
) -> tuple[list[Table], list[Table]]:
    """Return our tables, and the published tables that have numbers without a place in ours.

    Args:
        rows: means over seeds, in the order of the models, and those that are not run.
        parts: of a suite; none: all metrics.
        published: the numbers of papers to be shown beside or below ours.
        labels: the order of the columns; empty: that of the metrics.
        significance: finds the best values; None: none are marked.
        names: display names of recipes.
        joined: the rows of the joint view, which is then the table of ours; None: it is not.
    """
    notes = Footnotes()
    found, left = beside(published, rows)
    if joined is None:
        best = significance.best if significance else None
        ours = list(Tables([*rows, *found], parts, labels, notes, best, names).of_parts())
    else:
        view = respects.table(Tables(joined, parts, labels, notes, None, names), significance)
        ours = [view] if view else []
    nothing = Table(title="Results", footnotes=(Footnote(NO_RESPECT if rows else NOTHING),))
    return ours or [nothing], [published_table(rest, rows, notes) for rest in left]


def of_seeds(document: Document) -> Document:
    """Return the values of each seed, for formats that programs read."""

    def refuse() -> list[Table]:
        raise SpecError("The values of each seed are for programs. Choose --format csv, json or parquet.")

    records = [row.as_dict() for row in document.seeds]
    return Document(tables=refuse, records=lambda: records, fields=(*FIELDS, *ORIGIN))
