"""Comparison of a store with what was measured again."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report import comparison
from jembench.report.differences import Line, legend, table, value_name
from jembench.report.formats import Document
from jembench.report.rows import BySeed, grouped, rows, sides
from jembench.report.table import NOTES, TableCell
from jembench.store.outcome import Cell

TIMES = ("h", "s", "ms")
"""Units of times, which depend on the machine."""


class Pair(NamedTuple):
    """A result, and the same measured again."""

    theirs: Cell
    ours: Cell | None  # None: not measured again


def compare(pairs: Sequence[Pair]) -> list[comparison.Difference]:
    """Compare results measured again (a) with the original ones (b).

    Each value of each model has a difference. A value is ``equal`` if each seed gives the same
    number: with the same code, versions and processor, training is repeated bit for bit. Other
    processors round differently, so that training gives other weights, as another seed would. Then
    the difference of the means over the seeds has two intervals, each with a p value. *Other
    images*: from the 95 % intervals of both (:func:`jembench.stats.paired.from_intervals`).
    *Training*: Student's t over the differences of at least three seeds. The larger p counts, as in
    :mod:`jembench.report.comparison`, after Holm for the number of values. Below .05 a value is
    ``outside``, else ``within``: if only chance differs, all values are ``within`` in about 95 of
    100 reproductions.

    Times are not judged, since they depend on the machine. A value without an interval, of fewer
    than three seeds, is ``not testable`` unless the value is equal.
    """
    measured_again = []
    for theirs, ours in pairs:
        if ours:
            measured_again.append(replace(ours, fit=theirs.fit, metric=theirs.metric))
    again = sides(rows(measured_again))
    before = sides(rows(pair.theirs for pair in pairs))
    differences = [_difference(again.get(key, {}), before[key], pairs) for key in before]
    judged = []
    for row in comparison.adjusted(differences):
        if row.p is not None:
            row = replace(row, verdict="outside" if row.p < comparison.LEVEL else "within")
        judged.append(row)
    return judged


def is_reproduced(rows: Iterable[comparison.Difference]) -> bool:
    """Return True if no value is outside, missing or not comparable."""
    return not {row.verdict for row in rows} & {"outside", "missing", "not comparable"}


def _difference(ours: BySeed, theirs: BySeed, pairs: Sequence[Pair]) -> comparison.Difference:
    if not ours.keys() & theirs.keys():
        return _missing(theirs, pairs)
    row = comparison.untested(ours, theirs)
    if row.unit in TIMES:
        return replace(row, verdict="not judged", reason="times vary by machine")
    if row.difference is None or row.verdict == "equal":
        return row
    tested = comparison.contrast(ours, theirs, None)
    if not tested.images.test:
        return tested
    return replace(tested, reason="")  # the legend says once that the intervals decide


def _missing(theirs: BySeed, pairs: Sequence[Pair]) -> comparison.Difference:
    """Return the row of a value that was not measured again."""
    places = {(row.fit, row.metric) for row in theirs.values()}
    reasons = {}
    for cell, again in pairs:
        if again and (cell.fit.names, cell.metric) in places:
            reasons[again.outcome.reason] = True
    reason = "; ".join(filter(None, reasons)) or "it was not measured again"
    described = comparison.described(theirs, theirs)
    return replace(described, seeds=(), verdict="missing", reason=reason)


# --- for people and for programs ------------------------------------------------------------------


def document(differences: Sequence[comparison.Difference], differing: Sequence[str]) -> Document:
    """Return the comparison, with a table per dataset and recipe.

    Args:
        differences: of all values.
        differing: sentences on what differs in the code and the options of fits and metrics.
    """
    notes = [*legend(differences), NOTES["again"].format(comparison.LEVEL)]
    if differing:
        notes.append(f"Differs: {'; '.join(differing)}.")
    groups = grouped(differences, lambda row: (row.dataset, row.a.recipe))
    tables = []
    for group in groups:
        title = f"Measured again · dataset {group[0].dataset} · recipe {group[0].a.recipe}"
        lines = []
        for row in group:
            name = TableCell(row.a.model or ""), value_name(row, group)
            lines.append(Line(name, row, (row.reason,)))
        below = notes if group is groups[-1] else ()
        tables.append(table(title, ["model", "value"], ["ours", "theirs"], lines, *below))
    records = list(map(comparison.Difference.as_dict, differences))
    about = {"level": comparison.LEVEL, "differing": list(differing)}
    return Document(tables, records, comparison.FIELDS, **about)
