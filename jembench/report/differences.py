"""The table of differences: of two models, of claims, of reproductions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report import headings
from jembench.report.comparison import (
    FIELDS,
    LEVEL,
    RESAMPLES,
    SEEDS,
    Difference,
    Read,
    Uncertainty,
    adjusted,
    conclusion,
    contrast,
)
from jembench.report.formats import Document
from jembench.report.rows import BySeed, Row, sides
from jembench.report.table import (
    ABSENT,
    NOTES,
    Footnote,
    Heading,
    Table,
    TableCell,
    decimals_for,
    detail,
    fixed,
)


class Line(NamedTuple):
    """A line of the table."""

    name: tuple[TableCell, ...]  # the texts that identify the difference
    row: Difference
    remarks: tuple[str, ...] = ()  # footnotes of the verdict


def table(
    title: str, names: Sequence[str], sides: Sequence[str], lines: Sequence[Line], *legend: str
) -> Table:
    """Return a table of differences with their intervals, p values and verdicts.

    Args:
        title: of the table.
        names: the headings of the texts that identify a line.
        sides: the headings of both values.
        lines: of the table.
        legend: sentences that hold for the whole table.
    """
    retrained = any(line.row.training.low is not None for line in lines)
    tested = any(line.row.p is not None for line in lines)
    columns = [Heading(name, identifies=True) for name in names]
    columns += [*map(Heading, sides), Heading("difference", "other images")]
    if retrained:
        columns.append(Heading("difference", "other seeds"))
    columns.append(Heading("verdict", "p" if tested else ""))

    rows = []
    for line in lines:
        cells = [*line.name, *_numbers(line.row)]
        if retrained:
            cells.append(TableCell(_interval(line.row.training) or ABSENT))
        cells.append(TableCell(line.row.verdict, _p_text(line.row.p), notes=line.remarks))
        rows.append(tuple(cells))
    return Table(
        title=title,
        headings=tuple(columns),
        rows=tuple(rows),
        footnotes=tuple(map(Footnote, legend)),
    )


def _numbers(row: Difference) -> list[TableCell]:
    """Return both values and their difference.

    The narrower interval decides on the digits.
    """
    if row.a.value is None or row.b.value is None or row.difference is None:
        return [TableCell(ABSENT)] * 3
    half_widths = []
    for interval in (row.images, row.training):
        if interval.low is not None and interval.high is not None:
            half_widths.append((interval.high - interval.low) / 2)
    decimals = decimals_for(row.difference or row.a.value, min(half_widths, default=None))
    return [
        TableCell(fixed(row.a.value, decimals)),
        TableCell(fixed(row.b.value, decimals)),
        TableCell(fixed(row.difference, decimals), _interval(row.images)),
    ]


def _p_text(p: float | None) -> str:
    """Return a p value in parentheses, with two significant digits."""
    if p is None:
        return ""
    if p < 0.001:
        return "(p < 0.001)"
    if p >= 0.995:
        return "(p = 1)"
    return f"(p = {fixed(p, decimals_for(p, p))})"


def _interval(of: Uncertainty) -> str:
    if of.low is None or of.high is None:
        return ""
    decimals = decimals_for(of.low, (of.high - of.low) / 2)
    return f"[{fixed(of.low, decimals)}, {fixed(of.high, decimals)}]"


def value_name(row: Difference, among: Sequence[Difference]) -> TableCell:
    """Return the name of a compared value.

    The metric is added where the label is ambiguous.
    """
    metrics = {rival.metric for rival in among if rival.label == row.label}
    name = headings.in_words(row.label)
    if metrics != {row.metric}:
        name += f" ({row.metric})"
    return TableCell(f"{name} {detail(row.unit, row.better)}".strip())


def legend(
    rows: Sequence[Difference],
    resamples: int = RESAMPLES,
    *,
    families: Sequence[int] = (),
) -> Iterator[str]:
    """Yield the meanings of the columns that have values.

    Args:
        rows: the differences.
        resamples: of the bootstrap.
        families: how many values were adjusted together, by group; (): all tested values.
    """
    on_images = [row for row in rows if row.images.test]
    if on_images:
        yield NOTES["other-images"].format(resamples)
    if any(row.training.p is not None for row in rows):
        yield NOTES["other-seeds"]
    if any(row.training.p is None for row in on_images):
        yield NOTES["few-seeds"].format(SEEDS)
    tested = sum(row.p is not None for row in rows)
    if not tested:
        return
    adjustment = ""
    if len(families) > 1:
        sizes = ", ".join(map(str, families))
        adjustment = f"; adjusted by Holm for the values of each paper ({sizes})"
    elif tested > 1:
        adjustment = f"; adjusted by Holm for {tested} values"
    yield NOTES["p"].format(adjustment, LEVEL)


# --- two models -----------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """The differences of two models in all values that both have."""

    a: Row  # any row of the model
    b: Row
    rows: tuple[Difference, ...]
    resamples: int

    @property
    def names(self) -> tuple[str, str]:
        """The models' names, or those of their recipes if equal."""
        if self.a.name == self.b.name:
            return (self.a.recipe, self.b.recipe)
        return (self.a.name, self.b.name)


