"""From cells to a report: rows, our tables, published tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment.names import NO_NAMES, DisplayNames
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
    """The means of results over seeds, with published numbers.

    Args:
        cells: in the order in which their models shall appear.
        parts: of a suite, each with metrics of its own; none: all metrics of the cells.
        published: the numbers of papers to show.
        selection: which metrics and columns are shown.
        names: display names by canonical specs and recipes.
        joint: True if our table is the joint view.
        read: gives a cell's per-example values, which decide on the best values; None: no value is
            marked.
        page: makes the page of the report; None: the page shows the tables.

    Attributes:
        rows: means over seeds, and rows of metrics not run, in the order of the models.
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
        names: DisplayNames = NO_NAMES,
        joint: bool = False,
        read: Read | None = None,
        page: Callable[[Report], Any] | None = None,
    ) -> None:
        self.cells, self.names = cells, names
        self._joint, self._read, self._page = joint, read, page
        self._order: list[str] = []
        self._parts, self._published = list(parts), list(published)
        seeds = rows(cells, names)
        in_order = select("column", selection.columns, seeds, lambda row: row.column)
        labels = list(dict.fromkeys(row.column for row in in_order))
        self.seeds = [row for row in seeds if row.column in labels]
        means = _means(self.seeds, parts, names, selection.metrics)
        if selection.columns is not None:
            self._order = labels
            means = [row for row in means if row.column in labels]
            means.sort(key=lambda row: labels.index(row.column))
        if selection.metrics is not None or selection.columns is not None:
            metrics = dict.fromkeys(row.metric for row in means)
            of_parts = set(chain.from_iterable(part.metrics for part in parts))
            self._parts = [_part_of(part, metrics, of_parts) for part in parts]
            self._published = [number for number in published if number.quantity in labels]

        fits = list(dict.fromkeys(row.fit for row in self.seeds))
        self.rows = sorted(means, key=lambda row: fits.index(row.fit))

    def tables(self, *, paper: bool = False) -> list[Table]:
        """Return our tables, then published tables that the user requested.

        A footnote names tables that were not requested, except in a paper.
        """
        ours, published = self.tables_of(self.significance if paper or self._joint else None)
        if not published or all(number.requested for number in self._published):
            return [*ours, *published]
        if not paper:
            names = ",".join(dict.fromkeys(number.table for number in self._published))
            hint = "Published numbers that are not comparable with these"
            note = Footnote(f"{hint}: --reference {names} shows them.")
            ours[-1] = replace(ours[-1], footnotes=(*ours[-1].footnotes, note))
        return ours

    def tables_of(self, significance: Significance | None) -> tuple[list[Table], list[Table]]:
        """Return our tables, and published tables with numbers that have no place in ours.

        Args:
            significance: finds the best values; None: no value is marked.
        """
        placed, elsewhere = beside(self._published, self.rows)
        if self._joint:
            view = respects.table(self.joined, significance, self._order, self.names)
            ours = [view] if view else []
        else:
            best = significance.best if significance else None
            every = [*self.rows, *placed]
            ours = list(Tables(every, self._parts, self._order, best, self.names).of_parts())
        if not ours:
            note = Footnote(NO_RESPECT if self.rows else NOTHING)
            ours = [Table(title="Results", footnotes=(note,))]
        if self.cells and (images := self.cells[0].images):  # which all cells share
            ours = [replace(table, title=f"{table.title} · {images}") for table in ours]
        published = [published_table(table, self.rows) for table in elsewhere]
        tables = numbered([*ours, *published])
        return tables[: len(ours)], tables[len(ours) :]

    @cached_property
    def joined(self) -> list[Row]:
        """The rows of the joint view."""
        return respects.rows_of(self.rows, beside(self._published, self.rows)[0])

    @cached_property
    def significance(self) -> Significance | None:
        """The tests of differences between the values; None without per-example values."""
        from jembench.report.significance import Significance  # slow to import, and to use

        if self._read:
            return Significance(self.seeds, self._read)
        return None

    def records(self) -> list[dict[str, Any]]:
        """Return the means and the published numbers for programs."""
        published = [number.row for number in self._published]
        return list(map(Row.as_dict, (*self.rows, *published)))

    def page(self) -> Any:
        """Return the page of the results; None if ``page`` was not given."""
        if self._page:
            return self._page(self)
        return None


class PerSeed(Document):
    """The values of each seed of a report, for programs."""

    fields = (*FIELDS, *ORIGIN)

    def __init__(self, report: Report) -> None:
        super().__init__(records=list(map(Row.as_dict, mark_chance(report.seeds))))

    def tables(self, *, paper: bool = False) -> list[Table]:
        """Refuse, since the values of each seed are for programs.

        Raises:
            SpecError: always.
        """
        raise SpecError(
            "The values of each seed are for programs. Choose --format csv, json or parquet."
        )


def _means(
    seeds: Sequence[Row],
    parts: Sequence[Part],
    names: DisplayNames,
    metrics: Sequence[str] | None,
) -> list[Row]:
    """Return the means of selected metrics, and what was not run."""
    means = mark_chance(mark_incomparable(mean(seeds)))
    means = spread([*means, *_not_run(means, parts, names)], lambda row: row.metric)
    if means:
        return select("metric", metrics, means, lambda row: row.metric)
    return []


def _part_of(part: Part, metrics: Collection[Spec], of_parts: Collection[Spec]) -> Part:
    """Return a part of a suite with its selected metrics, and those that no part has."""
    elsewhere = {*of_parts} - {*part.metrics}
    return part._replace(metrics=tuple(metric for metric in metrics if metric not in elsewhere))


def _not_run(rows: Sequence[Row], parts: Iterable[Part], names: DisplayNames) -> Iterator[Row]:
    """Yield a row for each metric that a model lacks."""
    present = {(row.fit, row.metric) for row in rows}
    fits = {row.fit: row for row in rows}
    for part in parts:
        for fit, metrics in part.rows.items():
            for metric in metrics:
                if fit in fits and (fit, metric) not in present:
                    present.add((fit, metric))
                    yield headed(_without_value(fits[fit], metric), names)


def _without_value(row: Row, metric: Spec) -> Row:
    """Return a row of a metric that was not run, for the model of ``row``."""
    return Row(
        model=row.model,
        name=row.name,
        dataset=row.dataset,
        recipe=row.recipe,
        metric=metric,
        status="not run",
        dataset_name=row.dataset_name,
    )
