"""Tests of differences between the values in a column of a table: the best, and those not
significantly worse.
"""

from collections.abc import Iterable
from dataclasses import replace

from jembench.report.comparison import LEVEL, Difference, Read, adjusted, contrast
from jembench.report.rows import Row, grouped, sides

RESAMPLES = 2_000
"""They allow p values down to 1/2001: of up to 100 columns the best can be found."""


class Significance:
    """Tests of the differences between the values of a column.

    Args:
        seeds: the values of each seed.
        read: gives a cell's per-example values.
    """

    def __init__(self, seeds: Iterable[Row], read: Read) -> None:
        self._known, self._read = sides(seeds), read
        self._tested: dict[tuple[Row, Row], Difference | None] = {}

    def test(self, a: Row, b: Row) -> Difference | None:
        """Test the difference of two means over seeds; None: it cannot be tested over test images."""
        if (a, b) not in self._tested:
            one, other = (self._known.get((row.fit, *row.place), {}) for row in (a, b))
            found = (
                contrast(one, other, self._read, resamples=RESAMPLES, alike=())
                if one and other
                else None
            )
            found = found if found and found.images_p is not None else None
            self._tested[a, b] = found
            self._tested[b, a] = found and replace(found, difference=-(found.difference or 0.0))
        return self._tested[a, b]

    def is_better(self, a: Row, b: Row, among: int = 1) -> bool | None:
        """Return if a mean over seeds is significantly better than another one, as the first of
        ``among`` tests.

        None: the difference cannot be tested.
        """
        found = self.test(a, b)
        p = found.larger_p if found else None
        return None if found is None or p is None else _counts(found, p * among)

    def best(self, rows: Iterable[Row]) -> set[Row]:
        """Find the values that are better than the runner-up of their column and dataset.

        The p values are adjusted by Holm for the columns in which there are two values to test.

        Args:
            rows: means over seeds.
        """
        return {
            first
            for first, _ in self._better((first, second) for first, second, *_ in _ranked(rows))
        }

    def leaders(self, rows: Iterable[Row]) -> list[list[Row]]:
        """Return the best value of each column and dataset, followed by those that are not
        significantly worse.

        The p values are adjusted by Holm for all comparisons. A value that cannot be tested counts
        as not worse.

        Args:
            rows: means over seeds.
        """
        ranked = _ranked(rows)
        better = self._better((first, other) for first, *others in ranked for other in others)
        return [
            [first, *(other for other in others if (first, other) not in better)]
            for first, *others in ranked
        ]

    def _better(self, pairs: Iterable[tuple[Row, Row]]) -> set[tuple[Row, Row]]:
        """Return the pairs of which the first value is better, by p values that are adjusted for
        all of them.
        """
        tested = {pair: found for pair in pairs if (found := self.test(*pair))}
        return {
            pair
            for pair, found in zip(tested, adjusted(tested.values()), strict=True)
            if _counts(found, found.p)
        }


def _counts(row: Difference, p: float | None) -> bool:
    """Return if the first value is better than the second by a p value, of the row or adjusted."""
    by = row.difference or 0.0
    return p is not None and p < LEVEL and by != 0 and (by > 0) == (row.better == "higher")


def _ranked(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the comparable values of each column and dataset with two or more of them, the best
    first.
    """
    valued = (row for row in rows if row.value is not None and row.comparable and row.better)
    columns = grouped(valued, lambda row: (row.dataset, row.place))
    return [
        sorted(column, key=lambda row: row.value or 0.0, reverse=column[0].better == "higher")
        for column in columns
        if len(column) > 1
    ]
