"""From results to tables of short texts with numbered footnotes: what the terminal, Markdown and LaTeX show alike.

The main table of each section and its pivot tables, with published rows below ours; then the published tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.experiment.recipe import title_of
from jembench.report import attacks
from jembench.report.beside import Beside, place
from jembench.report.grids import Pivot
from jembench.report.protocols import named
from jembench.report.published import label_of, of_published, source_of
from jembench.report.record import Column, ModelRecords, Record, protocol_differences
from jembench.report.sections import Report, Section, sections
from jembench.report.text import ABSENT, DAGGER, Footnote, Footnotes, Heading, Table, Text, detail, plain, record_text

NOTHING = "No results yet."


def tables(report: Report) -> list[Table]:
    """Our results, section by section, then what is left of each published table; footnotes are numbered through."""
    notes, found = Footnotes(), sections(report)
    placed = place(report, {column for section in found for column in section.shown})
    layout = _Layout(report, placed.beside, notes)
    ours = [
        table
        for section in found
        for table in layout.tables(section, section.title if section.title and len(found) > 1 else "Results")
    ]
    if not ours:
        ours = [Table(title="Results", headings=(), rows=(), footnotes=(Footnote("", NOTHING),))]
    return [*_each_said_once(ours), *(of_published(left, report.rows, notes) for left in placed.left)]


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
    """

    def __init__(self, report: Report, beside: Sequence[Beside], notes: Footnotes) -> None:
        self.report, self.beside, self.notes = report, beside, notes

    def tables(self, section: Section, title: str) -> Iterator[Table]:
        """The main table of a section, by that title, if there is one, then its pivot tables."""
        if section.rows and section.columns:
            yield self._main(section, title)
        for pivot in section.pivots:
            yield self._pivot(pivot)

    # --- the main table ---

    def _main(self, section: Section, title: str) -> Table:
        columns, places, rows = attacks.lines(self.report.rows, section.rows, section.columns)
        context = self._context(section.rows)
        ours = [
            (*self._names(row, context), *(record_text(row.records.get(column), self.notes) for column in columns))
            for row in rows
        ]
        published = self._published(places, section.rows, context)
        records = [[row.records.get(column) for row in rows] for column in columns]
        protocols = (record.protocol for row in section.rows for c in section.columns if (record := row.records.get(c)))
        return Table(
            title=" · ".join((title, *attacks.in_common(protocols), *context.shared)),
            headings=(*_identifying("model", *context.differing), *(_heading(column, columns) for column in columns)),
            rows=(*ours, *published),
            footnotes=(
                *_legend([record for of_column in records for record in of_column], published),
                *_positive_class(column.label for column in columns),
                *_recipes(row.recipe for row in rows),
                *self._differing_protocols(zip((column.label for column in columns), records, strict=True), rows),
                *self.notes.take(),
            ),
        )

    # --- pivot tables ---

    def _pivot(self, pivot: Pivot) -> Table:
        context = self._context(pivot.rows)
        records = [
            [[pivot.record(row, column) for column in line.columns] for row in pivot.rows] for line in pivot.lines
        ]
        columns = [[of_row[number] for line in records for of_row in line] for number in range(len(pivot.headings))]
        marks = [self._shared_mark(column) for column in columns]
        done = attacks.in_common(record.protocol for column in columns for record in column if record)
        rows: list[tuple[Text, ...]] = []
        published: list[tuple[Text, ...]] = []
        for line, of_line in zip(pivot.lines, records, strict=True):
            options = [Text(value) for value in line.values]
            for row, of_row in zip(pivot.rows, of_line, strict=True):
                texts = (
                    record_text(replace(record, reason="") if mark and record else record, self.notes)
                    for record, mark in zip(of_row, marks, strict=True)
                )
                rows.append((*options, *self._names(row, context), *texts))
            found = self._published(line.columns, pivot.rows, context)
            published += found
            rows += [(*options, *row) for row in found]
        return Table(
            title=" · ".join((*_titles(pivot), *done, *context.shared)),
            headings=(
                *_identifying(*pivot.options, "model", *context.differing),
                *(Heading(label, marks=mark) for label, mark in zip(pivot.headings, marks, strict=True)),
            ),
            rows=tuple(rows),
            footnotes=(
                *_legend([record for column in columns for record in column], published),
                *_positive_class([pivot.value.label]),
                *_recipes(row.recipe for row in pivot.rows),
                *self._differing_protocols(_places(pivot, records), pivot.rows),
                *self.notes.take(),
            ),
        )

    def _shared_mark(self, column: Sequence[Record | None]) -> tuple[str, ...]:
        """The footnote of a column in which nothing has a value for one and the same reason."""
        asked = [record for record in column if record]
        reasons = {(record.status, record.reason) for record in asked}
        if len(asked) < 2 or len(reasons) != 1 or asked[0].status != "na" or not asked[0].reason:
            return ()
        return (self.notes.mark(asked[0].reason),)

    # --- what both share ---

    def _names(self, row: ModelRecords, context: _Context) -> Iterator[Text]:
        """What identifies a row: its model, and what else differs between rows."""
        yield Text(row.model, marks=tuple(self.notes.mark(note) for note in row.notes))
        for name in context.differing:
            text = _CONTEXT[name](row)
            short = self.report.recipe_names.get(text) if name == "recipe" else None
            yield Text(text) if short is None else Text(short, marks=(self.notes.mark(f"recipe {text}"),))

    def _context(self, rows: Sequence[ModelRecords]) -> _Context:
        """What tells rows apart besides the model, and what all of them share."""
        texts = {name: list(map(text, rows)) for name, text in _CONTEXT.items()}
        shared = {name: found[0] for name, found in texts.items() if len(set(found)) == 1}
        if "," not in shared.get("seeds", ","):
            shared["seed"] = shared.pop("seeds")
        return _Context(
            tuple(f"{name} {text}" for name, text in shared.items()),
            tuple(name for name, found in texts.items() if len(set(found)) > 1),
        )

    def _published(
        self, columns: Sequence[Column | None], rows: Sequence[ModelRecords], context: _Context
    ) -> list[tuple[Text, ...]]:
        """The published rows that have a number of the same meaning in one of these columns."""
        datasets = {row.dataset for row in rows}
        return [
            (
                self._published_model(one),
                *(Text(one.row.dataset if name == "dataset" else ABSENT) for name in context.differing),
                *(Text(plain(one.values[c]) if c is not None and c in one.values else ABSENT) for c in columns),
            )
            for one in self.beside
            if one.dataset in datasets and any(column in one.values for column in columns)
        ]

    def _published_model(self, one: Beside) -> Text:
        source = source_of(one.row, one.table)
        if one.tacit:
            source += f"; not stated there: {', '.join(map(named, one.tacit))}"
        notes = [one.row.note, source] if one.row.note else [source]
        label = label_of(one.row, self.report.rows)
        return Text(f"{label} · {one.row.status}", marks=tuple(map(self.notes.mark, notes)))

    def _differing_protocols(
        self, named_records: Iterable[tuple[str, Sequence[Record | None]]], rows: Sequence[ModelRecords]
    ) -> Iterator[Footnote]:
        for name, records in named_records:
            measured = [(row, r) for row, r in zip(rows, records, strict=True) if r and r.status == "ok"]
            found = [(row.model, record.protocol) for row, record in measured if not record.comparable]
            if not found:
                continue
            datasets = {row.dataset for row, record in measured if not record.comparable}
            usual = {record.protocol for row, record in measured if record.comparable and row.dataset in datasets}
            found += [("the others", protocol) for protocol in sorted(usual)]
            differences = protocol_differences([protocol for _, protocol in found])
            which = "; ".join(f"{model}: {text}" for (model, _), text in zip(found, differences, strict=True))
            yield Footnote(DAGGER, f"{name} was measured under different protocols, do not compare: {which}")


