"""What a figure is drawn from: a cell's outcome with its arrays, checked as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import spec
from jembench.errors import SpecError, StoreError
from jembench.interfaces import Value
from jembench.report.figures.drawing import Planned
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


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The figures of one metric.

    Arrays are named by patterns such as ``distance*``; their shapes have a letter for each axis, ``N C H W``, and the
    same letter is the same length throughout.
    """

    metric: str  # its name
    plan: Callable[[list[Result]], Iterator[Planned]]
    shapes: Mapping[str, str] = field(default_factory=dict)  # of the arrays that the figures need
    optional: Mapping[str, str] = field(default_factory=dict)  # of those that they show if they are there


def load(subject: Subject, cells: Iterable[Cell], read: Callable[[Cell], Arrays]) -> Iterator[Result | str]:
    """The results that the figures of a subject are drawn from; in place of one that is damaged, a sentence about it.

    Args:
        subject: says which metric and which arrays.
        cells: of any metric.
        read: gives the arrays of a cell, or raises StoreError.
    """
    for cell in cells:
        if spec.parse(cell.metric).name != subject.metric or cell.outcome.status != "ok":
            continue
        try:
            yield Result(cell, _checked(read(cell), subject, cell) if subject.shapes else {})
        except StoreError as error:
            yield str(error)


def _checked(arrays: Arrays, subject: Subject, cell: Cell) -> Arrays:
    """Those of the arrays that a subject asks for, all of them finite.

    Raises:
        StoreError: if one is not as it must be.
    """
    found: dict[str, NDArray[Any]] = {}
    sizes: dict[str, int] = {}
    for pattern, letters in {**subject.shapes, **subject.optional}.items():
        matching = {name: array for name, array in arrays.items() if fnmatchcase(name, pattern)}
        if not matching and pattern in subject.shapes:
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
