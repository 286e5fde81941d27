"""The best value of each column, where its difference to all others is significant.

Resamples of the test images and, from three seeds on, Student's t over the seeds decide, as in ``jembench compare``:
the best value counts if the largest of its p values against the others is below the level after Holm's adjustment for
the columns of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jembench.report.comparison import LEVEL, SEEDS, Read, Side, contrast, sides
from jembench.report.record import Record, grouped, subjects
from jembench.report.text import View
from jembench.stats import paired
from jembench.store.outcome import Cell

RESAMPLES = 2_000
"""They allow p values down to 1/2001: of up to 100 columns the best can be found."""


class Place(NamedTuple):
    """A value of a view."""

    line: int
    row: int
    column: int


class _Candidate(NamedTuple):
    place: Place
    p: float  # the largest against another value
    over_seeds: bool  # whether the seeds were tested as well


class Judge:
    """Finds the best values.

    Args:
        cells: the results of the records.
        read: gives a cell's per-example values.
    """

    def __init__(self, cells: Iterable[Cell], read: Read) -> None:
        self.read = read
        self._sides = {
            (*subject.names, *place): side for subject in subjects(cells) for place, side in sides(subject).items()
        }

    def best(self, view: View) -> tuple[set[Place], str]:
        """The best values of a view, one of each dataset, line and column at most, and what tells a reader of them."""
        found = [
            candidate
            for line, shown in enumerate(view.lines)
            for column in range(len(view.headings))
            for candidate in self._of_column(line, column, [of_row[column] for of_row in shown.records])
        ]
        after = paired.holm([candidate.p for candidate in found])
        best = {candidate.place for candidate, p in zip(found, after, strict=True) if p < LEVEL}
        return best, _sentence(found) if best else ""

    def _of_column(self, line: int, column: int, records: Sequence[Record | None]) -> Iterable[_Candidate]:
        """The best value of each dataset, if it can be tested against all others."""
        known = [
            (record, Place(line, row, column))
            for row, record in enumerate(records)
            if record and record.value is not None and record.comparable and record.better
        ]
        for mine in grouped(known, lambda one: one[0].dataset):
            (best, place), *others = sorted(mine, key=lambda one: _goodness(one[0]), reverse=True)
            found = _Candidate(place, 0.0, over_seeds=True)
            for other, _ in others:  # the nearest first
                p, over_seeds = self._p(best, other)
                if p is None:
                    break
                found = found._replace(p=max(p, found.p), over_seeds=over_seeds and found.over_seeds)
                if p >= LEVEL:  # more tests would change nothing
                    break
            if others and p is not None:
                yield found

    def _p(self, best: Record, other: Record) -> tuple[float | None, bool]:
        """The p value of a difference, None if it cannot be tested; and whether the seeds were tested as well."""
        a, b = self._side(best), self._side(other)
        if a is None or b is None or not a.cells.keys() & b.cells.keys():
            return None, False
        found = contrast(a, b, self.read, resamples=RESAMPLES)
        if found.images_p is None or found.difference is None:
            return None, False
        is_better = (found.difference > 0) == (best.better == "higher")
        return found.larger_p if is_better else 1.0, found.training_p is not None

    def _side(self, record: Record) -> Side | None:
        return self._sides.get((record.model, record.dataset, record.recipe, record.metric, record.label))


def _goodness(record: Record) -> float:
    assert record.value is not None
    return record.value if record.better == "higher" else -record.value


def _sentence(found: Sequence[_Candidate]) -> str:
    several = f", adjusted by Holm for {len(found)} columns" if len(found) > 1 else ""
    if all(candidate.over_seeds for candidate in found):
        how = "paired tests over the test images and over the seeds"
    else:
        how = f"paired tests over the test images; over the seeds as well from {SEEDS} seeds on"
    return f"Bold: better than every other model of its column (p < {LEVEL:g}{several}; {how})."
