"""The grids of a suite: where a metric stands in them, and their pivot tables.

A pivot table shows one value of a metric under every combination of some of its options. It has a row for each choice
of its row options and each model, and a column for each choice of its column options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jembench.catalog import spec
from jembench.experiment.sweep import Axes, Grid, Place, combinations
from jembench.report.attacks import in_common
from jembench.report.record import Column, Record, Subject
from jembench.report.text import Heading, Line, View, detail


class Placed(NamedTuple):
    """A metric in a grid."""

    grid: int  # which one
    place: Place
    extras: tuple[str, ...]  # options that the grid says nothing of: "resamples=0"


class Places:
    """The places of some grids, resolved once.

    Raises:
        SpecError: for a grid whose metric does not exist, or has no such option.
    """

    def __init__(self, grids: Iterable[Grid]) -> None:
        self.grids = tuple(grids)
        self._places = [
            (index, place, spec.parse(place.metric)) for index, grid in enumerate(self.grids) for place in grid.places
        ]
        self._known: dict[str, list[Placed]] = {}

    @property
    def metrics(self) -> list[str]:
        """Every metric of the grids, as the suite asks for it."""
        return list(dict.fromkeys(place.metric for _, place, _ in self._places))

    def of(self, metric: str) -> list[Placed]:
        """Where a metric stands, given by its canonical spec.

        One that is no grid's stands where it would without the options that the grid says nothing of, the fewest.
        """
        if metric not in self._known:
            found = list(self._of(metric))
            fewest = min((len(placed.extras) for placed in found), default=0)
            self._known[metric] = [placed for placed in found if len(placed.extras) == fewest]
        return self._known[metric]

    def hold(self, metric: str, dataset: str) -> bool:
        """Return whether a metric stands in a grid that is for a dataset, given by its spec."""
        return any(self.grids[placed.grid].covers(dataset) for placed in self.of(metric))

    def _of(self, metric: str) -> Iterator[Placed]:
        asked = spec.parse(metric)
        for index, place, parsed in self._places:
            grid, further = self.grids[index], set(asked.arguments) - set(parsed.arguments)
            is_here = asked.name == parsed.name and set(parsed.arguments) <= set(asked.arguments)
            if is_here and not {*grid.rows, *grid.columns, *grid.fixed} & dict(further).keys():
                yield Placed(index, place, tuple(f"{key}={value}" for key, value in sorted(further)))


# --- pivot tables ---

_Choice = tuple[str, ...]  # a value for each option of the rows, or of the columns
_Where = Mapping[tuple[_Choice, _Choice], str]  # the metric in each row and column


def pivots(places: Places, columns: Sequence[Column], rows: Sequence[Subject]) -> Iterator[View]:
    """The pivot tables of some grids, one for each value that is shown and of which something is known.

    Args:
        places: where metrics stand in the grids.
        columns: of the results.
        rows: the models that the grids are about.
    """
    for number, grid in enumerate(places.grids):
        covered = [row for row in rows if grid.covers(row.dataset)]
        for extras, where in _by_extras(places, columns, number).items():
            title = " · ".join(filter(None, (grid.title, ",".join(extras))))
            yield from _Content(grid, title, where, columns).pivots(covered)


def _by_extras(places: Places, columns: Sequence[Column], number: int) -> dict[tuple[str, ...], _Where]:
    """The metrics in a grid by row and column; those that set more than it does apart from the rest."""
    found: dict[tuple[str, ...], dict[tuple[_Choice, _Choice], str]] = {}
    for metric in dict.fromkeys(column.metric for column in columns):
        for placed in places.of(metric):
            if placed.grid == number:
                found.setdefault(placed.extras, {})[placed.place.row, placed.place.column] = metric
    return dict(found)


class _Content:
    """What the results hold of one grid."""

    def __init__(self, grid: Grid, title: str, where: _Where, columns: Sequence[Column]) -> None:
        self.grid, self.title = grid, title
        metrics = set(where.values())
        self.columns = [column for column in columns if column.metric in metrics]
        self.where = {
            place: [column for column in self.columns if column.metric == metric] for place, metric in where.items()
        }

    def pivots(self, rows: Sequence[Subject]) -> Iterator[View]:
        """A table for each value; a model that has none of them is in the first."""
        known = [row for row in rows if any(map(row.knows, self.columns))]
        values = self._values()
        having = [[row for row in known if self._has(row, value.label)] for value in values]
        having[0] = [row for row in known if row in having[0] or not any(row in others for others in having)]
        for value, mine in zip(values, having, strict=True):
            if mine:
                yield self._pivot(value, mine)

    def _values(self) -> list[Column]:
        measured = {column.label: column for column in self.columns if column.label != column.metric}
        if not self.grid.values:
            return list(measured.values()) or [Column(self.grid.metric, self.grid.metric)]
        labels = [label for value in self.grid.values for label in _answering(value, measured)]
        return [measured.get(label, Column(self.grid.metric, label)) for label in labels]

    def _has(self, row: Subject, label: str) -> bool:
        return any(column.label == label and row.has(column) for column in self.columns)

    def _column(self, row: _Choice, column: _Choice, value: Column) -> Column | None:
        """Where the value is; else where it is said why there is none."""
        candidates = self.where.get((row, column), [])
        labelled = [candidate for candidate in candidates if candidate.label == value.label]
        return next(iter(labelled + candidates), None)

    def _pivot(self, value: Column, rows: Sequence[Subject]) -> View:
        axes = self.grid.rows
        choices = [choice for choice in combinations(axes) if any(row == choice for row, _ in self.where)]
        headings = [
            heading
            for heading in combinations(self.grid.columns)
            if any(column == heading for _, column in self.where)
            and any(self._is_asked_for(self._column(choice, heading, value), rows) for choice in choices)
        ]
        labels = [_heading(self.grid.columns, heading) for heading in headings]
        differing = [index for index, values in enumerate(axes.values()) if len(values) > 1]
        lines = []
        for choice in choices:
            options = tuple(choice[index] for index in differing)
            columns = tuple(self._column(choice, heading, value) for heading in headings)
            names = tuple(f"{value.label} ({', '.join((*options, label))})" for label in labels)
            records = tuple(tuple(_record(row, column, value) for column in columns) for row in rows)
            lines.append(Line(options, columns, names, records))
        protocols = (record.protocol for line in lines for of_row in line.records for record in of_row if record)
        return View(
            titles=(
                self.title,
                f"{value.label} {detail(value.unit, value.better)}".strip(),
                *(f"{option} {values[0]}" for option, values in axes.items() if len(values) == 1),
                *in_common(protocols),
            ),
            headings=tuple(map(Heading, labels)),
            labels=(value.label,),
            rows=tuple(rows),
            lines=tuple(lines),
            options=tuple(list(axes)[index] for index in differing),
        )

    def _is_asked_for(self, column: Column | None, rows: Sequence[Subject]) -> bool:
        return column is None or any(column in row.records for row in rows)


def _record(row: Subject, column: Column | None, value: Column) -> Record | None:
    """Return what stands in a place of a pivot table; None if that is not asked for."""
    if column is None:
        return Record(status="not run")
    if column.label == value.label or not row.has(column):
        return row.records.get(column)
    return Record(status="na", reason=f"{column.metric} gives {column.label} here, not {value.label}")


def _answering(value: str, labels: Mapping[str, Column]) -> list[str]:
    """The labels that a grid means: ``is-digits-cnn`` is an ``is``, under a feature network of another name."""
    return [label for label in labels if f"{label}-".startswith(f"{value}-")] or [value]


def _heading(axes: Axes, values: _Choice) -> str:
    return " ".join(_named(option, value, axes[option]) for option, value in zip(axes, values, strict=True))


def _named(option: str, value: str, values: Sequence[str]) -> str:
    """``interp`` says what it is; ``0.1`` is shown with the name of its option, ``celeba:root=/data`` without its own.

    But for options that alone tell it from another value.
    """
    if not value[:1].isalpha() or value in ("true", "false", "none"):
        return f"{option} {value}"
    names = [other.partition(":")[0] for other in values]
    name = value.partition(":")[0]
    return name if names.count(name) == 1 else value
