"""From rows to the tables of a report: those that a suite names, with published rows below ours, then the published.

A part of a suite has a main table of its metrics and a table for each of its grids. Metrics that differ in their
options alone (an attack) have a table with a line for each choice of options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jembench.errors import SpecError
from jembench.experiment.plan import Part
from jembench.experiment.sweep import Axes, Grid, bare_name
from jembench.report.formats import Document
from jembench.report.protocols import DEFENCE, in_common, parts_of, peculiarities
from jembench.report.published import beside, published_table
from jembench.report.references import Published
from jembench.report.rows import FIELDS, ORIGIN, Row, grouped, mark_incomparable, mean, rows
from jembench.report.select import NO_NAMES, WHOLE, Fit, Names, Selection, matching, select
from jembench.report.table import ABSENT, DAGGER, ENDS, INTERVAL, Footnote, Footnotes, Heading, Table, detail, pivot
from jembench.store.outcome import Cell

if TYPE_CHECKING:
    from jembench.report.comparison import Read

NOTHING = "No results yet."
BOLD = (
    "Bold: better than the runner-up of its column (p < 0.05, adjusted by Holm for the columns; paired tests over the "
    "test images, and over the seeds as well from 3 seeds on)."
)

Best = Callable[[Sequence[Row]], Collection[Row]]
"""Finds the best of the values of a table."""


def build(
    cells: Iterable[Cell],
    *,
    parts: Sequence[Part] = (),
    published: Sequence[Published] = (),
    selection: Selection = WHOLE,
    names: Names = NO_NAMES,
) -> Layout:
    """Return the results of cells, as means over their seeds.

    Args:
        cells: in the order in which their models shall appear.
        parts: of a suite, each with metrics of its own; none: all metrics of the cells.
        published: the numbers of papers to show.
        selection: which metrics and columns are shown.
        names: display names by canonical specs and recipes.
    """
    seeds = rows(cells, names)
    labels = list(dict.fromkeys(select("column", selection.columns, [row.column for row in seeds], str)))
    seeds = [row for row in seeds if row.column in labels]
    means = mark_incomparable(mean(seeds))
    fits = list(dict.fromkeys(row.fit for row in means))
    means = sorted([*means, *_not_run(means, parts)], key=lambda row: fits.index(row.fit))
    if selection.metrics is not None:
        known = dict.fromkeys(row.metric for row in means)
        metrics = [name for text in selection.metrics for name in matching("metrics", text, known)]
        means = [row for row in means if row.metric in metrics]
        parts = [part._replace(metrics=tuple(name for name in metrics if name in part.metrics)) for part in parts]
    if selection.columns is not None:
        means = [row for row in means if row.column in labels]
        means.sort(key=lambda row: (fits.index(row.fit), labels.index(row.column)))
    if selection.metrics is not None or selection.columns is not None:
        published = [number for number in published if number.quantity in labels]
    order = () if selection.columns is None else labels
    return Layout(seeds=seeds, rows=means, parts=parts, published=published, labels=order)


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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The results of a report, and the tables that they are laid out in.

    Args:
        seeds: the values of each seed.
        rows: means over seeds, in the order of the models, and those that are not run.
        parts: of a suite; none: all metrics.
        published: the numbers of papers to be shown beside or below ours.
        labels: the order of the columns; empty: that of the metrics.
    """

    seeds: Sequence[Row]
    rows: Sequence[Row]
    parts: Sequence[Part] = ()
    published: Sequence[Published] = ()
    labels: Sequence[str] = ()

    def tables(self, best: Best | None = None) -> list[Table]:
        """Return our tables and then the published ones; footnotes are numbered through.

        Args:
            best: finds the best values; None: none are marked.
        """
        return [table for tables in self.both(best) for table in tables]

    def both(self, best: Best | None = None) -> tuple[list[Table], list[Table]]:
        """Return our tables, and the published tables that have numbers without a place in ours."""
        notes = Footnotes()
        found, left = beside(self.published, self.rows)
        ours = list(_Tables(self, [*self.rows, *found], notes, best).of_parts())
        if not ours:
            ours = [Table(title="Results", footnotes=(Footnote(NOTHING),))]
        return ours, [published_table(rest, self.rows, notes) for rest in left]


