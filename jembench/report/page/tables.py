"""The tables of a page that no other format has: an overview of all metrics, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jembench.catalog import spec
from jembench.experiment.sweep import bare_name
from jembench.report.attacks import main_view
from jembench.report.record import Column, grouped
from jembench.report.sections import Report
from jembench.report.text import Footnotes, Heading, Table, Text, View, fixed
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey

METRICS = ("accuracy", "fid", "is", "kid", "ece", "nll", "ood", "pgd", "boundary", "pointwise")
"""The metrics of the overview, in its order."""


def overview(report: Report) -> Iterator[View]:
    """Return a view for each dataset: the first value of each metric, under the fewest options that were measured."""
    for rows in grouped(report.rows, lambda row: row.dataset):
        measured = [column for column in report.columns if any(row.has(column) for row in rows)]
        if columns := [column for metric in METRICS for column in _simplest(metric, measured)]:
            yield main_view("Overview", report.rows, rows, columns)


def _simplest(metric: str, measured: Sequence[Column]) -> list[Column]:
    firsts = {column.metric: column for column in reversed(measured) if bare_name(column.metric) == metric}
    options = {column: len(spec.parse(column.metric).arguments) for column in firsts.values()}
    fewest = {label: min(n for of, n in options.items() if of.label == label) for label in {of.label for of in options}}
    return [column for column in measured if column in options and options[column] == fewest[column.label]]


# --- origin -----------------------------------------------------------------------------------------------------------

_ORIGIN = ("model", "dataset", "recipe", "seed", "iterations", "seconds", "measured", "by")


def origin(cells: Sequence[Cell], trained: Mapping[FitKey, FitRecord | None]) -> Table:
    """Return a row for each trained model: its training, and when and by which commands it was measured.

    Footnotes say with which hardware and versions.
    """
    notes = Footnotes()
    groups = grouped(cells, lambda cell: cell.fit)
    rows = tuple(_row(group, trained.get(group[0].fit), notes) for group in groups)
    return Table(
        title="Trained models",
        headings=tuple(Heading(name, identifies=name not in ("seed", "iterations", "seconds")) for name in _ORIGIN),
        rows=rows,
        footnotes=notes.take(),
    )


def _row(cells: Sequence[Cell], record: FitRecord | None, notes: Footnotes) -> tuple[Text, ...]:
    fit = cells[0].fit
    training = (str(record.iteration), fixed(record.seconds, 0)) if record else ("", "")
    times = sorted(str(cell.provenance.get("time", ""))[:16].replace("T", " ") for cell in cells)
    measured = " to ".join(filter(None, dict.fromkeys((times[0], times[-1]))))
    commands = "; ".join(dict.fromkeys(str(cell.provenance.get("command", "")) for cell in cells))
    return (
        *map(Text, (fit.model, fit.dataset, fit.recipe, str(fit.seed), *training)),
        Text(measured, marks=notes.marks(*dict.fromkeys(map(_environment, cells)))),
        Text(commands),
    )


def _environment(cell: Cell) -> str:
    """Return hardware, commit and versions of a cell's provenance as ``name value`` pairs."""
    made = cell.provenance
    parts = {
        **(made.get("hardware") or {}),
        **{name: made.get(name) for name in ("threads", "commit", "python")},
        **(made.get("packages") or {}),
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)
