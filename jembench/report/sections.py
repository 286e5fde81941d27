"""The results of a report: the records of all models, and what of them is shown where."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jembench.catalog import spec
from jembench.experiment import suite_files as suites
from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid, bare_name
from jembench.report.attacks import main_view
from jembench.report.grids import Places, pivots
from jembench.report.names import NO_NAMES, Names
from jembench.report.record import (
    BUFFER,
    DIRECT,
    Column,
    Subject,
    columns_of,
    grouped,
    mark_incomparable,
    record,
    subjects,
)
from jembench.report.references import Published
from jembench.report.selection import WHOLE, Selection
from jembench.report.text import View
from jembench.store.outcome import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The records of a report, and the published numbers to be shown beside or below them."""

    columns: tuple[Column, ...]
    rows: tuple[Subject, ...]
    parts: tuple[Part, ...]  # which columns and rows belong together
    published: tuple[Published, ...]


def build(
    cells: Iterable[Cell],
    *,
    parts: Sequence[Part] = (),
    published: Sequence[Published] = (),
    selection: Selection = WHOLE,
    names: Names = NO_NAMES,
) -> Report:
    """Summarise cells over their seeds.

    Args:
        cells: in the order in which their models shall appear.
        parts: what belongs together, each with metrics of its own; none: all metrics of the cells, together.
        published: the numbers of papers to show.
        selection: which columns are shown.
        names: display names by canonical specs and recipes.
    """
    cells = list(cells)
    parts = [_completed(part, cells) for part in parts] or [
        Part("", tuple(dict.fromkeys(cell.metric for cell in cells)), ())
    ]
    order = dict.fromkeys(metric for part in parts for metric in (*_of_main(part), *_of_grids(part, cells)))
    by_metric = _by_metric(cells)
    columns = selection.order([column for metric in order for column in columns_of(metric, by_metric.get(metric, ()))])
    rows = [_row(subject, columns, parts, cells) for subject in subjects(cells, names)]
    if selection.columns is not None:
        parts = [part._replace(grids=tuple(_showing(columns, grid) for grid in part.grids)) for part in parts]
    if selection.columns is not None or selection.metrics is not None:
        labels = {column.label for column in columns}
        published = [number for number in published if number.quantity in labels]
    return Report(
        columns=tuple(columns),
        rows=tuple(mark_incomparable(rows)),
        parts=tuple(parts),
        published=tuple(published),
    )


def everything(cells: Sequence[Cell]) -> Part:
    """One part of all metrics of some cells, in the grids of any suite of which they fill more than one place."""
    metrics = tuple(dict.fromkeys(cell.metric for cell in cells))
    grids = (grid for grid in suites.all_grids() if sum(map(bool, map(Places([grid]).of, metrics))) > 1)
    return Part("", metrics, tuple(grids))


def _showing(columns: Sequence[Column], grid: Grid) -> Grid:
    """The grid with tables of the selected values alone, in their order."""
    labels = dict.fromkeys(c.label for c in columns if bare_name(c.metric) == grid.metric and c.label != c.metric)
    return replace(grid, values=tuple(labels) or grid.values)


def _of_main(part: Part) -> list[str]:
    """Return the metrics of a part's main table: its own, and behind them those of grids that cross no options."""
    added: dict[str, list[str]] = {}
    for metric in Places(grid for grid in part.grids if not grid.crosses).metrics:
        added.setdefault(spec.parse(metric).name, []).append(metric)
    own = [one for metric in part.metrics for one in (metric, *added.pop(spec.parse(metric).name, ()))]
    return [*own, *itertools.chain(*added.values())]


