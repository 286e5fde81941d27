"""From rows to tables, by parts of a suite or metrics.

A part of a suite has a main table of its metrics and a table for each of its grids. Metrics that
differ in their options alone (an attack) have a table with a line for each choice of options.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jembench.experiment.names import DisplayNames
from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid, Place, bare_name, covers
from jembench.report import headings
from jembench.report.protocols import DEFENCE, in_common, in_words, parsed, parts_of, peculiarities
from jembench.report.rows import Row, grouped, measured, spread
from jembench.report.select import T
from jembench.report.table import ABSENT, DAGGER, NOTES, Footnote, Heading, Table, detail, pivot
from jembench.store.outcome import Trained

Best = Callable[[Sequence[Row]], Collection[Row]]
"""Finds the best of the values of a table."""

RowText = Callable[[Row], str]


@dataclass(frozen=True)
class Tables:
    """The tables of some rows.

    Args:
        rows: ours, in the order of the models, then the published ones that stand below them.
        parts: of a suite; none: all metrics.
        labels: the order of the columns; empty: that of the metrics.
        best: finds the best values; None: none are marked.
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
            kinds = set(map(bare_name, part.metrics))
            if len(kinds) == 1 and len(part.metrics) > 1:  # an attack under several options
                yield from self.by_options(title, part.metrics, rows)
            else:
                yield from self.main(title, part.metrics, rows)
            for grid in part.grids:
                yield from self.of_grid(grid, rows)

    def _of_kinds(self) -> Iterator[Table]:
        """Yield a table of metrics with one value, then the others."""
        places = dict.fromkeys(row.place for row in self.rows)
        kinds = grouped(places, lambda place: bare_name(place[0]))
        single = [places[0][0] for places in kinds if len(places) == 1]
        yield from self.main("Results", single, self.rows)
        for places_of_kind in kinds:
            if len(places_of_kind) > 1:
                metrics = list(dict.fromkeys(metric for metric, _ in places_of_kind))
                title = headings.in_words(bare_name(metrics[0]))
                yield from self.by_options(title, metrics, self.rows)

    def main(self, title: str, metrics: Sequence[str], rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table with a column for each value of some metrics."""
        shown = _of_metrics(rows, metrics)
        in_order = sorted(shown, key=lambda row: metrics.index(row.metric))
        outliers: dict[str, str] = {}
        for row in shown:
            if row.protocol and not row.source:
                outliers[row.metric] = outliers_in(row.protocol)
        columns = _headings(
            in_order, lambda row: row.place, lambda row: outliers.get(row.metric, "")
        )
        yield from self._table([title], metrics, shown, {}, lambda row: columns[row.place])

    def by_options(
        self, title: str, metrics: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[Table]:
        """Yield a table of a metric, a line per choice of options.

        Options that the label of a value tells, such as the norm of an attack, or that follow from
        others, such as the chains of a refined model, have no column.
        """
        shown = spread(_of_metrics(rows, metrics), _metric)
        options: dict[str, dict[str, str]] = {}
        for row in sorted(shown, key=lambda row: row.protocol):
            options[row.metric] = parts_of(row.protocol) | row.options

        def count_distinct(names: Sequence[str]) -> int:
            return len({(row.label, *map(options[row.metric].get, names)) for row in shown})

        # an option has a column if it tells apart what the columns before it do not
        chosen: list[str] = []
        names = dict.fromkeys(name for row in shown for name in row.options)
        for name in sorted(names, key=_defence_rank):
            if count_distinct([*chosen, name]) > count_distinct(chosen):
                chosen.append(name)
        lines = {in_words([name]): _option_of(options, name) for name in chosen}
        columns = _headings(shown, lambda row: row.label)
        yield from self._table([title], metrics, shown, lines, lambda row: columns[row.label])

    def of_grid(self, grid: Grid, rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table per value of a grid.

        Row options and models stand across column options.
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
            value = " ".join(filter(None, heading_of(first)[:2]))
            column = _grid_heading(grid, places, label)
            yield from self._table(
                [grid.title, value, *titles], list(places), of_label, lines, column
            )

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
        """Yield the pivot of rows with its remarks, if any are ours.

        Args:
            titles: parts of the title.
            metrics: in the order of choices of options, and of columns.
            rows: in the order of models.
            options: texts that identify a line beside the model.
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
        shared, differing = [], dict[str, RowText]()
        for name, text in self._context().items():
            texts = list(dict.fromkeys(map(text, ours)))
            if len(texts) > 1:
                differing[name] = text
            else:
                noun = "seed" if name == "seeds" and "," not in texts[0] else name
                shared.append(f"{noun} {texts[0]}")
        title = [*titles, in_common(row.protocol for row in ours), *shared]
        best = self.best(ours) if self.best else ()
        table = pivot(
            shown,
            {**options, "model": lambda row: row.name, **differing},
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
        yield from remarks(rows, [cell.value for line in table.rows for cell in line])
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
    """Return rows of metrics, without models that nothing was run for."""
    of_metrics = [row for row in rows if row.metric in metrics]
    fits = {row.fit for row in of_metrics if row.status != "not run"}
    return [row for row in of_metrics if row.fit in fits]


def _metric(row: Row) -> str:
    return bare_name(row.metric)


def _is_among(label: str, names: Iterable[str]) -> bool:
    """Return whether a label is a name or its variant: ``fid-cnn``."""
    return any(f"{label}-".startswith(f"{name}-") for name in names)


def _defence_rank(name: str) -> int:
    if name in DEFENCE:
        return DEFENCE.index(name)
    return 0


def recipe_name(label: str) -> str:
    """Return the label of a recipe without the digest of imported weights."""
    return label.partition("+source=")[0]


def outliers_in(protocol: str) -> str:
    """Return the score and the sets of outliers of a protocol.

    Returns:
        "" where it has none.
    """
    parts = parts_of(protocol)
    sets = parts.get("set", "")
    if "+" in sets:
        sets = f"{sets.count('+') + 1} sets"
    return ", ".join(filter(None, (parts.get("score"), sets)))


def heading_of(row: Row, about: str = "") -> Heading:
    """Return the heading of a row's column.

    Args:
        row: the row.
        about: what stands before the unit, where no feature network does.
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


def _grid_heading(grid: Grid, places: Mapping[str, Place], label: str) -> Callable[[Row], Heading]:
    """Return a function from a row to its column in a grid."""

    def heading(row: Row) -> Heading:
        texts = []
        axes = zip(grid.columns.items(), places[row.metric].column, strict=True)
        for (name, values), value in axes:
            texts.append(_option_text(name, value, values))
        return Heading(" ".join(texts) or label)

    return heading


def _option_of(options: Mapping[str, Mapping[str, str]], name: str) -> RowText:
    """Return a function from a row to an option of its metric.

    Samplers and sets appear by their names, where these tell them apart.
    """
    values = {metric: chosen.get(name, ABSENT) for metric, chosen in options.items()}
    names = headings.without_options(values.values()) if name in ("sampler", "set") else {}

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
    return headings.without_options(values)[value]


# --- remarks on whole tables ----------------------------------------------------------------------


def _differing_protocols(rows: Iterable[Row]) -> Iterator[Footnote]:
    """Yield how protocols differ in columns that must not be compared."""
    for column in grouped(measured(rows), lambda row: (row.dataset, row.place)):
        protocols = {row.name: row.protocol for row in column if not row.comparable}
        if not protocols:
            continue
        usual = next((row.protocol for row in column if row.comparable), None)
        if usual is not None:
            protocols["the others"] = usual
        texts = zip(protocols, peculiarities(list(protocols.values())), strict=True)
        which = "; ".join(f"{name}: {text}" for name, text in texts)
        heading = " ".join(filter(None, column[0].heading))
        what = f"{heading} was measured under different protocols, do not compare"
        yield Footnote(f"{what}: {which}", DAGGER)


def _origins(row: Row) -> Iterator[str]:
    """Yield remarks on samplers, features and sets."""
    parts = parts_of(row.protocol)
    sampler = parsed(parts.get("source", "")) if "sampler" in row.options else None
    if sampler and sampler.options:
        how = ", ".join(" ".join(option) for option in sampler.options.items())
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
    origins = [(text, row.heading[0]) for row in rows for text in _origins(row)]
    for alike in grouped(origins, lambda origin: origin[0]):
        columns = dict.fromkeys(column for _, column in alike)
        yield f"{', '.join(columns)}: {alike[0][0]}"
    with_interval = [row for row in rows if row.low is not None]
    if with_interval:
        yield NOTES["interval"]
    labels = [row.label for row in with_interval if not row.label.startswith("fid-infinity")]
    for remark, names in NOTES["labels"].items():
        present = [name for name in names if any(_is_among(label, [name]) for label in labels)]
        if present:
            yield NOTES["of-labels"][remark].format(", ".join(map(headings.in_words, present)))
    if any(label.endswith("-expected") for label in labels):
        yield NOTES["expected"]
    if any(row.sd is not None for row in rows):
        yield NOTES["deviation"]
    if any(row.sd is not None for row in with_interval):
        yield NOTES["ends"]
    if any(row.status == "not run" for row in rows):
        yield NOTES["not-run"]
    if ABSENT in texts:
        yield NOTES["absent"]
