"""The joint view: one value of each model for each of five respects, and the Pareto front over all
of them.

``respects.toml`` names the respects and the values that may stand for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from jembench.catalog import spec
from jembench.experiment.names import NO_NAMES, Fit, Names
from jembench.experiment.sweep import without_sampler
from jembench.report.headings import table_of
from jembench.report.rows import Row, grouped
from jembench.report.table import NOTES, Footnote, Table, TableCell
from jembench.report.tables import Tables

if TYPE_CHECKING:
    from jembench.report.significance import Significance

_TABLES: Mapping[str, Mapping[str, Sequence[str]]] = table_of("respects.toml")
RESPECTS, COSTS = _TABLES["respects"], _TABLES["costs"]
_PREFERRED = {**RESPECTS, **COSTS}

Better = Callable[[Row, Row, int], bool | None]
"""A test of two values of a column, at a level for so many tests: the first is significantly
better. None: untested.
"""


# --- the values
# -------------------------------------------------------------------------------------------------------


def rows_of(means: Sequence[Row], placed: Sequence[Row]) -> list[Row]:
    """Return the rows of the joint view: means over seeds, and published rows.

    The numbers of one model of one paper are on one line, whatever tables they are from.

    Args:
        means: over the seeds.
        placed: the published rows in the columns of the means.
    """
    lines = grouped(placed, lambda row: (row.fit, row.name))
    return [*means, *(replace(row, source=line[0].source) for line in lines for row in line)]


def headline(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of the value that stands for each respect and cost, with those that say why a
    model has none.

    On each dataset it is the value that most models have; of several, the first in
    ``respects.toml``, and of these the one under the fewest options. Options that a command adds to
    metrics, such as a sampler, do not count.

    Args:
        rows: means over seeds, and published rows.
    """
    found: dict[str, list[Row]] = {respect: [] for respect in _PREFERRED}
    for of_dataset in grouped(rows, lambda row: row.dataset):
        measured = grouped(
            (row for row in of_dataset if row.value is not None and not row.source),
            lambda row: row.place,
        )
        for respect, wanted in _PREFERRED.items():
            ranked = [
                (rank, column)
                for column in measured
                if (rank := _rank(column[0], wanted)) is not None
            ]
            if ranked:
                _, chosen = min(ranked, key=lambda one: (-len(one[1]), one[0], _options(one[1][0])))
                found[respect] += [row for row in of_dataset if row.place == chosen[0].place]
    return {respect: of_respect for respect, of_respect in found.items() if of_respect}


def _rank(row: Row, wanted: Sequence[str]) -> int | None:
    """Return the place of a value in an order of preference; None: it is not wanted."""
    for rank, text in enumerate(wanted):
        metric, _, label = text.partition(" ")
        asked, own = spec.parse(metric), spec.parse(row.metric)
        if (
            asked.name == own.name
            and {*asked.arguments} <= {*own.arguments}
            and fnmatchcase(row.label, label)
        ):
            return rank
    return None


def _options(row: Row) -> int:
    return len(spec.parse(without_sampler(row.metric)).arguments)


# --- the front
# --------------------------------------------------------------------------------------------------------


def front(respects: Mapping[str, Sequence[Row]], better: Better) -> set[Fit]:
    """Return the models that no other model on their dataset dominates.

    A dominates B if A has a value in every respect in which B has one, is significantly better in
    one of these respects, at a level that is adjusted for their number, and worse in none:
    significantly or, where no test is possible, by its value. Models that :func:`compared` lacks
    are not in the front. Differences below significance allow circles of models that dominate one
    another; these do not exclude each other.

    Args:
        respects: the rows of each respect, means over seeds; those of costs are ignored.
        better: tests two values of one respect.
    """
    models = compared(respects)
    below = {
        a: {b for b in models if a[1] == b[1] and _dominates(models[a], models[b], better)}
        for a in models
    }
    for through in models:  # all that is reached over some models, one more in each step
        for a in models:
            below[a] |= below[through] if through in below[a] else set()
    return {b for b in models if all(a in below[b] for a in models if b in below[a])}


def compared(respects: Mapping[str, Sequence[Row]]) -> dict[Fit, dict[str, Row]]:
    """Return the finite values that may be compared, by model and respect."""
    models: dict[Fit, dict[str, Row]] = {}
    for respect in respects.keys() - COSTS.keys():
        for row in respects[respect]:
            if row.value is not None and math.isfinite(row.value) and row.comparable and row.better:
                models.setdefault(row.fit, {})[respect] = row
    return models


def _dominates(a: Mapping[str, Row], b: Mapping[str, Row], better: Better) -> bool:
    return (
        b.keys() <= a.keys()
        and any(better(a[respect], b[respect], len(b)) for respect in b)
        and not any(_worse(a[respect], b[respect], better) for respect in b)
    )


def _worse(a: Row, b: Row, better: Better) -> bool:
    """Return if ``a`` is significantly worse than ``b``, or worse by a difference that cannot be
    tested.
    """
    found = better(b, a, 1)
    if found is None and a.value is not None and b.value is not None:
        return a.value != b.value and (a.value < b.value) == (a.better == "higher")
    return bool(found)


# --- the table
# --------------------------------------------------------------------------------------------------------

FRONT, LEADS = "*", "="
"""The marks of a model in the front, and of the values that lead a column together."""

_LEGEND = (Footnote(NOTES["front"], FRONT), Footnote(NOTES["leads"], LEADS))


def table(
    rows: Sequence[Row],
    significance: Significance | None,
    labels: Sequence[str] = (),
    names: Names = NO_NAMES,
) -> Table | None:
    """Return the table of the joint view, with the models in the front and the leading values
    marked; None: no values.

    Args:
        rows: of the joint view.
        significance: tests differences; None: nothing is marked.
        labels: the order of the columns; empty: that of the respects.
        names: display names of recipes.
    """
    respects = headline(rows)
    shown = [row for of_respect in respects.values() for row in of_respect]
    metrics = list(dict.fromkeys(row.metric for row in shown))
    plain = next(
        Tables(rows, (), labels, None, names).main("All respects at once", metrics, shown), None
    )
    if plain is None or significance is None or len(plain.rows) < 2:
        return plain
    in_front = front(respects, significance.is_better)
    leaders = significance.leaders(row for respect in RESPECTS for row in respects.get(respect, ()))
    bold = {first for first, *others in leaders if not others}
    leading = {row for group in leaders for row in group}

    def marked(cell: TableCell) -> TableCell:
        return cell._replace(
            best=cell.row in bold, marks=(*[LEADS] * (cell.row in leading), *cell.marks)
        )

    lines = []
    for line in plain.rows:
        owner = next((cell.row for cell in line if cell.row and not cell.row.source), None)
        name = line[0]._replace(
            marks=(*[FRONT] * bool(owner and owner.fit in in_front), *line[0].marks)
        )
        lines.append((name, *map(marked, line[1:])))
    return replace(
        plain, rows=tuple(lines), footnotes=(*_LEGEND[: 1 + bool(leading)], *plain.footnotes)
    )