@dataclass(frozen=True)
class _Tables:
    """Tables of ours with the published rows that stand below them."""

    layout: Layout
    rows: Sequence[Row]  # ours, then the published ones
    notes: Footnotes
    best: Best | None

    def of_parts(self) -> Iterator[Table]:
        """Yield the tables of each part; without parts, one of metrics of one value and one of each other metric."""
        parts = self.layout.parts
        if not parts:
            groups = grouped(dict.fromkeys(row.place for row in self.rows), lambda place: bare_name(place[0]))
            yield from self.main("Results", [group[0][0] for group in groups if len(group) == 1], self.rows)
            for group in (group for group in groups if len(group) > 1):
                metrics = list(dict.fromkeys(metric for metric, _ in group))
                yield from self.by_options(bare_name(metrics[0]), metrics, self.rows)
        for part in parts:
            rows = [row for row in self.rows if row.source or row.fit in part.rows]
            title = part.title if part.title and len(parts) > 1 else "Results"
            is_attack = len(part.metrics) > 1 and len(set(map(bare_name, part.metrics))) == 1
            yield from (self.by_options if is_attack else self.main)(title, part.metrics, rows)
            for grid in part.grids:
                yield from self.of_grid(grid, rows)

    def main(self, title: str, metrics: Sequence[str], rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table with a column for each value of some metrics."""
        shown = _known(rows, metrics)
        of_label: dict[str, set[str]] = {}
        for row in shown:
            of_label.setdefault(row.label, set()).add(row.metric)

        def heading(row: Row) -> Heading:
            is_alone = row.label in ("", row.metric) or len(of_label[row.label]) == 1
            return _heading(row, row.column if is_alone else f"{row.label} ({row.metric})")

        yield from self._table([title], metrics, shown, {}, heading)

    def by_options(self, title: str, metrics: Sequence[str], rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table of one metric under several options: a line for each choice, a column for each value.

        Options that the label of a value tells, such as the norm of an attack, or that follow from others, such as the
        chains of a refined model, have no column.
        """
        shown = _spread(_known(rows, metrics))
        options = {
            row.metric: parts_of(row.protocol) | row.options for row in sorted(shown, key=lambda row: row.protocol)
        }

        def distinct(names: Iterable[str]) -> int:
            return len({(row.label, *(options[row.metric].get(name) for name in names)) for row in shown})

        lines: dict[str, Callable[[Row], str]] = {}
        names = dict.fromkeys(name for row in shown for name in row.options)
        for name in sorted(names, key=lambda name: name in DEFENCE and DEFENCE.index(name)):
            if distinct((*lines, name)) > distinct(lines):
                lines[name] = _option_of(options, name)
        yield from self._table([title], metrics, shown, lines, _heading)

    def of_grid(self, grid: Grid, rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table for each value of a grid: its row options and models across its column options."""
        places = {place.metric: place for place in grid.places}
        shown = _spread(_known([row for row in rows if grid.covers(row.dataset)], places))
        options = {metric: dict(zip(grid.rows, place.row, strict=True)) for metric, place in places.items()}
        lines = {name: _option_of(options, name) for name, values in grid.rows.items() if len(values) > 1}
        fixed = [f"{name} {values[0]}" for name, values in grid.rows.items() if len(values) == 1]
        for of_label in grouped(sorted(shown, key=self._rank), lambda row: row.label):
            first, label = of_label[0], of_label[0].label or grid.metric
            wanted = self.layout.labels or grid.values or [label]
            if first.label and not any(f"{label}-".startswith(f"{one}-") for one in wanted):
                continue
            titles = [grid.title, f"{label} {detail(first.unit, first.better)}".strip(), *fixed]

            def heading(row: Row, label: str = label) -> Heading:
                return Heading(_column_text(grid.columns, places[row.metric].column) or label)

            yield from self._table(titles, list(places), of_label, lines, heading)

    def _rank(self, row: Row) -> int:
        labels = self.layout.labels
        return labels.index(row.label) if row.label in labels else len(labels)

    def _table(
        self,
        titles: Sequence[str],
        metrics: Sequence[str],
        rows: Sequence[Row],
        options: Mapping[str, Callable[[Row], str]],
        heading: Callable[[Row], Heading],
    ) -> Iterator[Table]:
        """Yield the pivot of some rows with its remarks; of no rows of ours, nothing.

        Args:
            titles: parts of the title.
            metrics: in the order of choices of options, and of columns.
            rows: in the order of models.
            options: texts that identify a line beside the model.
            heading: returns the column of a row.
        """
        ours = [row for row in rows if not row.source]
        datasets = {row.dataset for row in ours}
        shown = [row for row in rows if row.dataset in datasets]
        if not ours:
            return
        in_order = sorted(shown, key=lambda row: metrics.index(row.metric))
        choices = list(dict.fromkeys(tuple(text(row) for text in options.values()) for row in in_order))
        shown.sort(key=lambda row: (choices.index(tuple(text(row) for text in options.values())), bool(row.source)))
        short, recipes = self._labels, dict.fromkeys(row.recipe for row in ours)
        context = self._context()
        texts = {name: list(dict.fromkeys(map(text, ours))) for name, text in context.items()}
        shared = [f"{name} {found[0]}" for name, found in texts.items() if len(found) == 1]
        shared = [text if "," in text else text.replace("seeds ", "seed ") for text in shared]
        titles = [*titles, in_common(row.protocol for row in ours), *shared]
        differing = {name: text for name, text in context.items() if len(texts[name]) > 1}
        best = self.best(ours) if self.best else ()
        table = pivot(
            shown,
            {**options, "model": lambda row: row.name, **differing},
            dict.fromkeys(map(heading, sorted(in_order, key=self._rank))),
            heading,
            self.notes,
            title=" · ".join(filter(None, titles)),
            best=best,
            separate=len(options),
        )
        legend = (
            *([BOLD] if best else []),
            *_legend(ours, (cell.value for line in table.rows for cell in line)),
            *(f"{short[label]}: recipe {label}." for label in recipes if label in short),
        )
        yield replace(table, footnotes=(*_differing_protocols(ours), *self.notes.take(legend)))

    @property
    def _labels(self) -> dict[str, str]:
        return {label: name for part in self.layout.parts for label, name in part.labels.items()}

    def _context(self) -> dict[str, Callable[[Row], str]]:
        """Return functions from a row to the texts that tell trained models apart besides their names."""
        short = self._labels
        seeds: dict[Fit, set[int]] = {}
        for row in self.rows:
            seeds.setdefault(row.fit, set()).update(row.seeds)
        return {
            "dataset": lambda row: row.dataset_name,
            "recipe": lambda row: short.get(row.recipe, row.recipe) or ABSENT,
            "seeds": lambda row: ", ".join(map(str, sorted(seeds[row.fit]))) or ABSENT,
        }


def _known(rows: Iterable[Row], metrics: Collection[str]) -> list[Row]:
    """Return the rows of some metrics, without the models of which nothing is known there."""
    mine = [row for row in rows if row.metric in metrics]
    known = {row.fit for row in mine if row.status != "not run"}
    return [row for row in mine if row.fit in known]


def _spread(rows: Sequence[Row]) -> list[Row]:
    """Return rows of one metric name; one of a metric that gave no value anywhere stands under each label of others."""
    labels = list(dict.fromkeys(row.label for row in rows if row.label))
    named = {row.label: row for row in reversed(rows)}
    found = []
    for row in rows:
        like = [named[label] for label in labels if not row.label]
        found += [replace(row, label=one.label, unit=one.unit, better=one.better) for one in like] or [row]
    return found


def _option_of(options: Mapping[str, Mapping[str, str]], name: str) -> Callable[[Row], str]:
    """Return a function from a row to an option of its metric."""
    return lambda row: options[row.metric].get(name, ABSENT)


def _heading(row: Row, text: str = "") -> Heading:
    return Heading(text or row.label or bare_name(row.metric), detail(row.unit, row.better))


def _column_text(axes: Axes, values: Sequence[str]) -> str:
    return " ".join(_option_text(name, value, axes[name]) for name, value in zip(axes, values, strict=True))


def _option_text(name: str, value: str, values: Sequence[str]) -> str:
    """Return ``interp`` alone, ``0.1`` with the name of its option, and ``celeba:root=/data`` without its own options.

    Options that alone tell it from another value are kept.
    """
    if not value[:1].isalpha() or value in ("true", "false", "none"):
        return f"{name} {value}"
    names = [other.partition(":")[0] for other in values]
    bare = value.partition(":")[0]
    return bare if names.count(bare) == 1 else value


# --- remarks on whole tables ------------------------------------------------------------------------------------------


def _differing_protocols(rows: Iterable[Row]) -> Iterator[Footnote]:
    """Yield which parts of the protocols of a column differ, where its values must not be compared."""
    for column in grouped((row for row in rows if row.value is not None), lambda row: (row.dataset, row.place)):
        others = [row for row in column if not row.comparable]
        protocols = {row.name: row.protocol for row in others}
        usual = [row.protocol for row in column if row.comparable]
        protocols |= {"the others": usual[0]} if usual else {}
        if others:
            texts = zip(protocols, peculiarities(list(protocols.values())), strict=True)
            which = "; ".join(f"{name}: {text}" for name, text in texts)
            yield Footnote(
                f"{column[0].column} was measured under different protocols, do not compare: {which}", DAGGER
            )


_REMARKS = {
    "-in: in-distribution is the positive class (fpr95-in: the share of outliers above the threshold that 95 % of the "
    "test images pass); -out: outliers are, which is OpenOOD's convention for FPR95.": (
        *("fpr95-in", "fpr95-out", "aupr-in", "aupr-out"),
    ),
    "{}: few images shift this mean, for a perfect model as well, and the interval does not allow for it; debiased-ece "
    "and fid-infinity are not shifted.": (
        *("ece", "adaptive-ece", "classwise-ece", "fid", "is", "precision", "recall"),
        *("classes", "age-dependence", "steps", "larger-eps"),
    ),
}
"""Remarks on values of these labels, or of these with a suffix."""


def _legend(rows: Sequence[Row], texts: Iterable[str]) -> Iterator[str]:
    labels = [row.label for row in rows if row.low is not None and not row.label.startswith("fid-infinity")]
    if any(row.low is not None for row in rows):
        yield f"{INTERVAL} of the mean over other test images (samples, timed iterations), as many as were measured."
    for remark, names in _REMARKS.items():
        if found := [name for name in names if any(f"{label}-".startswith(f"{name}-") for label in labels)]:
            yield remark.format(", ".join(found))
    if any(row.sd is not None for row in rows):
        yield "Value: mean over the seeds; ±: standard deviation over the seeds, how much training anew changes it."
    if any(row.sd is not None and row.low is not None for row in rows):
        yield f"{ENDS} are means over the seeds: what other test images would change."
    if any(row.status == "not run" for row in rows):
        yield "not run: `jembench run` measures what is missing."
    if ABSENT in texts:
        yield f"{ABSENT}: not asked for there or, in a published row, not given or not comparable with ours."


# --- the document -----------------------------------------------------------------------------------------------------


def document(layout: Layout, read: Read | None = None, page: Callable[[int | None], str] | None = None) -> Document:
    """Return the results for people and for programs: the rows of ours, then the published ones.

    Args:
        layout: the results.
        read: gives a cell's per-example values, by which the best values are found; None: none are marked.
        page: renders the page of the results.
    """

    def judged() -> list[Table]:
        from jembench.report.comparison import best  # tests are slow to import, and to do

        return layout.tables(partial(best, seeds=layout.seeds, read=read) if read else None)

    rows = [*layout.rows, *(number.row for number in layout.published)]
    return Document(
        tables=layout.tables,
        judged=judged,
        records=lambda: [row.as_dict() for row in rows],
        fields=FIELDS,
        page=page,
    )


def of_seeds(layout: Layout) -> Document:
    """Return the values of each seed, for formats that programs read."""

    def refuse() -> list[Table]:
        raise SpecError("The values of each seed are for programs. Choose --format csv, json or parquet.")

    records = [row.as_dict() for row in layout.seeds]
    return Document(tables=refuse, records=lambda: records, fields=(*FIELDS, *ORIGIN))
