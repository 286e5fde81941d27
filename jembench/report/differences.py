"""The table of differences: that of two models, of a store measured again, and of claims."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import NamedTuple

from jembench.report import headings
from jembench.report.comparison import (
    LEVEL,
    RESAMPLES,
    SEEDS,
    Difference,
    Read,
    adjusted,
    conclusion,
    contrast,
)
from jembench.report.formats import Document
from jembench.report.rows import Row, sides
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

FIELDS = tuple(field.name for field in fields(Difference))
"""The columns of the CSV."""


class Line(NamedTuple):
    """A line of the table."""

    name: tuple[TableCell, ...]  # the texts that say what the difference is of
    row: Difference
    remarks: tuple[str, ...] = ()  # footnotes of the verdict


def table(
    title: str, names: Sequence[str], sides: Sequence[str], lines: Iterable[Line], *legend: str
) -> Table:
    """Return a table of differences: both values, the difference with either interval, p and the
    verdict.

    Args:
        title: of the table.
        names: the headings of what the differences are of.
        sides: the headings of both values.
        lines: of the table.
        legend: sentences that hold for the whole table.
    """
    given = list(lines)
    retrained, tested = (
        any(getattr(line.row, of) is not None for line in given) for of in ("training_low", "p")
    )
    numbers = [*map(Heading, sides), Heading("difference", "other images")]
    numbers += [
        *[Heading("difference", "other seeds")] * retrained,
        Heading("verdict", "p" * tested),
    ]
    rows = []
    for line in given:
        *values, training = _numbers(line.row)
        verdict = TableCell(line.row.verdict, _p_text(line.row.p), notes=line.remarks)
        rows.append((*line.name, *values, *[training] * retrained, verdict))
    headings = (*(Heading(name, identifies=True) for name in names), *numbers)
    return Table(
        title=title, headings=headings, rows=tuple(rows), footnotes=tuple(map(Footnote, legend))
    )


def _numbers(row: Difference) -> tuple[TableCell, ...]:
    """Return both values and their difference with either interval: digits as the narrower interval
    allows.
    """
    if row.a is None or row.b is None or row.difference is None:
        return (TableCell(ABSENT),) * 4
    ends = ((row.images_low, row.images_high), (row.training_low, row.training_high))
    half = min(
        ((high - low) / 2 for low, high in ends if low is not None and high is not None),
        default=None,
    )
    decimals = decimals_for(row.difference or row.a, half)
    a, b, difference = (
        TableCell(fixed(number, decimals)) for number in (row.a, row.b, row.difference)
    )
    images, training = (_interval(*both) for both in ends)
    return a, b, difference._replace(interval=images), TableCell(training or ABSENT)


def _p_text(p: float | None) -> str:
    """Return a p value with two significant digits, none below .001, in parentheses."""
    if p is None:
        return ""
    return (
        "(p < 0.001)" if p < 0.001 else f"(p = {fixed(p, decimals_for(p, p) if p < 0.995 else 0)})"
    )


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    decimals = decimals_for(low, (high - low) / 2)
    return f"[{fixed(low, decimals)}, {fixed(high, decimals)}]"


def value_name(row: Difference, among: Sequence[Difference]) -> TableCell:
    """Return the name of a compared value, with its metric if another metric in ``among`` has a
    value of that label.
    """
    alone = {other.metric for other in among if other.label == row.label} == {row.metric}
    name = headings.in_words(row.label) + f" ({row.metric})" * (not alone)
    return TableCell(f"{name} {detail(row.unit, row.better)}".strip())


def legend(
    rows: Iterable[Difference],
    resamples: int = RESAMPLES,
    *,
    families: Sequence[int] = (),
) -> Iterator[str]:
    """Yield what the columns of some differences are, as far as these have values in them.

    Args:
        rows: the differences.
        resamples: of the bootstrap.
        families: the numbers of values that were adjusted together; (): all of the tested ones.
    """
    given = list(rows)
    if any(row.images_test for row in given):
        yield NOTES["other-images"].format(resamples)
    if any(row.training_p is not None for row in given):
        yield NOTES["other-seeds"]
    if any(row.images_test and row.training_p is None for row in given):
        yield NOTES["few-seeds"].format(SEEDS)
    tested = sum(row.p is not None for row in given)
    if not tested:
        return
    adjustment = ""
    if len(families) > 1:
        sizes = ", ".join(map(str, families))
        adjustment = f"; adjusted by Holm for the values of each paper ({sizes})"
    elif tested > 1:
        adjustment = f"; adjusted by Holm for {tested} values"
    yield NOTES["p"].format(adjustment, LEVEL)


# --- two models
# -------------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Every value of two models."""

    a: Row  # any of the model
    b: Row
    rows: tuple[Difference, ...]
    resamples: int

    @property
    def names(self) -> tuple[str, str]:
        """The names of the models or, where these are the same, of their recipes."""
        return (
            (self.a.name, self.b.name)
            if self.a.name != self.b.name
            else (self.a.recipe, self.b.recipe)
        )


def compare(
    a: Sequence[Row], b: Sequence[Row], read: Read, resamples: int = RESAMPLES
) -> Comparison:
    """Compare every value that two models have under the same options of a metric.

    Args:
        a: the values of each seed of a model.
        b: the same of the other model, on the same dataset.
        read: gives a cell's per-example values.
        resamples: R.
    """
    ours, theirs = ({key[1:]: side for key, side in sides(rows).items()} for rows in (a, b))
    both = [(side, theirs[place]) for place, side in ours.items() if place in theirs]
    tested = [contrast(one, other, read, resamples=resamples) for one, other in both]
    found, judged = Comparison(a[0], b[0], (), resamples), []
    for row in adjusted(tested):
        a_wins = ((row.difference or 0.0) > 0) == (row.better != "lower")
        better = f"{found.names[not a_wins]} {'better' if row.better else 'higher'}"
        judged.append(replace(row, verdict=conclusion(row, better, better)))
    return found._replace(rows=tuple(judged))


def of_comparison(comparison: Comparison) -> Document:
    """Return a comparison for people and for programs."""
    a, b, rows, resamples = comparison.a, comparison.b, comparison.rows, comparison.resamples
    seeds = tuple(sorted({seed for row in rows for seed in row.seeds}))
    models = a.name if a.name == b.name else f"{a.name} and {b.name}"
    title = f"{models} · dataset {a.dataset_name} · {recipes_text(a.recipe, b.recipe)} · {_seeds_text(seeds)}"
    lines = [
        Line(
            (value_name(row, rows),),
            row,
            (row.reason, *(f"{_seeds_text(row.seeds)} alone",) * (row.seeds < seeds)),
        )
        for row in rows
    ]
    shown = table(title, ["value"], comparison.names, lines, *legend(rows, resamples))
    of_a, of_b = (dict(zip(("model", "dataset", "recipe"), of.fit, strict=True)) for of in (a, b))
    return Document(
        [shown], list(map(asdict, rows)), FIELDS, level=LEVEL, a=of_a, b=of_b, resamples=resamples
    )


def recipes_text(a: str | None, b: str | None) -> str:
    """Return the recipes of two models as a part of a title."""
    return f"recipe {a}" if a == b else f"recipes {a} and {b}"


def _seeds_text(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds)) or 'none'}"