class _Context(NamedTuple):
    shared: tuple[str, ...]  # "dataset digits", for the title
    differing: tuple[str, ...]  # what distinguishes the rows: columns beside the model


_CONTEXT: Mapping[str, Callable[[ModelRecords], str]] = {
    "dataset": lambda row: row.dataset,
    "recipe": lambda row: row.recipe,
    "seeds": lambda row: ", ".join(map(str, row.seeds)),
}


def _identifying(*labels: str) -> Iterator[Heading]:
    return (Heading(label, identifies=True) for label in labels)


def _heading(column: Column, columns: Sequence[Column]) -> Heading:
    alone = [other.label for other in columns].count(column.label) == 1
    return Heading(column.label if alone else f"{column.label} ({column.metric})", detail(column.unit, column.better))


def _titles(pivot: Pivot) -> Iterator[str]:
    yield pivot.title
    yield f"{pivot.value.label} {detail(pivot.value.unit, pivot.value.better)}".strip()
    yield from (f"{option} {value}" for option, value in pivot.throughout.items())


def _places(
    pivot: Pivot, records: Sequence[Sequence[Sequence[Record | None]]]
) -> Iterator[tuple[str, list[Record | None]]]:
    """Every place of a pivot table, by its name, with what the models have there."""
    for line, of_line in zip(pivot.lines, records, strict=True):
        for number, heading in enumerate(pivot.headings):
            where = ", ".join((*line.values, heading))
            yield f"{pivot.value.label} ({where})", [of_row[number] for of_row in of_line]


def _recipes(labels: Iterable[str]) -> Iterator[Footnote]:
    """What the recipes are, of those that are installed."""
    for name in dict.fromkeys(label.partition("+")[0] for label in labels):
        if title := title_of(name):
            yield Footnote("", f"recipe {name}: {title}.")


def _positive_class(labels: Iterable[str]) -> Iterator[Footnote]:
    """Which class is positive under FPR95 and AUPR: half of the literature has it the other way round."""
    if {"fpr95-in", "fpr95-out", "aupr-in", "aupr-out"} & set(labels):
        yield Footnote(
            "",
            "-in: in-distribution is the positive class (fpr95-in: the share of outliers above the threshold that 95 % "
            "of the test images pass); -out: outliers are, which is OpenOOD's convention for FPR95.",
        )


def _legend(records: Sequence[Record | None], published: Sequence[tuple[Text, ...]]) -> Iterator[Footnote]:
    found = [record for record in records if record]
    intervals = any(record.low is not None for record in found)
    if intervals:
        yield Footnote(
            "", "[low, high]: 95 % interval over what was measured (test images, samples, timed iterations)."
        )
    if any(record.sd is not None for record in found):
        ends = " The ends of the interval are means over the seeds: what other test images would change." * intervals
        means = "Value: mean over the seeds; ±: standard deviation over the seeds, how much training anew changes it."
        yield Footnote("", means + ends)
    if any(record.status == "not run" for record in found):
        yield Footnote("", "not run: `jembench run` measures what is missing.")
    if len(found) < len(records):
        yield Footnote("", f"{ABSENT}: not asked for there.")
    if any(text.value == ABSENT for row in published for text in row):
        yield Footnote("", f"{ABSENT} in a published row: not given, or not comparable with ours.")
