"""Which figures a store's results give, and whether their arrays are what the figures need."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import discovery
from jembench.errors import JembenchError, StoreError
from jembench.experiment.sweep import bare_name
from jembench.report.figures import training
from jembench.report.figures.planned import Planned
from jembench.report.figures.results import Arrays, Plan, Result
from jembench.report.names import NO_NAMES, Names
from jembench.store.outcome import Cell, FitKey


def figures(
    cells: Sequence[Cell],
    read: Callable[[Cell], Arrays],
    left_out: Callable[[str], None],
    history_of: Callable[[FitKey], Path] | None = None,
    names: Names = NO_NAMES,
) -> Iterator[Planned]:
    """Every figure of the cells, each under a unique name.

    Args:
        cells: of any metrics; those of metrics without figures are ignored.
        read: gives the arrays of a cell, or raises StoreError.
        left_out: called with a sentence for each result that is damaged.
        history_of: gives the file of a training's losses, or raises StoreError; None: no figures of training.
        names: display names by canonical specs and recipes.
    """
    found = _of_metrics(cells, read, left_out, names)
    if history_of:
        fits = {cell.fit.id: cell.fit for cell in cells}.values()
        energies = training.energies_of(fits, history_of, left_out, names)
        found = itertools.chain(found, energies, training.seeds_of(cells, names))
    taken: set[str] = set()
    for planned in found:
        stem, number = planned.stem, 1
        while stem in taken:
            number += 1
            stem = f"{planned.stem}-{number}"
        taken.add(stem)
        yield planned._replace(stem=stem)


def _of_metrics(
    cells: Sequence[Cell], read: Callable[[Cell], Arrays], left_out: Callable[[str], None], names: Names
) -> Iterator[Planned]:
    for component in discovery.components("figures"):
        mine = [cell for cell in cells if bare_name(cell.metric) == component.name and cell.outcome.status == "ok"]
        if not mine:
            continue
        try:
            plan = discovery.load(component)
        except JembenchError as error:
            left_out(str(error))
            continue
        results = []
        for cell in mine:
            try:
                results.append(Result(cell, _needed(read(cell), plan, cell) if hasattr(plan, "shapes") else {}, names))
            except StoreError as error:
                left_out(str(error))
        yield from plan(results)


def _needed(arrays: Arrays, plan: Plan, cell: Cell) -> Arrays:
    """Those of the arrays that a metric's figures ask for, all of them finite.

    Raises:
        StoreError: if one is not as it must be.
    """
    shapes, optional = getattr(plan, "shapes", {}), getattr(plan, "optional", {})
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
