"""The joint view: models in five respects, and the Pareto front.

``respects.toml`` names the respects and the values that may stand for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, permutations
from typing import TYPE_CHECKING

from jembench.catalog.spec import Spec
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report.headings import table_of
from jembench.report.rows import Row, grouped, measured
from jembench.report.table import NOTES, Footnote, Table
from jembench.report.tables import Tables
from jembench.store.outcome import Trained

if TYPE_CHECKING:
    from jembench.report.significance import Significance

_TABLES: Mapping[str, Mapping[str, Sequence[str]]] = table_of("respects.toml")
RESPECTS, COSTS = _TABLES["respects"], _TABLES["costs"]
_PREFERRED = {**RESPECTS, **COSTS}

Better = Callable[[Row, Row, int], bool | None]
"""A test of whether the first of two values is better, adjusted for a number of tests.

None: no test is possible.
"""


# --- the values -----------------------------------------------------------------------------------


def rows_of(means: Sequence[Row], placed: Sequence[Row]) -> list[Row]:
    """Return the rows of the joint view, ours and published.

    A model's numbers from one paper are on one line, whatever tables the numbers are from.

    Args:
        means: over the seeds.
        placed: the published rows in the columns of the means.
    """
    rows = list(means)
    for line in grouped(placed, lambda row: (row.fit, row.name)):
        rows += [replace(row, source=line[0].source) for row in line]
    return rows


def headline(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows that stand for each respect and cost.

    They include rows that say why a model has no value.

    On each dataset, the value that most models have stands for a respect; of several, the first in
    ``respects.toml``, then the one with the fewest options. Options that a command adds to metrics,
    such as a sampler, do not count.

    Args:
        rows: means over seeds, and published rows.
    """
    datasets = grouped(rows, lambda row: row.dataset)
    respects = {}
    for respect, wanted in _PREFERRED.items():
        of_respect: list[Row] = []
        for of_dataset in datasets:
            of_respect += _preferred(of_dataset, wanted)
        if of_respect:
            respects[respect] = of_respect
    return respects


def _preferred(rows: Sequence[Row], wanted: Sequence[str]) -> list[Row]:
    """Return a dataset's rows that stand for a respect."""
    ours = [row for row in measured(rows) if not row.source]
    ranked = []
    for column in grouped(ours, lambda row: row.place):
        rank = _rank(column[0], wanted)
        if rank is not None:
            ranked.append((-len(column), rank, _options(column[0]), column[0].place))
    if not ranked:
        return []
    *_, place = min(ranked, key=lambda candidate: candidate[:3])
    return [row for row in rows if row.place == place]


def _rank(row: Row, wanted: Sequence[str]) -> int | None:
    """Return the rank of a wanted value; None: not wanted."""
    for rank, text in enumerate(wanted):
        metric, _, label = text.partition(" ")
        asked, own = Spec(metric), row.metric
        is_metric = asked.name == own.name and asked.options.items() <= own.options.items()
        if is_metric and fnmatchcase(row.label, label):
            return rank
    return None


def _options(row: Row) -> int:
    return len(row.metric.without("sampler").options)


# --- the front ------------------------------------------------------------------------------------


def front(respects: Mapping[str, Sequence[Row]], better: Better) -> set[Trained]:
    """Return the models that no model on the same dataset dominates.

    A dominates B if A has a value in every respect in which B has a value, is significantly better
    in one of these respects, at a level adjusted for their number, and worse in none: significantly
    or, where no test is possible, by its value. Models that :func:`compared` leaves out are not in
    the front. Insignificant differences may let models dominate one another in a circle; such
    models do not exclude each other.

    Args:
        respects: the rows of each respect, means over seeds; costs are ignored.
        better: tests two values of one respect.
    """
    models = compared(respects)
    pairs = list(permutations(models, 2))
    below: dict[Trained, set[Trained]] = {model: set() for model in models}
    for a, b in pairs:
        if a.dataset == b.dataset and _dominates(models[a], models[b], better):
            below[a].add(b)
    for through in models:  # transitive closure: over some models, one more in each step
        for a in models:
            if through in below[a]:
                below[a] |= below[through]
    dominated = {b for a, b in pairs if b in below[a] and a not in below[b]}
    return models.keys() - dominated


def compared(respects: Mapping[str, Sequence[Row]]) -> dict[Trained, dict[str, Row]]:
    """Return the finite values that may be compared, by model and respect."""
    models: dict[Trained, dict[str, Row]] = {}
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
    """Return whether ``a`` is worse, significantly or without a test."""
    is_worse = better(b, a, 1)
    if is_worse is None and a.value is not None and b.value is not None:
        return a.value != b.value and (a.value < b.value) == (a.better == "higher")
    return bool(is_worse)


# --- the table ------------------------------------------------------------------------------------

FRONT, LEADS = "*", "="
"""The marks of a model in the front, and of the values that lead a column together."""

_LEGEND = (Footnote(NOTES["front"], FRONT), Footnote(NOTES["leads"], LEADS))


def table(
    rows: Sequence[Row],
    significance: Significance | None,
    labels: Sequence[str] = (),
    names: DisplayNames = NO_NAMES,
) -> Table | None:
    """Return the table of the joint view, with marks.

    Models in the front and leading values are marked.

    Args:
        rows: of the joint view.
        significance: tests differences; None: nothing is marked.
        labels: the order of the columns; empty: the respects' order.
        names: display names of recipes.

    Returns:
        None if there are no values.
    """
    respects = headline(rows)
    shown = list(chain.from_iterable(respects.values()))
    metrics = list(dict.fromkeys(row.metric for row in shown))
    tables = Tables(rows, (), labels, None, names)
    plain = next(tables.main("All respects at once", metrics, shown), None)
    if plain is None or significance is None or len(plain.rows) < 2:
        return plain

    in_front = front(respects, significance.is_better)
    without_costs = [row for respect in RESPECTS for row in respects.get(respect, ())]
    return _marked(plain, in_front, significance.leaders(without_costs))


def _marked(table: Table, in_front: Collection[Trained], leaders: Iterable[Sequence[Row]]) -> Table:
    """Mark the models in the front and the leading values."""
    alone, leading = set[Row](), set[Row]()
    for group in leaders:
        leading.update(group)
        if len(group) == 1:
            alone.add(group[0])
    lines = []
    for name, *values in table.rows:
        owner = next((cell.row for cell in values if cell.row and not cell.row.source), None)
        if owner and owner.fit in in_front:
            name = name._replace(marks=(FRONT, *name.marks))
        line = [name]
        for cell in values:
            marks = (LEADS, *cell.marks) if cell.row in leading else cell.marks
            line.append(cell._replace(best=cell.row in alone, marks=marks))
        lines.append(tuple(line))
    legend = _LEGEND if leading else _LEGEND[:1]
    return replace(table, rows=tuple(lines), footnotes=(*legend, *table.footnotes))
