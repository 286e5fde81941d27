"""Which figures a store's results give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jembench.catalog import discovery
from jembench.errors import JembenchError, StoreError
from jembench.experiment.sweep import bare_name
from jembench.report.figures import energies, seeds
from jembench.report.figures.drawing import Planned
from jembench.report.figures.results import Arrays, Result, load
from jembench.store.outcome import Cell, FitKey
from jembench.training.picture import History


def figures(
    cells: Sequence[Cell],
    read: Callable[[Cell], Arrays],
    history_of: Callable[[FitKey], Path],
    passed_over: Callable[[str], None],
) -> Iterator[Planned]:
    """Every figure of the cells, each under a unique name.

    Args:
        cells: of any metrics; those of metrics without figures are ignored.
        read: gives the arrays of a cell, or raises StoreError.
        history_of: gives the file of a training's losses, or raises StoreError.
        passed_over: called with a sentence for each result that is damaged.
    """
    yield from _named_apart(_all(cells, read, history_of, passed_over))


def of_metrics(
    cells: Sequence[Cell], read: Callable[[Cell], Arrays], passed_over: Callable[[str], None]
) -> Iterator[Planned]:
    """The figures of the metrics alone, without those of training."""
    yield from _named_apart(_of_metrics(cells, read, passed_over))


def _named_apart(figures: Iterator[Planned]) -> Iterator[Planned]:
    taken: set[str] = set()
    for planned in figures:
        stem, number = planned.stem, 1
        while stem in taken:
            number += 1
            stem = f"{planned.stem}-{number}"
        taken.add(stem)
        yield planned._replace(stem=stem)


def _all(
    cells: Sequence[Cell],
    read: Callable[[Cell], Arrays],
    history_of: Callable[[FitKey], Path],
    passed_over: Callable[[str], None],
) -> Iterator[Planned]:
    yield from _of_metrics(cells, read, passed_over)
    yield from energies.plan(_histories(cells, history_of, passed_over))
    yield from seeds.plan(cells)


def _of_metrics(
    cells: Sequence[Cell], read: Callable[[Cell], Arrays], passed_over: Callable[[str], None]
) -> Iterator[Planned]:
    for component in discovery.components("figures"):
        mine = [cell for cell in cells if bare_name(cell.metric) == component.name and cell.outcome.status == "ok"]
        if not mine:
            continue
        try:
            plan = discovery.load(component)
        except JembenchError as error:
            passed_over(str(error))
            continue
        results: list[Result] = []
        for result in load(plan, mine, read):
            if isinstance(result, str):
                passed_over(result)
            else:
                results.append(result)
        yield from plan(results)


def _histories(
    cells: Sequence[Cell], history_of: Callable[[FitKey], Path], passed_over: Callable[[str], None]
) -> Iterator[tuple[FitKey, History]]:
    for fit in {cell.fit.id: cell.fit for cell in cells}.values():
        try:
            yield fit, energies.read_history(history_of(fit))
        except StoreError as error:
            passed_over(str(error))
