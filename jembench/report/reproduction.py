"""Comparison of a store with what was measured again from its records, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np

from jembench.report.comparison import (
    LEVEL,
    SEEDS,
    Difference,
    Side,
    adjusted,
    common_seeds,
    described,
    not_comparable,
    sides,
)
from jembench.report.differences import FIELDS, Line, legend, table, value_name
from jembench.report.formats import Document, of_records
from jembench.report.record import grouped, mean_of, subjects
from jembench.report.text import Footnotes, Table, Text
from jembench.stats import paired
from jembench.store.outcome import Cell

TIMES = ("s", "ms")
"""Units of values that are of one machine."""

RULE = (
    f"equal: each seed gives the same number. outside: p below {LEVEL:g}, by the 95 % intervals of both or by training "
    "anew. within: chance alone would make such a difference."
)


class Pair(NamedTuple):
    """A result, and the same measured again."""

    theirs: Cell
    ours: Cell | None  # None: there is none


def compare(pairs: Sequence[Pair]) -> list[Difference]:
    """Compare what was measured again (a) with what it was (b): a difference for each value of each model.

    A value is ``equal`` if each seed gives the same number: with the same code, versions and processor, training is
    repeated bit for bit. On others it goes its own way from the first rounding on, and is as good as a training with
    another seed. Then there are two intervals of the difference of the means over the seeds, and a two-sided p value
    from each. *Other images*: from the 95 % intervals of both
    (:func:`jembench.stats.paired.from_intervals`). *Training*: Student's t over the differences of at least
    three seeds. The larger p counts, as in :mod:`jembench.report.comparison`, after Holm for the number of values.
    Below .05 a value is ``outside``, else it is ``within``: if nothing but chance differs, all are so in about 95 of
    100 reproductions.

    Times are not judged: they are of one machine. A value without an interval, of fewer than three seeds, is
    ``not testable`` unless it is equal.
    """
    groups = grouped(pairs, lambda pair: pair.theirs.fit.names)
    rows = [row for group in groups for row in _rows(group)]
    return [
        row if row.p is None else replace(row, verdict="outside" if row.p < LEVEL else "within")
        for row in adjusted(rows)
    ]


def is_reproduced(rows: Iterable[Difference]) -> bool:
    """Return True if no value is outside, missing or measured otherwise."""
    return not {row.verdict for row in rows} & {"outside", "missing", "not comparable"}


def _rows(group: Sequence[Pair]) -> Iterator[Difference]:
    ours = [replace(pair.ours, fit=pair.theirs.fit, metric=pair.theirs.metric) for pair in group if pair.ours]
    (before,) = subjects(pair.theirs for pair in group)
    again = {place: side for subject in subjects(ours) for place, side in sides(subject).items()}
    for place, theirs in sides(before).items():
        if place in again and common_seeds(again[place], theirs):
            yield _row(again[place], theirs)
        else:
            reasons = [pair.ours.outcome.reason for pair in group if pair.ours and pair.theirs.metric == theirs.metric]
            reason = "; ".join(dict.fromkeys(filter(None, reasons))) or "it was not measured again"
            yield replace(described(theirs, theirs), a=None, verdict="missing", reason=reason)


def _row(ours: Side, theirs: Side) -> Difference:
    row, seeds = described(ours, theirs), common_seeds(ours, theirs)
    a, b = ours.values(seeds), theirs.values(seeds)
    of_a, of_b = mean_of(a), mean_of(b)
    both = replace(row, seeds=seeds, a=of_a.value, b=of_b.value, difference=of_a.value - of_b.value)
    if row.unit in TIMES:
        return replace(both, verdict="not judged", reason="a time is of one machine")
    if len(row.protocols) > 1:
        return not_comparable(row, row.protocols)
    numbers_a, numbers_b = ([value.value for value in values] for values in (a, b))
    if np.array_equal(numbers_a, numbers_b, equal_nan=True):
        return replace(both, verdict="equal")
    if not np.isfinite([*numbers_a, *numbers_b]).all():
        return replace(both, reason="a value is not finite")
    if len(seeds) >= SEEDS and (found := paired.seed_difference(numbers_a, numbers_b)):
        both = replace(both, training_low=found.low, training_high=found.high, training_p=found.p)
    if of_a.low is None or of_a.high is None or of_b.low is None or of_b.high is None:
        return replace(both, reason="it has no interval")
    _, low, high, p = paired.from_intervals((of_a.value, of_a.low, of_a.high), (of_b.value, of_b.low, of_b.high))
    return replace(both, images_low=low, images_high=high, images_p=p, images_test="intervals")


# --- for people and for programs --------------------------------------------------------------------------------------


def document(rows: Sequence[Difference], differing: Sequence[str]) -> Document:
    """Return the comparison as a table for each dataset and recipe, and as records.

    Args:
        rows: the differences.
        differing: sentences on what differs in the code and the options of fits and metrics.
    """
    records = [asdict(row) for row in rows]
    return of_records(
        lambda: _tables(rows, differing), FIELDS, records, level=LEVEL, differing=list(differing), rows=records
    )


def _tables(rows: Sequence[Difference], differing: Sequence[str]) -> list[Table]:
    notes = Footnotes()
    groups = grouped(rows, lambda row: (row.dataset, row.recipe_a))
    below = [*legend(rows), RULE, *([f"Differs: {'; '.join(differing)}."] if differing else [])]
    return [
        table(
            f"Measured again · dataset {group[0].dataset} · recipe {group[0].recipe_a}",
            ["model", "value"],
            ["ours", "theirs"],
            [Line((Text(row.model_a), value_name(row, group)), row, (row.reason,)) for row in group],
            notes,
            *(below if group is groups[-1] else ()),
        )
        for group in groups
    ]
