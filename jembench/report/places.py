"""Where a metric stands in the grids of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jembench.catalog import spec
from jembench.catalog.spec import Spec
from jembench.experiment.sweep import Grid, Place


class Placed(NamedTuple):
    """A metric in a grid."""

    grid: int  # which one
    place: Place
    extras: str  # options that the grid says nothing of: "resamples=0"


class Places:
    """The places of some grids, resolved once.

    Raises:
        SpecError: for a grid whose metric does not exist, or has no such option.
    """

    def __init__(self, grids: Iterable[Grid]) -> None:
        self.grids = tuple(grids)
        self._places = [
            (index, place, spec.parse(place.metric)) for index, grid in enumerate(self.grids) for place in grid.places
        ]
        self._known: dict[str, list[Placed]] = {}

    @property
    def metrics(self) -> list[str]:
        """Every metric of the grids, as the suite asks for it."""
        return list(dict.fromkeys(place.metric for _, place, _ in self._places))

    def of(self, metric: str) -> list[Placed]:
        """Where a metric stands, given by its canonical spec.

        One that is no grid's stands where it would without the options that the grid says nothing of.
        """
        if metric not in self._known:
            found = list(self._of(metric))
            self._known[metric] = [placed for placed in found if not placed.extras] or found
        return self._known[metric]

    def _of(self, metric: str) -> Iterator[Placed]:
        asked = spec.parse(metric)
        for index, place, parsed in self._places:
            extras = _extras(asked, parsed)
            if extras is not None and not _own_options(self.grids[index]) & extras.keys():
                yield Placed(index, place, ",".join(f"{key}={value}" for key, value in extras.items()))


def _extras(asked: Spec, placed: Spec) -> dict[str, str] | None:
    """What a metric sets beyond that of a place; None if it is another."""
    if asked.name != placed.name or not set(placed.arguments) <= set(asked.arguments):
        return None
    return dict(sorted(set(asked.arguments) - set(placed.arguments)))


def _own_options(grid: Grid) -> set[str]:
    return {axis.option for axis in (*grid.rows, *grid.columns)} | grid.fixed.keys()
