"""Our results as grids of texts: the main table of each section, its pivot tables, and published rows below ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.experiment.recipe import title_of
from jembench.report import attacks
from jembench.report.beside import Beside
from jembench.report.pivots import Pivot
from jembench.report.protocols import named
from jembench.report.published import label_of, source_of
from jembench.report.rounding import plain
from jembench.report.sections import Section
from jembench.report.table import Column, Entry, Row, Table, protocol_differences
from jembench.report.text import ABSENT, DAGGER, Footnote, Footnotes, Grid, Heading, Text, detail, entry_text


class Results:
    """What the grids of one report share.

    Args:
        table: the flat table.
        beside: published rows that may stand below ours.
        notes: numbered through the whole report.
    """

    def __init__(self, table: Table, beside: Sequence[Beside], notes: Footnotes) -> None:
        self.table, self.beside, self.notes = table, beside, notes

    def grids(self, section: Section, title: str) -> Iterator[Grid]:
        """The main table of a section, by that title, if there is one, then its pivot tables."""
        if section.rows and section.columns:
            yield self._main(section, title)
        for pivot in section.pivots:
            yield self._pivot(pivot)

    # --- the main table ---

    def _main(self, section: Section, title: str) -> Grid:
        columns, places, rows, of = attacks.lines(self.table, section.rows, section.columns)
        context = self._context(section.rows)
        ours = [
            (self._model(row), *context.texts[index], *(entry_text(entry, self.notes) for entry in row.entries))
            for row, index in zip(rows, of, strict=True)
        ]
        published = self._published(places, section.rows, context)
        entries = [[row.entries[number] for row in rows] for number in range(len(columns))]
        measured = (self.table.rows[row].entries[index].protocol for row in section.rows for index in section.columns)
        return Grid(
            title=" · ".join((title, *attacks.in_common(measured), *context.shared)),
            headings=(*_identifying("model", *context.headings), *(_heading(column, columns) for column in columns)),
            rows=(*ours, *published),
            footnotes=(
                *_legend([entry for of_column in entries for entry in of_column], published),
                *_positive_class(column.label for column in columns),
                *_recipes(row.recipe for row in rows),
                *self._differing_protocols(zip((column.label for column in columns), entries, strict=True), rows),
                *self.notes.take(),
            ),
        )

    # --- pivot tables ---

    def _pivot(self, pivot: Pivot) -> Grid:
        context = self._context(pivot.rows)
        entries = [
            [[pivot.entry(self.table, row, index) for index in line.columns] for row in pivot.rows]
            for line in pivot.lines
        ]
        columns = [[of_row[number] for line in entries for of_row in line] for number in range(len(pivot.headings))]
        marks = [self._shared_mark(column) for column in columns]
        done = attacks.in_common(entry.protocol for column in columns for entry in column)
        rows: list[tuple[Text, ...]] = []
        published: list[tuple[Text, ...]] = []
        for line, of_line in zip(pivot.lines, entries, strict=True):
            options = [Text(value) for value in line.values]
            for row, of_row in zip(pivot.rows, of_line, strict=True):
                texts = (
                    entry_text(replace(entry, reason="") if mark else entry, self.notes)
                    for entry, mark in zip(of_row, marks, strict=True)
                )
                rows.append((*options, self._model(self.table.rows[row]), *context.texts[row], *texts))
            found = self._published(line.columns, pivot.rows, context)
            published += found
            rows += [(*options, *row) for row in found]
        return Grid(
            title=" · ".join((*_titles(pivot), *done, *context.shared)),
            headings=(
                *_identifying(*pivot.options, "model", *context.headings),
                *(Heading(label, marks=mark) for label, mark in zip(pivot.headings, marks, strict=True)),
            ),
            rows=tuple(rows),
            footnotes=(
                *_legend([entry for column in columns for entry in column], published),
                *_positive_class([pivot.value.label]),
                *_recipes(self.table.rows[row].recipe for row in pivot.rows),
                *self._differing_protocols(_places(pivot, entries), [self.table.rows[row] for row in pivot.rows]),
                *self.notes.take(),
            ),
        )

    def _shared_mark(self, column: Sequence[Entry]) -> tuple[str, ...]:
        """The footnote of a column in which nothing has a value for one and the same reason."""
        asked = [entry for entry in column if entry.status != "not asked for"]
        reasons = {(entry.status, entry.reason) for entry in asked}
        if len(asked) < 2 or len(reasons) != 1 or asked[0].status != "na" or not asked[0].reason:
            return ()
        return (self.notes.mark(asked[0].reason),)

    # --- what both share ---

    def _model(self, row: Row) -> Text:
        return Text(row.model, marks=tuple(self.notes.mark(note) for note in row.notes))

    def _context(self, rows: Sequence[int]) -> _Context:
        """What tells rows apart besides the model, and what all of them share."""
        found = [self.table.rows[index] for index in rows]
        context = {
            "dataset": [row.dataset for row in found],
            "recipe": [row.recipe for row in found],
            "seeds": [", ".join(map(str, row.seeds)) for row in found],
        }
        differing = {name: texts for name, texts in context.items() if len(set(texts)) > 1}
        shared = {name: texts[0] for name, texts in context.items() if name not in differing}
        if "," not in shared.get("seeds", ","):
            shared["seed"] = shared.pop("seeds")
        return _Context(
            shared=tuple(f"{name} {text}" for name, text in shared.items()),
            headings=tuple(differing),
            texts={
                index: [self._context_text(name, texts[number]) for name, texts in differing.items()]
                for number, index in enumerate(rows)
            },
        )

    def _context_text(self, name: str, text: str) -> Text:
        short = self.table.recipe_names.get(text) if name == "recipe" else None
        return Text(text) if short is None else Text(short, marks=(self.notes.mark(f"recipe {text}"),))

    def _published(
        self, columns: Sequence[int | None], rows: Sequence[int], context: _Context
    ) -> list[tuple[Text, ...]]:
        """The published rows that have a number of the same meaning in one of these columns."""
        datasets = {self.table.rows[row].dataset for row in rows}
        return [
            (
                self._published_model(one),
                *(Text(one.row.dataset if name == "dataset" else ABSENT) for name in context.headings),
                *(Text(plain(one.values[i]) if i is not None and i in one.values else ABSENT) for i in columns),
            )
            for one in self.beside
            if one.dataset in datasets and any(index in one.values for index in columns)
        ]

    def _published_model(self, one: Beside) -> Text:
        source = source_of(one.row, one.table)
        if one.tacit:
            source += f"; not stated there: {', '.join(map(named, one.tacit))}"
        notes = [one.row.note, source] if one.row.note else [source]
        return Text(f"{label_of(one.row, self.table)} · {one.row.status}", marks=tuple(map(self.notes.mark, notes)))

    def _differing_protocols(
        self, named_entries: Iterable[tuple[str, Sequence[Entry]]], rows: Sequence[Row]
    ) -> Iterator[Footnote]:
        for name, entries in named_entries:
            measured = [(row, entry) for row, entry in zip(rows, entries, strict=True) if entry.status == "ok"]
            found = [(row.model, entry.protocol) for row, entry in measured if not entry.comparable]
            if not found:
                continue
            datasets = {row.dataset for row, entry in measured if not entry.comparable}
            usual = {entry.protocol for row, entry in measured if entry.comparable and row.dataset in datasets}
            found += [("the others", protocol) for protocol in sorted(usual)]
            differences = protocol_differences([protocol for _, protocol in found])
            which = "; ".join(f"{model}: {text}" for (model, _), text in zip(found, differences, strict=True))
            yield Footnote(DAGGER, f"{name} was measured under different protocols, do not compare: {which}")


class _Context(NamedTuple):
    shared: tuple[str, ...]  # "dataset digits", for the title
    headings: tuple[str, ...]  # what differs
    texts: dict[int, list[Text]]  # row -> its own


def _identifying(*labels: str) -> Iterator[Heading]:
    return (Heading(label, identifies=True) for label in labels)


def _heading(column: Column, columns: Sequence[Column]) -> Heading:
    alone = [other.label for other in columns].count(column.label) == 1
    return Heading(column.label if alone else f"{column.label} ({column.metric})", detail(column.unit, column.better))


def _titles(pivot: Pivot) -> Iterator[str]:
    yield pivot.title
    yield f"{pivot.value.label} {detail(pivot.value.unit, pivot.value.better)}".strip()
    yield from (f"{option} {value}" for option, value in pivot.throughout.items())


def _places(pivot: Pivot, entries: Sequence[Sequence[Sequence[Entry]]]) -> Iterator[tuple[str, list[Entry]]]:
    """Every place of a pivot table, by its name, with what the models have there."""
    for line, of_line in zip(pivot.lines, entries, strict=True):
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


def _legend(entries: Sequence[Entry], published: Sequence[tuple[Text, ...]]) -> Iterator[Footnote]:
    intervals = any(entry.low is not None for entry in entries)
    if intervals:
        yield Footnote(
            "", "[low, high]: 95 % interval over what was measured (test images, samples, timed iterations)."
        )
    if any(entry.sd is not None for entry in entries):
        ends = " The ends of the interval are means over the seeds: what other test images would change." * intervals
        means = "Value: mean over the seeds; ±: standard deviation over the seeds, how much training anew changes it."
        yield Footnote("", means + ends)
    if any(entry.status == "not run" for entry in entries):
        yield Footnote("", "not run: `jembench run` measures what is missing.")
    if any(entry.status == "not asked for" for entry in entries):
        yield Footnote("", f"{ABSENT}: not asked for there.")
    if any(text.value == ABSENT for row in published for text in row):
        yield Footnote("", f"{ABSENT} in a published row: not given, or not comparable with ours.")
