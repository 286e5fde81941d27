"""From rows to tables: those that a suite names, or without a suite one of each kind of metric.

A part of a suite has a main table of its metrics and a table for each of its grids. Metrics that
differ in their options alone (an attack) have a table with a line for each choice of options.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jembench.experiment.names import Fit, Names
from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid, bare_name, covers
from jembench.report import headings
from jembench.report.protocols import DEFENCE, in_common, in_words, parsed, parts_of, peculiarities
from jembench.report.rows import Row, grouped, spread
from jembench.report.select import T
from jembench.report.table import ABSENT, DAGGER, NOTES, Footnote, Heading, Table, detail, pivot

Best = Callable[[Sequence[Row]], Collection[Row]]
"""Finds the best of the values of a table."""


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
    names: Names

    def of_parts(self) -> Iterator[Table]:
        """Yield the tables of each part; without parts, one of metrics of one value and one of each
        other metric.
        """
        if not self.parts:
            groups = grouped(
                dict.fromkeys(row.place for row in self.rows), lambda place: bare_name(place[0])
            )
            yield from self.main(
                "Results", [group[0][0] for group in groups if len(group) == 1], self.rows
            )
            for group in groups:
                if len(group) > 1:
                    metrics = list(dict.fromkeys(metric for metric, _ in group))
                    yield from self.by_options(
                        headings.in_words(bare_name(metrics[0])), metrics, self.rows
                    )
        for part in self.parts:
            rows = [row for row in self.rows if row.source or row.fit in part.rows]
            title = part.title if part.title and len(self.parts) > 1 else "Results"
            is_attack = len(part.metrics) > 1 and len(set(map(bare_name, part.metrics))) == 1
            yield from (self.by_options if is_attack else self.main)(title, part.metrics, rows)
            for grid in part.grids:
                yield from self.of_grid(grid, rows)

    @cached_property
    def _recipes(self) -> dict[str, str]:
        """The names that a suite gives to recipes, by their labels."""
        return {label: name for (model, label), name in self.names.items() if not model}

    def main(self, title: str, metrics: Sequence[str], rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table with a column for each value of some metrics."""
        shown = _known(rows, metrics)
        in_order = sorted(shown, key=lambda row: metrics.index(row.metric))
        outliers = {
            row.metric: outliers_in(row.protocol)
            for row in shown
            if row.protocol and not row.source
        }
        headings = _headings(
            in_order, lambda row: row.place, lambda row: outliers.get(row.metric, "")
        )
        yield from self._table([title], metrics, shown, {}, lambda row: headings[row.place])

    def by_options(
        self, title: str, metrics: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[Table]:
        """Yield a table of one metric under several options: a line for each choice, a column for
        each value.

        Options that the label of a value tells, such as the norm of an attack, or that follow from
        others, such as the chains of a refined model, have no column.
        """
        shown = spread(_known(rows, metrics), _metric)
        options = {
            row.metric: parts_of(row.protocol) | row.options
            for row in sorted(shown, key=lambda row: row.protocol)
        }

        def distinct(names: Iterable[str]) -> int:
            return len(
                {(row.label, *(options[row.metric].get(name) for name in names)) for row in shown}
            )

        chosen: list[str] = []
        names = dict.fromkeys(name for row in shown for name in row.options)
        for name in sorted(names, key=lambda name: name in DEFENCE and DEFENCE.index(name)):
            if distinct((*chosen, name)) > distinct(chosen):
                chosen.append(name)
        lines = {in_words([name]): _option_of(options, name) for name in chosen}
        headings = _headings(shown, lambda row: row.label)
        yield from self._table([title], metrics, shown, lines, lambda row: headings[row.label])

    def of_grid(self, grid: Grid, rows: Sequence[Row]) -> Iterator[Table]:
        """Yield a table for each value of a grid: its row options and models across its column
        options.
        """
        places = {place.metric: place for place in grid.places}
        shown = spread(
            _known([row for row in rows if covers(grid.datasets, row.dataset)], places), _metric
        )
        options = {
            metric: dict(zip(grid.rows, place.row, strict=True)) for metric, place in places.items()
        }
        lines = {
            in_words([name]): _option_of(options, name)
            for name, values in grid.rows.items()
            if len(values) > 1
        }
        fixed = [
            f"{in_words([name])} {values[0]}"
            for name, values in grid.rows.items()
            if len(values) == 1
        ]
        for of_label in grouped(sorted(shown, key=self._rank), lambda row: row.label):
            first, label = of_label[0], of_label[0].label or grid.metric
            wanted = self.labels or grid.values or [label]
            if first.label and not any(f"{label}-".startswith(f"{one}-") for one in wanted):
                continue
            titles = [grid.title, " ".join(filter(None, heading_of(first)[:2])), *fixed]

            def heading(row: Row, label: str = label) -> Heading:
                axes = zip(grid.columns.items(), places[row.metric].column, strict=True)
                return Heading(
                    " ".join(_option_text(name, value, among) for (name, among), value in axes)
                    or label
                )

            yield from self._table(titles, list(places), of_label, lines, heading)

    def _labels(self, shown: set[str]) -> Iterator[str]:
        """Yield the labels of shown recipes that the suite names."""
        for alike in grouped(
            (label for label in self._recipes if label in shown), self._recipes.__getitem__
        ):
            yield f"{self._recipes[alike[0]]}: recipe {', '.join(alike)}."

    def _rank(self, row: Row) -> int:
        return self.labels.index(row.label) if row.label in self.labels else len(self.labels)

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

        def choice(row: Row) -> tuple[str, ...]:
            return tuple(text(row) for text in options.values())

        in_order = sorted(shown, key=lambda row: metrics.index(row.metric))
        choices = list(dict.fromkeys(map(choice, in_order)))
        shown.sort(key=lambda row: (choices.index(choice(row)), bool(row.source)))
        seeds: dict[Fit, set[int]] = {}
        for row in self.rows:
            seeds.setdefault(row.fit, set()).update(row.seeds)
        # what tells trained models apart besides their names
        context: dict[str, Callable[[Row], str]] = {
            "dataset": lambda row: row.dataset_name,
            "recipe": lambda row: (
                self._recipes.get(row.recipe) or recipe_name(row.recipe) or ABSENT
            ),
            "seeds": lambda row: ", ".join(map(str, sorted(seeds[row.fit]))) or ABSENT,
        }
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
            title=" · ".join(filter(None, titles)),
            best=best,
        )
        legend = (
            *([NOTES["bold"]] if best else []),
            *(
                f"{heading(row).label}: {row.metric}."
                for row in ours
                if heading(row).label.endswith("*")
            ),
            *remarks(ours, (cell.value for line in table.rows for cell in line)),
            *self._labels({row.recipe for row in ours}),
        )
        yield replace(table, footnotes=(*_differing_protocols(ours), *map(Footnote, legend)))


