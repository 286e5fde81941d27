"""From cells to a report: rows, our tables with published rows below, then the published tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jembench.errors import SpecError
from jembench.experiment.names import NO_NAMES, Names
from jembench.experiment.plan import Part
from jembench.report import respects
from jembench.report.formats import Document
from jembench.report.published import Published, beside, published_table
from jembench.report.rows import (
    FIELDS,
    ORIGIN,
    Row,
    headed,
    mark_chance,
    mark_incomparable,
    mean,
    rows,
    spread,
)
from jembench.report.select import WHOLE, Selection, select
from jembench.report.table import Footnote, Table, numbered
from jembench.report.tables import Tables
from jembench.store.outcome import Cell

if TYPE_CHECKING:
    from jembench.report.comparison import Read
    from jembench.report.significance import Significance

NOTHING = "No results yet."
NO_RESPECT = "No result has a value that stands for a respect of the joint view."


class Report(Document):
    """The results of cells as means over their seeds, with published rows, and below them the
    published tables.

    Args:
        cells: in the order in which their models shall appear.
        parts: of a suite, each with metrics of its own; none: all metrics of the cells.
        published: the numbers of papers to show.
        selection: which metrics and columns are shown.
        names: display names by canonical specs and recipes.
        joint: whether the joint view is the table of ours.
        read: gives a cell's per-example values, by which the best values are found; None: none are
            marked.
        page: makes the page of the report; None: it is one of the tables.

    Attributes:
        rows: means over seeds, in the order of the models, and those that are not run.
        seeds: the values of each seed.
    """

    fields = FIELDS

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        parts: Sequence[Part] = (),
        published: Sequence[Published] = (),
        selection: Selection = WHOLE,
        names: Names = NO_NAMES,
        joint: bool = False,
        read: Read | None = None,
        page: Callable[[Report], Any] | None = None,
    ) -> None:
        self.cells, self.names, self._joint, self._read, self._page = (
            cells,
            names,
            joint,
            read,
            page,
        )
        seeds = rows(cells, names)
        labels = list(
            dict.fromkeys(select("column", selection.columns, [row.column for row in seeds], str))
        )
        self.seeds = [row for row in seeds if row.column in labels]
        means = mark_chance(mark_incomparable(mean(self.seeds)))
        fits = list(dict.fromkeys(row.fit for row in means))
        means = spread([*means, *_not_run(means, parts, names)], lambda row: row.metric)
        means = select(
            "metric", selection.metrics if means else None, means, lambda row: row.metric
        )
        metrics = list(dict.fromkeys(row.metric for row in means))
        if selection.columns is not None:
            means = sorted(
                (row for row in means if row.column in labels),
                key=lambda row: labels.index(row.column),
            )
        self.rows = sorted(means, key=lambda row: fits.index(row.fit))
        if selection.metrics is not None:
            own = [tuple(name for name in metrics if name in part.metrics) for part in parts]
            parts = [
                part._replace(metrics=of_part) for part, of_part in zip(parts, own, strict=True)
            ]
        if selection.metrics is not None or selection.columns is not None:
            published = [number for number in published if number.quantity in labels]
        self._parts, self._published, self._order = (
            parts,
            published,
            labels if selection.columns else (),
        )

    def tables(self, *, paper: bool = False) -> list[Table]:
        """Return our tables, then the published tables that were asked for; not for a paper: a hint
        at the others.
        """
        ours, others = self.tables_of(self.significance if paper or self._joint else None)
        if others and not all(number.requested for number in self._published):
            names = ",".join(dict.fromkeys(number.table for number in self._published))
            hint = Footnote(
                f"Published numbers that are not comparable with these: --reference {names} shows them."
            )
            return (
                ours
                if paper
                else [*ours[:-1], replace(ours[-1], footnotes=(*ours[-1].footnotes, hint))]
            )
        return [*ours, *others]

    def tables_of(self, significance: Significance | None) -> tuple[list[Table], list[Table]]:
        """Return our tables, and the published tables that have numbers without a place in ours.

        Args:
            significance: finds the best values; None: none are marked.
        """
        placed, left = beside(self._published, self.rows)
        if self._joint:
            view = respects.table(self.joined, significance, self._order, self.names)
            ours = [view] if view else []
        else:
            best = significance.best if significance else None
            ours = list(
                Tables([*self.rows, *placed], self._parts, self._order, best, self.names).of_parts()
            )
        ours = ours or [
            Table(title="Results", footnotes=(Footnote(NO_RESPECT if self.rows else NOTHING),))
        ]
        # which all selected cells share
        if limit := next((cell.limit for cell in self.cells), None):
            ours = [
                replace(table, title=f"{table.title} · {limit:,} test images") for table in ours
            ]
        found = numbered([*ours, *(published_table(rest, self.rows) for rest in left)])
        return found[: len(ours)], found[len(ours) :]

    @cached_property
    def joined(self) -> list[Row]:
        """The rows of the joint view."""
        return respects.rows_of(self.rows, beside(self._published, self.rows)[0])

    @cached_property
    def significance(self) -> Significance | None:
        """The tests of differences between the values; None without per-example values."""
        from jembench.report.significance import Significance  # slow to import, and to use

        return Significance(self.seeds, self._read) if self._read else None

    def records(self) -> list[dict[str, Any]]:
        """Return the means and the published numbers for programs."""
        return [row.as_dict() for row in (*self.rows, *(number.row for number in self._published))]

    def page(self) -> Any:
        """Return the page of the results; None: it is not known."""
        return self._page(self) if self._page else None


class PerSeed(Document):
    """The values of each seed of a report, for formats that programs read."""

    fields = (*FIELDS, *ORIGIN)

    def __init__(self, report: Report) -> None:
        super().__init__(records=[row.as_dict() for row in mark_chance(report.seeds)])

    def tables(self, *, paper: bool = False) -> list[Table]:
        """Refuse to be shown to people.

        Raises:
            SpecError: always.
        """
        raise SpecError(
            "The values of each seed are for programs. Choose --format csv, json or parquet."
        )


def _not_run(rows: Sequence[Row], parts: Iterable[Part], names: Names) -> Iterator[Row]:
    """Yield a row for each metric that a part of a suite asks for and a trained model lacks."""
    known, fits = {(row.fit, row.metric) for row in rows}, {row.fit: row for row in rows}
    asked = dict.fromkeys(
        (fit, metric) for part in parts for fit in part.rows for metric in part.rows[fit]
    )
    for fit, metric in asked:
        if fit in fits and (fit, metric) not in known:
            model: dict[str, Any] = {name: getattr(fits[fit], name) for name in _MODEL}
            yield headed(Row(**model, metric=metric, status="not run"), names)


_MODEL = ("model", "name", "dataset", "recipe", "dataset_name")
"""The fields of a row that are of its model."""
