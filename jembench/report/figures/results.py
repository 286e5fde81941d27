"""What a figure is drawn from: a cell's outcome with its arrays, checked as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import spec
from jembench.errors import SpecError, StoreError
from jembench.interfaces import Value
from jembench.report.figures import names
from jembench.report.figures.drawing import Drawing, Planned
from jembench.store.outcome import Cell, FitKey

Arrays = Mapping[str, NDArray[Any]]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """A cell that has values, and the arrays that its figures need."""

    cell: Cell
    arrays: Arrays

    @property
    def fit(self) -> FitKey:
        """The trained model."""
        return self.cell.fit

    @property
    def limit(self) -> int | None:
        """How many of the test images were evaluated; None: all."""
        limit: int | None = self.cell.provenance.get("limit")
        return limit

    @property
    def values(self) -> Mapping[str, Value]:
        """What was measured."""
        return self.cell.outcome.values

    @cached_property
    def options(self) -> Mapping[str, str]:
        """The options of the metric that are not at their defaults."""
        return dict(spec.parse(self.cell.metric).arguments)

    @property
    def title(self) -> str:
        """The trained model, in full."""
        return names.title_of(self.fit)

    def figure(self, name: str, draw: Callable[..., Drawing], *arguments: Any, without: Sequence[str] = ()) -> Planned:
        """A figure of this result alone, named after the options of the metric as well."""
        return figure_of([self], self.named(name, without), draw, *arguments)

    def named(self, figure: str, without: Sequence[str] = ()) -> str:
        """The figure's name with the options of the metric: ``reliability-bins=15``."""
        kept = [f"{key}={value}" for key, value in self.options.items() if key not in without]
        return "-".join((figure, *kept))

    @cached_property
    def protocol(self) -> Mapping[str, str]:
        """The parts of the protocol's id; none, if a plugin's id is no spec."""
        try:
            return dict(spec.parse(self.cell.outcome.protocol).arguments)
        except SpecError:
            return {}


def figure_of(results: Sequence[Result], name: str, draw: Callable[..., Drawing], *arguments: Any) -> Planned:
    """A figure of several results on one dataset, to be drawn from the arguments."""
    stem = names.stem(name, [result.fit for result in results], results[0].limit)
    return Planned(stem, partial(draw, *arguments))


Plan = Callable[[list[Result]], Iterator[Planned]]
"""The figures of a metric's results. The entry-point group ``jembench.figures`` names it by the metric."""

Shapes = Mapping[str, str]
"""Arrays by patterns such as ``distance*``; a shape has a letter for each axis, ``N C H W``.

The same letter is the same length throughout.
"""


def needs(shapes: Shapes, optional: Shapes | None = None) -> Callable[[Plan], Plan]:
    """State the arrays that figures need of each result, and those that they show where they are there."""

    def stated(plan: Plan) -> Plan:
        vars(plan).update(shapes=shapes, optional=optional or {})
        return plan

    return stated


def load(plan: Plan, cells: Iterable[Cell], read: Callable[[Cell], Arrays]) -> Iterator[Result | str]:
    """The results that figures are drawn from; in place of one that is damaged, a sentence about it.

    Args:
        plan: says which arrays it needs.
        cells: of its metric.
        read: gives the arrays of a cell, or raises StoreError.
    """
    shapes, optional = getattr(plan, "shapes", {}), getattr(plan, "optional", {})
    for cell in cells:
        try:
            yield Result(cell, _checked(read(cell), shapes, optional, cell) if shapes else {})
        except StoreError as error:
            yield str(error)


def _checked(arrays: Arrays, shapes: Shapes, optional: Shapes, cell: Cell) -> Arrays:
    """Those of the arrays that figures ask for, all of them finite.

    Raises:
        StoreError: if one is not as it must be.
    """
    found: dict[str, NDArray[Any]] = {}
    sizes: dict[str, int] = {}
    for pattern, letters in {**shapes, **optional}.items():
        matching = {name: array for name, array in arrays.items() if fnmatchcase(name, pattern)}
        if not matching and pattern in shapes:
            raise _broken(cell, f"there is no array {pattern}")
        for name, array in matching.items():
            _check(name, array, letters, sizes, cell)
        found |= matching
    return found


def _check(name: str, array: NDArray[Any], letters: str, sizes: dict[str, int], cell: Cell) -> None:
    axes = letters.split()
    if array.ndim != len(axes):
        raise _broken(cell, f"the array {name} has {array.ndim} axes in place of {len(axes)}")
    for letter, size in zip(axes, array.shape, strict=True):
        if sizes.setdefault(letter, size) != size:
            raise _broken(cell, f"the array {name} has {size} entries where others have {sizes[letter]}")
    if array.size == 0:
        raise _broken(cell, f"the array {name} is empty")
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise _broken(cell, f"not all of the array {name} are finite numbers")


def _broken(cell: Cell, what: str) -> StoreError:
    fit = cell.fit
    return StoreError(
        f"No figure of {cell.metric} of {fit.model} on {fit.dataset}, seed {fit.seed}: {what}. Remove "
        f"cells/*-{cell.id}.json from the store and run its suite again; only this is done anew."
    )
