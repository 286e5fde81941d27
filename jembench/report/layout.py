"""From results to a document: tables of short texts with numbered footnotes for people, and data for programs.

The main table of each part and its pivot tables, with published rows below ours; then the published tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jembench.experiment.recipe_files import title_of
from jembench.report.formats import Document
from jembench.report.protocols import named, peculiarities
from jembench.report.published import Beside, label_of, of_published, place, source_of
from jembench.report.record import Column, Record, Subject, grouped
from jembench.report.references import Published
from jembench.report.sections import Report, views
from jembench.report.text import (
    ABSENT,
    DAGGER,
    ENDS,
    INTERVAL,
    Footnote,
    Footnotes,
    Heading,
    Table,
    Text,
    View,
    plain,
    record_text,
)

if TYPE_CHECKING:
    from jembench.report.comparison import Read
    from jembench.store.outcome import Cell

NOTHING = "No results yet."
BOLD = (
    "Bold: better than the runner-up of its column (p < 0.05, adjusted by Holm for the columns; paired tests over the "
    "test images, and over the seeds as well from 3 seeds on)."
)

Best = Callable[[View], Collection[tuple[int, int, int]]]
"""Finds the best values of a view: the line, row and column of each."""


def tables(report: Report, best: Best | None = None) -> list[Table]:
    """Our results, part by part, then what is left of each published table; footnotes are numbered through.

    Args:
        report: ours, and the published tables.
        best: finds the best values; None: none are marked.
    """
    ours, published = tables_of(report, best)
    return [*ours, *published]


def tables_of(
    report: Report, best: Best | None = None, shown: Sequence[View] | None = None
) -> tuple[list[Table], list[Table]]:
    """Return our results, and what is left of the published tables, as :func:`tables` has them.

    Args:
        report: ours, and the published tables.
        best: finds the best values; None: none are marked.
        shown: views of ours in place of those of the report's parts.
    """
    notes, found = Footnotes(), views(report) if shown is None else shown
    beside, left = place(report, {column for view in found for line in view.lines for column in line.columns})
    layout = _Layout(report, beside, notes, best)
    ours = [layout.table(view) for view in found]
    if not ours:
        ours = [Table(title="Results", headings=(), rows=(), footnotes=(Footnote(NOTHING),))]
    return list(_each_said_once(ours)), [of_published(rest, report.rows, notes) for rest in left]


def _each_said_once(tables: Iterable[Table]) -> Iterator[Table]:
    """The tables without what is true of the whole of one and was said of an earlier one."""
    said: set[Footnote] = set()
    for table in tables:
        yield replace(table, footnotes=tuple(note for note in table.footnotes if note.mark or note not in said))
        said.update(note for note in table.footnotes if not note.mark)


class _Layout:
    """What the tables of one report share.

    Args:
        report: ours.
        beside: published rows that may stand below ours.
        notes: numbered through the whole report.
        best: finds the best values.
    """

    def __init__(self, report: Report, beside: Sequence[Beside], notes: Footnotes, best: Best | None) -> None:
        self.report, self.beside, self.notes, self.best = report, beside, notes, best
        self.variants = {label: name for part in report.parts for label, name in part.variants.items()}

    def table(self, view: View) -> Table:
        """The texts of a view, published rows below ours."""
        shared, differing = _context(view.rows)
        columns = [
            [of_row[number] for line in view.lines for of_row in line.records] for number in range(len(view.headings))
        ]
        rows: list[tuple[Text, ...]] = []
        published: list[tuple[Text, ...]] = []
        best = self.best(view) if self.best else ()
        groups: list[int] = []
        for number, line in enumerate(view.lines):
            groups.append(len(rows))
            options = [Text(value) for value in line.options]
            for position, (row, of_row) in enumerate(zip(view.rows, line.records, strict=True)):
                texts = (
                    record_text(record, self.notes)._replace(best=(number, position, column) in best)
                    for column, record in enumerate(of_row)
                )
                rows.append((*options, *self._names(row, differing), *texts))
            found = self._published(line.columns, view.rows, differing)
            published += found
            groups += [len(rows)] if found else []
            rows += [(*options, *row) for row in found]
        legend = (
            *([BOLD] if best else []),
            *_legend([record for column in columns for record in column], published),
            *_positive_class(view.labels),
            *_recipes(row.recipe for row in view.rows),
        )
        return Table(
            title=" · ".join((*view.titles, *shared)),
            headings=(
                *(Heading(label, identifies=True) for label in (*view.options, "model", *differing)),
                *view.headings,
            ),
            rows=tuple(rows),
            footnotes=(
                *map(Footnote, legend),
                *_differing_protocols(view),
                *self.notes.take(),
            ),
            groups=tuple(groups[1:]),
        )

    def _names(self, row: Subject, differing: Sequence[str]) -> Iterator[Text]:
        """What identifies a row: its model, and what else differs between rows."""
        yield Text(row.name, marks=self.notes.marks(*row.notes))
        for name in differing:
            text = _CONTEXT[name](row)
            short = self.variants.get(text) if name == "recipe" else None
            yield Text(text) if short is None else Text(short, marks=self.notes.marks(f"recipe {text}"))

    def _published(
        self, columns: Sequence[Column | None], rows: Sequence[Subject], differing: Sequence[str]
    ) -> list[tuple[Text, ...]]:
        """Return the published rows that have a number of the same meaning in one of these columns."""
        datasets = {row.dataset for row in rows}
        mine = [one for one in self.beside if one.dataset in datasets and one.column in columns]
        found = []
        for row in grouped(mine, lambda one: (one.published.row, one.dataset)):
            first, values = row[0].published, {one.column: one for one in row}
            name = f"{label_of(first, self.report.rows)} · {first.status}"
            found.append(
                (
                    Text(name, marks=self.notes.marks(first.note, source_of(first))),
                    *(Text(first.dataset if name == "dataset" else ABSENT) for name in differing),
                    *(self._published_value(values.get(column) if column else None) for column in columns),
                )
            )
        return found

    def _published_value(self, one: Beside | None) -> Text:
        if one is None:
            return Text(ABSENT)
        unstated = ", ".join(map(named, one.unstated))
        incomplete = f"same quantity, protocol incompletely stated there: {unstated}" if unstated else ""
        return Text(plain(one.published.value), marks=self.notes.marks(incomplete))


_CONTEXT: Mapping[str, Callable[[Subject], str]] = {
    "dataset": lambda row: row.dataset_name,
    "recipe": lambda row: row.recipe,
    "seeds": lambda row: ", ".join(map(str, row.seeds)),
}


def _context(rows: Sequence[Subject]) -> tuple[list[str], list[str]]:
    """Return what all rows share, for the title, and the names of what tells them apart besides the model."""
    texts = {name: list(dict.fromkeys(map(text, rows))) for name, text in _CONTEXT.items()}
    shared = {name: found[0] for name, found in texts.items() if len(found) == 1}
    if "," not in shared.get("seeds", ","):
        shared["seed"] = shared.pop("seeds")
    return [f"{name} {text}" for name, text in shared.items()], [name for name in texts if len(texts[name]) > 1]


def _differing_protocols(view: View) -> Iterator[Footnote]:
    places = ((line, number, name) for line in view.lines for number, name in enumerate(line.names))
    for line, number, name in places:
        records = [of_row[number] for of_row in line.records]
        measured = [(row, r) for row, r in zip(view.rows, records, strict=True) if r and r.status == "ok"]
        found = [(row.name, record.protocol) for row, record in measured if not record.comparable]
        if not found:
            continue
        datasets = {row.dataset for row, record in measured if not record.comparable}
        usual = {record.protocol for row, record in measured if record.comparable and row.dataset in datasets}
        found += [("the others", protocol) for protocol in sorted(usual)]
        differences = peculiarities([protocol for _, protocol in found])
        which = "; ".join(f"{model}: {text}" for (model, _), text in zip(found, differences, strict=True))
        yield Footnote(f"{name} was measured under different protocols, do not compare: {which}", DAGGER)


def _recipes(labels: Iterable[str]) -> Iterator[str]:
    """What the recipes are, of those that are installed."""
    for name in dict.fromkeys(label.partition("+")[0] for label in labels):
        if title := title_of(name):
            yield f"recipe {name}: {title}."


def _positive_class(labels: Iterable[str]) -> Iterator[str]:
    """Which class is positive under FPR95 and AUPR: half of the literature has it the other way round."""
    if {"fpr95-in", "fpr95-out", "aupr-in", "aupr-out"} & set(labels):
        yield (
            "-in: in-distribution is the positive class (fpr95-in: the share of outliers above the threshold that 95 % "
            "of the test images pass); -out: outliers are, which is OpenOOD's convention for FPR95."
        )


_BIASED = (
    *("ece", "adaptive-ece", "classwise-ece", "fid", "is", "precision", "recall"),
    *("classes", "age-dependence", "steps", "larger-eps"),
)


def _biased(labels: Iterable[str]) -> Iterator[str]:
    """Say of which values the mean over as many images is not the value for infinitely many."""
    shown = [f"{label}-" for label in labels if not label.startswith("fid-infinity")]
    biased = [name for name in _BIASED if any(label.startswith(f"{name}-") for label in shown)]
    if biased:
        yield (
            f"{', '.join(biased)}: few images shift this mean, for a perfect model as well, and the interval does not "
            "allow for it; debiased-ece and fid-infinity are not shifted."
        )


def _legend(records: Sequence[Record | None], published: Sequence[tuple[Text, ...]]) -> Iterator[str]:
    found = [record for record in records if record]
    intervals = any(record.low is not None for record in found)
    if intervals:
        yield f"{INTERVAL} of the mean over other test images (samples, timed iterations), as many as were measured."
        yield from _biased(record.label for record in found if record.low is not None)
    if any(record.sd is not None for record in found):
        ends = ENDS * intervals
        means = "Value: mean over the seeds; ±: standard deviation over the seeds, how much training anew changes it."
        yield means + ends
    if any(record.status == "not run" for record in found):
        yield "not run: `jembench run` measures what is missing."
    if len(found) < len(records):
        yield f"{ABSENT}: not asked for there."
    if any(text.value == ABSENT for row in published for text in row):
        yield f"{ABSENT} in a published row: not given, or not comparable with ours."


# --- data: JSON with a list of values for each model, CSV with a line for each record ---------------------------------

SCHEMA = 1
"""The version of both layouts."""


def document(report: Report, cells: Sequence[Cell] = (), read: Read | None = None) -> Document:
    """The results, ours first, then the published numbers.

    Args:
        report: the results.
        cells: that they were made of.
        read: gives a cell's per-example values, by which the best values are found; None: none are marked.
    """

    def judged() -> list[Table]:
        from jembench.report.comparison import best  # tests are slow to import, and to do

        return tables(report, partial(best, cells=cells, read=read) if read else None)

    return Document(
        tables=partial(tables, report),
        judged=judged,
        content=partial(_content, report),
        records=partial(_records, report),
        fields=_FIELDS,
    )


def _records(report: Report) -> Iterator[dict[str, Any]]:
    ours = (record for row in report.rows for record in row.records.values())
    for record in (*ours, *map(_record, report.published)):
        yield {**_fields(record, _FIELDS), "notes": "; ".join(record.notes)}


def _content(report: Report) -> dict[str, Any]:
    return {"schema": SCHEMA, "rows": [_row(row) for row in report.rows], "published": [*map(asdict, report.published)]}


_FIELDS = tuple(field.name for field in fields(Record))
_OF_MODEL = ("model", "printed_as", "dataset", "recipe", "seeds", "notes")
_OF_VALUE = ("metric", "label", "unit", "better", "status", "value", "low", "high", "sd", "n", "protocol", "comparable")


def _fields(of: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _row(row: Subject) -> dict[str, Any]:
    values = [_fields(record, (*_OF_VALUE, "seeds", "reason")) for record in row.records.values()]
    return {**_fields(row, _OF_MODEL), "values": values}


def _record(number: Published) -> Record:
    return Record(
        kind=number.status,
        **_fields(number, ("model", "printed_as", "dataset", "label", "unit", "better", "value", "protocol", "source")),
        status="ok",
        notes=tuple(filter(None, (number.note, number.table_note))),
    )