def _by_metric(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    return {group[0].metric: group for group in grouped(cells, lambda cell: cell.metric)}


def _completed(part: Part, cells: Sequence[Cell]) -> Part:
    """The part with what the cells hold of its metrics under other options, where a fit has none under its own.

    ``run --set ece.bins=15`` measures another metric than the suite's, in its place: if no fit has the suite's, its
    column is not shown. What a grid of any suite has measured stands there.
    """
    names, places = {spec.parse(metric).name for metric in part.metrics}, Places(part.grids)
    as_asked = {(cell.fit.id, spec.parse(cell.metric).name) for cell in cells if cell.metric in part.metrics}
    others: dict[str, list[str]] = {}
    for cell in cells:
        name = spec.parse(cell.metric).name
        if name in names and (cell.fit.id, name) not in as_asked and not any(places.of(cell.metric)):
            others.setdefault(name, []).append(cell.metric)
    in_place = others.keys() - {name for _, name in as_asked}
    metrics: list[str] = []
    for metric in part.metrics:
        name = spec.parse(metric).name
        metrics += others[name] if name in in_place else [metric]
    metrics += [metric for of_name in others.values() for metric in of_name]
    return part._replace(metrics=tuple(dict.fromkeys(metrics)))


def _of_grids(part: Part, cells: Sequence[Cell]) -> list[str]:
    places = Places(part.grids)
    asked_for = [] if part.rows is None else places.metrics
    return [*asked_for, *(cell.metric for cell in cells if any(places.of(cell.metric)))]


def _row(subject: Subject, columns: Sequence[Column], parts: Sequence[Part], cells: Sequence[Cell]) -> Subject:
    """A model with its notes and records."""
    notes = (*_divergences(subject), *_remarks(subject), *_how_drawn(subject, cells))
    row, by_metric = replace(subject, notes=notes), _by_metric(subject.cells)
    asked = {metric for part in parts for metric in _asked(part, row)} | by_metric.keys()
    records = {
        column: record(by_metric.get(column.metric, []), column, row) for column in columns if column.metric in asked
    }
    return replace(row, records=records)


def _asked(part: Part, row: Subject) -> Collection[str]:
    """The metrics that a part asks for of a row, as they are planned."""
    if part.rows is None:
        return part.metrics
    return part.rows.get(row.names, ())


def _divergences(subject: Subject) -> Iterator[str]:
    """Which of these fits diverged, what was done about it, and what they were really trained with."""
    provenance = {cell.fit.seed: cell.provenance for cell in subject.cells}
    for seed in subject.seeds:
        training = f"training of seed {seed}" if len(provenance) > 1 else "training"
        repairs, stability = provenance[seed].get("interventions"), provenance[seed].get("stability") or {}
        if repairs:
            end = f"; it ended with {ended_with}" if (ended_with := stability.get("ended_with")) else ""
            yield f"{training} diverged and was repaired {'; '.join(repairs)}{end}"
        elif (iteration := stability.get("diverged_at")) is not None:
            yield f"{training} diverged at iteration {iteration} ({stability['reason']}) and was not repaired"


def _remarks(subject: Subject) -> Iterator[str]:
    """What a metric says of its own numbers: that they are of fewer images, or that something is wrong with them."""
    for cell in subject.cells:
        of_seed = f" of seed {cell.fit.seed}" if len(subject.seeds) > 1 else ""
        if partial := cell.outcome.details.get("partial"):
            yield f"{cell.metric}{of_seed}: {partial} so far; the same command goes on"
        for sentence in cell.outcome.details.get("suspicious", ()):
            yield f"{cell.metric}{of_seed} is suspicious: {sentence}"


def _how_drawn(subject: Subject, cells: Sequence[Cell]) -> Iterator[str]:
    """That a model's samples are drawn directly, where other models on its dataset have those of chains."""
    if any(DIRECT.search(cell.outcome.protocol) for cell in subject.cells):
        others = (cell.outcome.protocol for cell in cells if cell.fit.dataset == subject.dataset)
        if any(map(BUFFER.search, others)):
            yield "its samples are drawn directly; those of the others are the chains that training kept"


# --- what is shown where ----------------------------------------------------------------------------------------------


def views(report: Report) -> list[View]:
    """Return what a report shows: for each part of a suite a main table and the pivot tables of its grids, if known.

    Parts and grids overlap. A table whose results all stand in another one is left out; of equal ones the first stays.
    """
    found = [one for part in report.parts if (one := _shown(part, report))]
    views: list[View] = []
    for part, rows, columns, of_grids in found:
        title = part.title if part.title and len(found) > 1 else "Results"
        views += [main_view(title, report.rows, rows, columns), *of_grids] if rows else of_grids
    results = [view.results for view in views]
    return [
        view
        for number, (view, own) in enumerate(zip(views, results, strict=True))
        if not any(own < other for other in results) and own not in results[:number]
    ]


def _shown(part: Part, report: Report) -> tuple[Part, list[Subject], list[Column], list[View]] | None:
    """The rows and columns of a part's main table, and its pivot tables; None if nothing is known of either."""
    places, metrics = Places(grid for grid in part.grids if grid.crosses), _of_main(part)
    mine = [row for row in report.rows if part.rows is None or row.names in part.rows]
    others = [_without(places, row) for row in mine]
    columns = [
        column
        for column in report.columns
        if column.metric in metrics
        and any(row.knows(column) if places.of(column.metric) else column in row.records for row in others)
    ]
    # a row of which a part knows nothing is another part's
    rows = [row for row in others if any(map(row.knows, columns))]
    of_grids = list(pivots(places, report.columns, mine))
    return (part, rows, columns, of_grids) if rows or of_grids else None


def _without(places: Places, row: Subject) -> Subject:
    """A row without what stands in grids."""
    records = {c: record for c, record in row.records.items() if not places.hold(c.metric, row.dataset)}
    return replace(row, records=records)
