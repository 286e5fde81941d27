"""Comparison of a store with what was measured again from its records, value by value."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np

from jembench.report import comparison
from jembench.report.differences import FIELDS, Line, legend, table, value_name
from jembench.report.formats import Document
from jembench.report.rows import Side, grouped, rows, sides
from jembench.report.table import NOTES, TableCell
from jembench.store.outcome import Cell

TIMES = ("h", "s", "ms")
"""Units of values that are of one machine."""


class Pair(NamedTuple):
    """A result, and the same measured again."""

    theirs: Cell
    ours: Cell | None  # None: there is none


def compare(pairs: Sequence[Pair]) -> list[comparison.Difference]:
    """Compare what was measured again (a) with what it was (b): a difference for each value of each
    model.

    A value is ``equal`` if each seed gives the same number: with the same code, versions and
    processor, training is repeated bit for bit. Other processors round differently, so that
    training gives other weights, as another seed would. Then there are two intervals of the
    difference of the means over the seeds, and a two-sided p value from each. *Other images*: from
    the 95 % intervals of both (:func:`jembench.stats.paired.from_intervals`). *Training*: Student's
    t over the differences of at least three seeds. The larger p counts, as in
    :mod:`jembench.report.comparison`, after Holm for the number of values. Below .05 a value is
    ``outside``, else it is ``within``: if nothing but chance differs, all are so in about 95 of 100
    reproductions.

    Times are not judged: they are of one machine. A value without an interval, of fewer than three
    seeds, is ``not testable`` unless it is equal.
    """
    again = sides(
        rows(
            replace(pair.ours, fit=pair.theirs.fit, metric=pair.theirs.metric)
            for pair in pairs
            if pair.ours
        )
    )
    found = [
        _row(again.get(key, {}), side, pairs)
        for key, side in sides(rows(pair.theirs for pair in pairs)).items()
    ]
    return [
        row
        if row.p is None
        else replace(row, verdict="outside" if row.p < comparison.LEVEL else "within")
        for row in comparison.adjusted(found)
    ]


def is_reproduced(rows: Iterable[comparison.Difference]) -> bool:
    """Return True if no value is outside, missing or measured otherwise."""
    return not {row.verdict for row in rows} & {"outside", "missing", "not comparable"}


def _row(ours: Side, theirs: Side, pairs: Sequence[Pair]) -> comparison.Difference:
    if not ours.keys() & theirs.keys():
        places = {(one.fit, one.metric) for one in theirs.values()}
        again = (
            pair.ours for pair in pairs if (pair.theirs.fit.names, pair.theirs.metric) in places
        )
        reason = "; ".join(
            dict.fromkeys(cell.outcome.reason for cell in again if cell and cell.outcome.reason)
        )
        described = comparison.described(theirs, theirs)
        return replace(
            described, seeds=(), verdict="missing", reason=reason or "it was not measured again"
        )
    found = comparison.contrast(ours, theirs, None)
    untested = replace(
        comparison.described(ours, theirs),
        seeds=found.seeds,
        a=found.a,
        b=found.b,
        difference=found.difference,
    )
    if found.unit in TIMES:
        return replace(untested, verdict="not judged", reason="a time is of one machine")
    now, before = ([side[seed].value or 0.0 for seed in found.seeds] for side in (ours, theirs))
    if found.a is not None and np.array_equal(now, before, equal_nan=True):
        return replace(untested, verdict="equal")
    return found if len(found.protocols) > 1 or not found.images_test else replace(found, reason="")


# --- for people and for programs
# --------------------------------------------------------------------------------------


def document(differences: Sequence[comparison.Difference], differing: Sequence[str]) -> Document:
    """Return the comparison as a table for each dataset and recipe, and as records.

    Args:
        differences: of all values.
        differing: sentences on what differs in the code and the options of fits and metrics.
    """
    groups = grouped(differences, lambda row: (row.dataset, row.recipe_a))
    below = [
        *legend(differences),
        NOTES["again"].format(comparison.LEVEL),
        *([f"Differs: {'; '.join(differing)}."] if differing else []),
    ]
    tables = [
        table(
            f"Measured again · dataset {group[0].dataset} · recipe {group[0].recipe_a}",
            ["model", "value"],
            ["ours", "theirs"],
            [
                Line((TableCell(row.model_a), value_name(row, group)), row, (row.reason,))
                for row in group
            ],
            *(below if group is groups[-1] else ()),
        )
        for group in groups
    ]
    about = {"level": comparison.LEVEL, "differing": list(differing)}
    return Document(tables, list(map(asdict, differences)), FIELDS, **about)