def _known(rows: Iterable[Row], metrics: Collection[str]) -> list[Row]:
    """Return the rows of some metrics, without the models of which nothing is known there."""
    mine = [row for row in rows if row.metric in metrics]
    known = {row.fit for row in mine if row.status != "not run"}
    return [row for row in mine if row.fit in known]


def _metric(row: Row) -> str:
    return bare_name(row.metric)


def recipe_name(label: str) -> str:
    """Return the label of a recipe without the digest of imported weights."""
    return label.partition("+source=")[0]


def outliers_in(protocol: str) -> str:
    """Return the score and the set of outliers of a protocol, or the number of sets; "" where it
    has none.
    """
    score, sets = (parts_of(protocol).get(part, "") for part in ("score", "set"))
    several = f"{sets.count('+') + 1} sets" if "+" in sets else sets
    return ", ".join(filter(None, (score, several)))


def heading_of(row: Row, about: str = "") -> Heading:
    """Return the heading of a row's column, with a feature network or what else it is about before
    the unit.
    """
    text, network = row.heading
    unit = ", ".join(filter(None, (network or about, row.unit)))
    # near 0 is good
    return Heading(text, detail(unit, row.better) + " → 0" * (row.label == "energy-gap"))


def _headings(
    rows: Iterable[Row], key: Callable[[Row], T], about: Callable[[Row], str] = lambda row: ""
) -> dict[T, Heading]:
    """Return the headings of columns by their keys; equal ones get asterisks."""
    found: dict[T, Heading] = {}
    for row in rows:
        heading = heading_of(row, about(row))
        while key(row) not in found and heading in found.values():
            heading = heading._replace(label=f"{heading.label}*")
        found.setdefault(key(row), heading)
    return found


