"""From rows to tables, by parts of a suite or metrics.

A part of a suite has a main table of its metrics and a table for each of its grids. Metrics that
differ only in options (an attack) have a table with a line for each choice of options.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jembench.catalog.spec import Spec
from jembench.experiment.names import DisplayNames
from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid, Place, covers
from jembench.report import headings
from jembench.report.protocols import (
    DEFENCE,
    in_common,
    in_words,
    own_name,
    parsed,
    parts_of,
    peculiarities,
    without_options,
)
from jembench.report.rows import Row, grouped, measured, spread
from jembench.report.select import T
from jembench.report.table import ABSENT, DAGGER, NOTES, Footnote, Heading, Table, detail, pivot
from jembench.store.outcome import Trained

Best = Callable[[Sequence[Row]], Collection[Row]]
"""A function that finds the best values of a table."""

RowText = Callable[[Row], str]

EXPECTED = "-expected"
"""The end of the labels of accuracies of one random prediction."""


@dataclass(frozen=True)
class Tables:
    """The tables of some rows.

    Args:
        rows: ours, in the order of the models, then the published rows below ours.
        parts: of a suite; none: all metrics.
        labels: the order of the columns; empty: the metrics' order.
        best: finds the best values; None: no value is marked.
        names: display names of recipes.
    """

    rows: Sequence[Row]
    parts: Sequence[Part]
    labels: Sequence[str]
    best: Best | None
    names: DisplayNames

    def of_parts(self) -> Iterator[Table]:
        """Yield the tables of each part, or of each kind of metric."""
        if not self.parts:
            yield from self._of_kinds()
        for part in self.parts:
            rows = [row for row in self.rows if row.source or row.fit in part.rows]
            title = part.title if part.title and len(self.parts) > 1 else "Results"
            kinds = {metric.bare for metric in part.metrics}
            if len(kinds) == 1 and len(part.metrics) > 1:  # an attack under several options
                yield from self.by_options(title, part.metrics, rows)
            else:
                yield from self.main(title, part.metrics, rows)
            for grid in part.grids:
                yield from self.of_grid(grid, rows)

    def _of_kinds(self) -> Iterator[Table]:
        """Yield a table of metrics with one value, then the others."""
        single: list[Spec] = []
        several: list[list[Spec]] = []
        for of_kind in grouped(self.rows, _metric):
            metrics = list(dict.fromkeys(row.metric for row in of_kind))
            if {row.place for row in of_kind} == {of_kind[0].place}:
                single += metrics
            else:
                several.append(metrics)
        yield from self.main("Results", single, self.rows)
        for metrics in several:
            title = headings.in_words(metrics[0].bare)
            yield from self.by_options(title, metrics, self.rows)

    def main(self, title: str, metrics: Sequence[Spec], rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table with a column for each value of some metrics."""
        shown = _of_metrics(rows, metrics)
        in_order = sorted(shown, key=lambda row: metrics.index(row.metric))
        outliers: dict[str, str] = {}
        for row in shown:
            if row.protocol and not row.source:
                outliers[row.metric] = outliers_in(row)
        columns = _headings(
            in_order, lambda row: row.place, lambda row: outliers.get(row.metric, "")
        )
        yield from self._table([title], metrics, shown, {}, lambda row: columns[row.place])

    def by_options(
        self, title: str, metrics: Sequence[Spec], rows: Sequence[Row]
    ) -> Iterator[Table]:
        """Yield a table of a metric, a line per choice of options.

        Options that the label of a value tells, such as the norm of an attack, or that follow from
        others, such as the chains of a refined model, have no column.
        """
        of_metrics = spread(_of_metrics(rows, metrics), _metric)
        shown, repeats = self._without_repeats(of_metrics)
        options: dict[Spec, dict[str, str]] = {}
        for row in sorted(shown, key=lambda row: row.protocol):
            options[row.metric] = parts_of(row.protocol) | row.options

        def count_distinct(names: Sequence[str]) -> int:
            return len({(row.label, *map(options[row.metric].get, names)) for row in shown})

        # an option has a column if it tells apart what the columns before it do not; a set always
        chosen: list[str] = []
        lines: dict[str, RowText] = {}
        names = dict.fromkeys(name for row in shown for name in row.options)
        for name in sorted(names, key=_defence_rank):
            before = [] if name == "set" else chosen
            if count_distinct([*before, name]) > count_distinct(before):
                chosen.append(name)
                lines[in_words([name])] = _option_of(options, name)
        columns = _headings(shown, lambda row: row.label)
        for table in self._table([title], metrics, shown, lines, lambda row: columns[row.label]):
            yield replace(table, footnotes=(*table.footnotes, *repeats))

    def _without_repeats(self, rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Footnote]]:
        """Remove accuracies of one random prediction that add nothing, and say so.

        They add nothing where each lies within the interval of the accuracy of most predictions.
        """
        intervals = {}
        for row in measured(rows):
            intervals[row.fit, row.metric, row.label] = row.low or 0, row.high or 0
        single = [row for row in rows if row.label.endswith(EXPECTED)]
        for row in measured(single):
            of_most = row.fit, row.metric, row.label.removesuffix(EXPECTED)
            low, high = intervals.get(of_most, (0, 0))
            if row.label in self.labels or not low <= (row.value or 0) <= high:
                return rows, ()
        if not single:
            return rows, ()
        others = [row for row in rows if row not in single]
        return others, [Footnote(NOTES["one-prediction"])]

    def of_grid(self, grid: Grid, rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table per value of a grid.

        Lines are row options and models; columns are column options.
        """
        places = {place.metric: place for place in grid.places}
        covered = [row for row in rows if covers(grid.datasets, row.dataset)]
        shown = spread(_of_metrics(covered, places), _metric)
        options = {}
        for metric, place in places.items():
            options[metric] = dict(zip(grid.rows, place.row, strict=True))
        # an option with one value stands in the title
        lines, titles = dict[str, RowText](), list[str]()
        for name, values in grid.rows.items():
            if len(values) == 1:
                titles.append(f"{in_words([name])} {values[0]}")
            else:
                lines[in_words([name])] = _option_of(options, name)

        for of_label in grouped(sorted(shown, key=self._rank), lambda row: row.label):
            first, label = of_label[0], of_label[0].label or grid.metric
            wanted = self.labels or grid.values or [label]
            if first.label and not _is_among(label, wanted):
                continue
            heading = heading_of(first)
            title = [grid.title, f"{heading.label} {heading.detail}".strip(), *titles]
            column = _grid_heading(grid, places, label)
            yield from self._table(title, list(places), of_label, lines, column)

    def _rank(self, row: Row) -> int:
        if row.label in self.labels:
            return self.labels.index(row.label)
        return len(self.labels)

    def _table(
        self,
        titles: Sequence[str],
        metrics: Sequence[str],
        rows: Sequence[Row],
        options: Mapping[str, RowText],
        heading: Callable[[Row], Heading],
    ) -> Iterator[Table]:
        """Yield a table of rows with remarks, if any row is ours.

        Args:
            titles: parts of the title.
            metrics: in the order of choices of options, and of columns.
            rows: in the order of models.
            options: functions from a row to texts that, beside the model, identify a line.
            heading: returns the column of a row.
        """
        ours = [row for row in rows if not row.source]
        if not ours:
            return
        datasets = {row.dataset for row in ours}
        shown = [row for row in rows if row.dataset in datasets]
        by_metric = sorted(shown, key=lambda row: metrics.index(row.metric))
        shown = _by_options(shown, by_metric, options.values())

        # what all models share stands in the title, the rest in columns
        title = [*titles, in_common(row.protocol for row in ours)]
        index = {**options, "model": lambda row: row.name}
        for name, text in self._context().items():
            texts = list(dict.fromkeys(map(text, ours)))
            if len(texts) > 1:
                index[name] = text
            elif name == "seeds" and "," not in texts[0]:
                title.append(f"seed {texts[0]}")
            else:
                title.append(f"{name} {texts[0]}")
        best = self.best(ours) if self.best else ()
        table = pivot(
            shown,
            index,
            dict.fromkeys(map(heading, sorted(by_metric, key=self._rank))),
            heading,
            title=" · ".join(filter(None, title)),
            best=best,
        )
        legend = self._legend(ours, heading, table, has_best=bool(best))
        yield replace(table, footnotes=(*_differing_protocols(ours), *map(Footnote, legend)))

    def _legend(
        self,
        rows: Sequence[Row],
        heading: Callable[[Row], Heading],
        table: Table,
        *,
        has_best: bool,
    ) -> Iterator[str]:
        """Yield the sentences below a table."""
        if has_best:
            yield NOTES["bold"]
        for row in rows:
            label = heading(row).label
            if label.endswith("*"):
                yield f"{label}: {row.metric}."
        yield from remarks(rows, [cell.value for cell in table.cells])
        recipes = {row.recipe for row in rows}
        named = [label for label in self.names.recipes if label in recipes]
        for alike in grouped(named, self.names.recipes.__getitem__):
            yield f"{self.names.recipes[alike[0]]}: recipe {', '.join(alike)}."

    def _context(self) -> dict[str, RowText]:
        """Return what tells trained models apart besides their names."""
        seeds: dict[Trained, set[int]] = {}
        for row in self.rows:
            seeds.setdefault(row.fit, set()).update(row.seeds)

        def recipe(row: Row) -> str:
            return self.names.recipes.get(row.recipe) or recipe_name(row.recipe) or ABSENT

        def seed_numbers(row: Row) -> str:
            return ", ".join(map(str, sorted(seeds[row.fit]))) or ABSENT

        return {"dataset": lambda row: row.dataset_name, "recipe": recipe, "seeds": seed_numbers}


def _by_options(
    rows: Iterable[Row], in_order: Iterable[Row], options: Collection[RowText]
) -> list[Row]:
    """Sort rows by their choices of options, published ones last."""

    def choice(row: Row) -> tuple[str, ...]:
        return tuple(text(row) for text in options)

    choices = list(dict.fromkeys(map(choice, in_order)))
    return sorted(rows, key=lambda row: (choices.index(choice(row)), bool(row.source)))


def _of_metrics(rows: Iterable[Row], metrics: Collection[str]) -> list[Row]:
    """Return rows of metrics, without models that were not run."""
    of_metrics = [row for row in rows if row.metric in metrics]
    fits = {row.fit for row in of_metrics if row.status != "not run"}
    return [row for row in of_metrics if row.fit in fits]


def _metric(row: Row) -> str:
    return row.metric.bare


def _is_among(label: str, names: Iterable[str]) -> bool:
    """Return whether a label is one of the names or a variant of one."""
    return any(_is_variant(label, name) for name in names)


def _is_variant(label: str, name: str) -> bool:
    """Return whether a label is a name or its variant: ``fid-cnn``."""
    return f"{label}-".startswith(f"{name}-")


def _defence_rank(name: str) -> int:
    if name in DEFENCE:
        return DEFENCE.index(name)
    return 0


def recipe_name(label: str) -> str:
    """Return the label of a recipe without the digest of imported weights."""
    return label.partition("+source=")[0]


def outliers_in(row: Row) -> str:
    """Return the score and the OOD sets of a row.

    Returns:
        "" if its protocol has none.
    """
    parts = parts_of(row.protocol)
    score, sets = parts.get("score", ""), parts.get("set", "")
    if "+" in sets:
        sets = f"{sets.count('+') + 1} sets"
    sets = own_name(row.metric.options.get("set", "")) or sets
    return ", ".join(filter(None, (score, sets)))


def heading_of(row: Row, about: str = "") -> Heading:
    """Return the heading of a row's column.

    Args:
        row: the row.
        about: a text before the unit, if no feature network stands there.
    """
    text, network = row.heading
    unit = ", ".join(filter(None, (network or about, row.unit)))
    if row.label == "energy-gap":
        return Heading(text, f"{detail(unit, row.better)} → 0")  # near 0 is good
    return Heading(text, detail(unit, row.better))


def _headings(
    rows: Iterable[Row], key: Callable[[Row], T], about: RowText = lambda row: ""
) -> dict[T, Heading]:
    """Return the headings of columns by their keys; equal ones get asterisks."""
    columns: dict[T, Heading] = {}
    for row in rows:
        if key(row) in columns:
            continue
        heading = heading_of(row, about(row))
        while heading in columns.values():
            heading = heading._replace(label=f"{heading.label}*")
        columns[key(row)] = heading
    return columns


def _grid_heading(grid: Grid, places: Mapping[Spec, Place], label: str) -> Callable[[Row], Heading]:
    """Return a function from a row to its column in a grid."""

    def heading(row: Row) -> Heading:
        column = places[row.metric].column
        texts = map(_option_text, grid.columns, column, grid.columns.values())
        return Heading(" ".join(texts) or label)

    return heading


def _option_of(options: Mapping[Spec, Mapping[str, str]], name: str) -> RowText:
    """Return a function from a row to an option of its metric.

    Samplers and sets appear by their names, where these tell them apart.
    """
    values = {metric: chosen.get(name, ABSENT) for metric, chosen in options.items()}
    names: dict[str, str] = {}
    if name in ("sampler", "set"):
        names = without_options(values.values())

    def option(row: Row) -> str:
        value = values[row.metric]
        return names.get(value, value)

    return option


def _option_text(name: str, value: str, values: Sequence[str]) -> str:
    """Return an option for a heading: ``interp``, ``shift 0.1``, ``celeba``.

    The value's own options are kept only where they distinguish it from another value.
    """
    if not value[:1].isalpha() or value in ("true", "false", "none"):
        return f"{in_words([name])} {value}"
    return without_options(values)[value]


# --- remarks on whole tables ----------------------------------------------------------------------


def _differing_protocols(rows: Iterable[Row]) -> Iterator[Footnote]:
    """Yield how protocols differ in columns that must not be compared."""
    for column in grouped(measured(rows), lambda row: (row.dataset, row.place)):
        protocols: dict[str, str] = {}
        usual: dict[str, str] = {}
        for row in column:
            if row.comparable:
                usual.setdefault("the others", row.protocol)
            else:
                protocols[row.name] = row.protocol
        if not protocols:
            continue
        protocols |= usual
        texts = zip(protocols, peculiarities(list(protocols.values())), strict=True)
        which = "; ".join(map(": ".join, texts))
        heading = " ".join(column[0].heading).strip()
        what = f"{heading} was measured under different protocols, do not compare"
        remedy = ""
        if len({parts_of(protocol).get("source") for protocol in protocols.values()}) > 1:
            remedy = NOTES["alike"].format(column[0].metric.bare)
        yield Footnote(f"{what}: {which}{remedy}", DAGGER)


def _origins(row: Row) -> Iterator[str]:
    """Yield remarks on samplers, features and sets."""
    parts = parts_of(row.protocol)
    sampler = parsed(parts.get("source", "")) if "sampler" in row.options else None
    if sampler and sampler.options:
        how = ", ".join(map(" ".join, sampler.options.items()))
        yield NOTES["sampler"].format(f"{sampler.name}, {how}")
    own_features = "features" not in row.options and "-cnn@" in parts.get("features", "")
    if "data_content" in parts and own_features:
        yield NOTES["own-features"]
    sets = parts.get("set", "")
    if "+" in sets:
        yield NOTES["sets"].format(", ".join(sets.split("+")))


def remarks(rows: Sequence[Row], texts: Collection[str]) -> Iterator[str]:
    """Yield what intervals, deviations and signs in a table mean.

    Args:
        rows: of the table.
        texts: of its cells.
    """
    columns: dict[str, dict[str, None]] = {}
    for row in rows:
        for origin in _origins(row):
            columns.setdefault(origin, {})[row.heading[0]] = None
    for origin, names in columns.items():
        yield f"{', '.join(names)}: {origin}"
    seeds = [set(row.seeds) for row in measured(rows) if not row.source]
    if any(own != seeds[0] for own in seeds):
        common = map(str, sorted(set.intersection(*seeds)))
        yield NOTES["seeds"].format(", ".join(common) or "none")
    with_interval = [row for row in rows if row.low is not None]
    if with_interval:
        yield NOTES["interval"]
    labels = [row.label for row in with_interval if not row.label.startswith("fid-infinity")]
    for remark, names_of_remark in NOTES["labels"].items():
        present = []
        for name in names_of_remark:
            if any(_is_variant(label, name) for label in labels):
                present.append(headings.in_words(name))
        if present:
            yield NOTES["of-labels"][remark].format(", ".join(present))
    if any(label.endswith(EXPECTED) for label in labels):
        yield NOTES["expected"]
    deviating = [row for row in rows if row.sd is not None]
    if deviating:
        yield NOTES["deviation"]
    if any(row.low is not None for row in deviating):
        yield NOTES["ends"]
    if "not run" in {row.status for row in rows}:
        yield NOTES["not-run"]
    if ABSENT in texts:
        yield NOTES["absent"]