def compare(
    a: Sequence[Row], b: Sequence[Row], read: Read, resamples: int = RESAMPLES
) -> Comparison:
    """Compare two models in every value that both have.

    Args:
        a: the values of each seed of a model.
        b: the other model's values, on the same dataset.
        read: gives a cell's per-example values.
        resamples: R.
    """
    values_a, values_b = _by_place(a), _by_place(b)
    tested = []
    for place, value in values_a.items():
        if place in values_b:
            tested.append(contrast(value, values_b[place], read, resamples=resamples))
    comparison = Comparison(a[0], b[0], (), resamples)
    name_a, name_b = comparison.names
    judged = []
    for row in adjusted(tested):
        a_wins = ((row.difference or 0.0) > 0) == (row.better != "lower")
        winner = name_a if a_wins else name_b
        wins = f"{winner} better" if row.better else f"{winner} higher"
        judged.append(replace(row, verdict=conclusion(row, wins, wins)))
    return comparison._replace(rows=tuple(judged))


def _by_place(rows: Sequence[Row]) -> dict[tuple[str, str], BySeed]:
    """Return the values of one model by metric and label."""
    return {(metric, label): values for (_, metric, label), values in sides(rows).items()}


def of_comparison(comparison: Comparison) -> Document:
    """Return a comparison for people and for programs."""
    a, b, rows, resamples = comparison
    seeds = tuple(sorted(set[int]().union(*(row.seeds for row in rows))))
    lines = []
    for row in rows:
        remarks = [row.reason]
        if row.seeds < seeds:
            remarks.append(f"{_seeds_text(row.seeds)} alone")
        lines.append(Line((value_name(row, rows),), row, tuple(remarks)))

    models = " and ".join(dict.fromkeys((a.name, b.name)))
    recipes = recipes_text(a.recipe, b.recipe)
    title = f"{models} · dataset {a.dataset_name} · {recipes} · {_seeds_text(seeds)}"
    return Document(
        [table(title, ["value"], comparison.names, lines, *legend(rows, resamples))],
        list(map(Difference.as_dict, rows)),
        FIELDS,
        level=LEVEL,
        a={"model": a.model, "dataset": a.dataset, "recipe": a.recipe},
        b={"model": b.model, "dataset": b.dataset, "recipe": b.recipe},
        resamples=resamples,
    )


def recipes_text(a: str | None, b: str | None) -> str:
    """Return the recipes of two models as a part of a title."""
    if a == b:
        return f"recipe {a}"
    return f"recipes {a} and {b}"


def _seeds_text(seeds: Sequence[int]) -> str:
    numbers = ", ".join(map(str, seeds)) or "none"
    if len(seeds) == 1:
        return f"seed {numbers}"
    return f"seeds {numbers}"