def _option_of(options: Mapping[str, Mapping[str, str]], name: str) -> Callable[[Row], str]:
    """Return a function from a row to an option of its metric: of samplers and sets the name, if
    that will do.
    """
    values = {metric: of.get(name, ABSENT) for metric, of in options.items()}
    names = headings.without_options(values.values()) if name in ("sampler", "set") else {}
    return lambda row: names.get(value := values[row.metric], value)


def _option_text(name: str, value: str, values: Sequence[str]) -> str:
    """Return ``interp`` alone, ``0.1`` with the name of its option, and ``celeba:root=/data``
    without its own options.

    Options that alone tell it from another value are kept.
    """
    if not value[:1].isalpha() or value in ("true", "false", "none"):
        return f"{in_words([name])} {value}"
    return headings.without_options(values)[value]


# --- remarks on whole tables
# ------------------------------------------------------------------------------------------


def _differing_protocols(rows: Iterable[Row]) -> Iterator[Footnote]:
    """Yield which parts of the protocols of a column differ, where its values must not be compared."""
    for column in grouped(
        (row for row in rows if row.value is not None), lambda row: (row.dataset, row.place)
    ):
        others = [row for row in column if not row.comparable]
        protocols = {row.name: row.protocol for row in others}
        usual = [row.protocol for row in column if row.comparable]
        protocols |= {"the others": usual[0]} if usual else {}
        if others:
            texts = zip(protocols, peculiarities(list(protocols.values())), strict=True)
            which = "; ".join(f"{name}: {text}" for name, text in texts)
            what = f"{' '.join(filter(None, column[0].heading))} was measured under different protocols, do not compare"
            yield Footnote(f"{what}: {which}", DAGGER)


def _origins(row: Row) -> Iterator[str]:
    """Yield that a given sampler drew the samples, and that features of one's own images are not
    Inception's.
    """
    parts = parts_of(row.protocol)
    sampler = parsed(parts.get("source", "")) if "sampler" in row.options else None
    if sampler and sampler.arguments:
        how = ", ".join(" ".join(option) for option in sampler.arguments)
        yield NOTES["sampler"].format(f"{sampler.name}, {how}")
    if (
        "data_content" in parts
        and "features" not in row.options
        and "-cnn@" in parts.get("features", "")
    ):
        yield NOTES["own-features"]
    if "+" in (sets := parts.get("set", "")):
        yield NOTES["sets"].format(", ".join(sets.split("+")))


def remarks(rows: Sequence[Row], texts: Iterable[str]) -> Iterator[str]:
    """Yield what the intervals, deviations and signs in a table of some rows with these texts mean."""
    labels = [
        row.label
        for row in rows
        if row.low is not None and not row.label.startswith("fid-infinity")
    ]
    for origins in grouped(
        ((text, row.heading[0]) for row in rows for text in _origins(row)), lambda one: one[0]
    ):
        yield f"{', '.join(dict.fromkeys(label for _, label in origins))}: {origins[0][0]}"
    if any(row.low is not None for row in rows):
        yield NOTES["interval"]
    for remark, names in NOTES["labels"].items():
        if found := [
            name for name in names if any(f"{label}-".startswith(f"{name}-") for label in labels)
        ]:
            yield NOTES["of-labels"][remark].format(", ".join(map(headings.in_words, found)))
    if any(label.endswith("-expected") for label in labels):
        yield NOTES["expected"]
    if any(row.sd is not None for row in rows):
        yield NOTES["deviation"]
    if any(row.sd is not None and row.low is not None for row in rows):
        yield NOTES["ends"]
    if any(row.status == "not run" for row in rows):
        yield NOTES["not-run"]
    if ABSENT in texts:
        yield NOTES["absent"]
