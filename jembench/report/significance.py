"""Tests of which value of a column is best."""

from collections.abc import Iterable
from dataclasses import replace

from jembench.report.comparison import LEVEL, Difference, Read, adjusted, contrast
from jembench.report.rows import Row, grouped, sides

RESAMPLES = 2_000
"""They allow p values down to 1/2001, enough to find the best values of up to 100 columns."""


class Significance:
    """Tests of the differences between the values of a column.

    Args:
        seeds: the values of each seed.
        read: gives a cell's per-example values.
    """

    def __init__(self, seeds: Iterable[Row], read: Read) -> None:
        self._by_seed, self._read = sides(seeds), read
        self._tested: dict[tuple[Row, Row], Difference | None] = {}

    def test(self, a: Row, b: Row) -> Difference | None:
        """Test the difference of two means over test images; None: impossible."""
        if (a, b) not in self._tested:
            difference = self._contrast(a, b)
            self._tested[a, b] = difference
            if difference:
                difference = replace(difference, difference=-(difference.difference or 0.0))
            self._tested[b, a] = difference
        return self._tested[a, b]

    def _contrast(self, a: Row, b: Row) -> Difference | None:
        seeds_a = self._by_seed.get((a.fit, *a.place))
        seeds_b = self._by_seed.get((b.fit, *b.place))
        if not seeds_a or not seeds_b:
            return None
        difference = contrast(seeds_a, seeds_b, self._read, resamples=RESAMPLES, alike=())
        if difference.images.p is None:
            return None
        return difference

    def is_better(self, a: Row, b: Row, among: int = 1) -> bool | None:
        """Return whether a mean over seeds is significantly better than another.

        None: the difference cannot be tested.

        Args:
            a: the mean.
            b: the other mean.
            among: the number of tests, of which this is the first after Holm.
        """
        difference = self.test(a, b)
        if difference is None or difference.larger_p is None:
            return None
        return _counts(difference, difference.larger_p * among)

    def best(self, rows: Iterable[Row]) -> set[Row]:
        """Find values better than the runner-up of their column and dataset.

        The p values are adjusted by Holm for the columns that have two values to test.

        Args:
            rows: means over seeds.
        """
        runners_up = [(first, second) for first, second, *_ in _ranked(rows)]
        return {first for first, _ in self._better(runners_up)}

    def leaders(self, rows: Iterable[Row]) -> list[list[Row]]:
        """Return each column's best values, and those not significantly worse.

        The p values are adjusted by Holm for all comparisons. A value that cannot be tested counts
        as not worse.

        Args:
            rows: means over seeds.
        """
        ranked = _ranked(rows)
        better = self._better((first, rival) for first, *rivals in ranked for rival in rivals)
        leaders = []
        for first, *rivals in ranked:
            leaders.append([first, *(row for row in rivals if (first, row) not in better)])
        return leaders

    def _better(self, pairs: Iterable[tuple[Row, Row]]) -> set[tuple[Row, Row]]:
        """Return the pairs whose first value is better, after Holm."""
        tested = {}
        for pair in pairs:
            difference = self.test(*pair)
            if difference:
                tested[pair] = difference
        after = zip(tested, adjusted(tested.values()), strict=True)
        return {pair for pair, difference in after if _counts(difference, difference.p)}


def _counts(row: Difference, p: float | None) -> bool:
    """Return whether the first value is better, given a p value."""
    by = row.difference or 0.0
    return p is not None and p < LEVEL and by != 0 and (by > 0) == (row.better == "higher")


def _ranked(rows: Iterable[Row]) -> list[list[Row]]:
    """Return columns of comparable values, the best first."""
    valued = (row for row in rows if row.value is not None and row.comparable and row.better)
    ranked = []
    for column in grouped(valued, lambda row: (row.dataset, row.place)):
        if len(column) > 1:
            highest_first = column[0].better == "higher"
            ranked.append(sorted(column, key=lambda row: row.value or 0.0, reverse=highest_first))
    return ranked
