"""The latest results of each name: only these count.

The meaning of a name changes when code is edited or a default changes. Earlier results stay in the
store. Imports no torch.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence

from jembench.catalog.spec import Spec
from jembench.store.outcome import Cell, FitKey, Trained

DATASET = "dataset_id"
"""The key in a cell's provenance for the hash of the dataset's identity, which does not depend on
the place of the files.
"""


def newest(
    cells: Sequence[Cell], left_out: Callable[[str], object] = lambda note: None
) -> list[Cell]:
    """Return a store's cells that count, in order.

    Of the fits of one model, dataset and recipe only the version measured last counts, so that a
    row never mixes two versions of the code.

    Args:
        cells: of a store.
        left_out: called with a sentence on the older cells of each model, dataset and recipe.
    """
    cells = renamed(cells)
    # in the order of time, so that the last cell of each name replaces the earlier ones
    families, days = dict[Trained, str](), dict[Trained, str]()
    results = dict[tuple[object, ...], str]()
    for cell in sorted(cells, key=lambda cell: cell.time):
        fit = cell.fit
        families[fit.names], days[fit.names] = fit.family, cell.time[:10]
        results[*fit.names, fit.family, fit.seed, cell.metric, cell.limit, cell.split] = cell.id
    last = set(results.values())

    counted, older = list[Cell](), defaultdict[Trained, list[str]](list)
    for cell in cells:
        if cell.id in last and families[cell.fit.names] == cell.fit.family:
            counted.append(cell)
        else:
            older[cell.fit.names].append(cell.time[:10])
    for trained, former in older.items():
        outcomes = "1 outcome" if len(former) == 1 else f"{len(former)} outcomes"
        left_out(
            f"{outcomes} of earlier versions of {trained.model} "
            f"on {trained.dataset}, recipe {trained.recipe}, measured until {max(former)}; shown "
            f"is the version measured last, on {days[trained]}."
        )
    return counted


def renamed(cells: Sequence[Cell]) -> list[Cell]:
    """Give each fit and dataset the name of its last measurement.

    Files may have been moved, or lie in several places. The order of the cells is kept.
    """
    fits, datasets = dict[str, FitKey](), dict[str, Spec]()
    # of cells with equal times, the first counts
    for cell in sorted(cells, key=lambda cell: cell.time, reverse=True):
        fits.setdefault(cell.fit.id, cell.fit)
        datasets.setdefault(dataset_of(cell), cell.fit.dataset)
    datasets.pop("", None)  # of cells without the hash
    renamed = []
    for cell in cells:
        fit = fits[cell.fit.id]
        dataset = datasets.get(dataset_of(cell), fit.dataset)
        if dataset != fit.dataset:
            fit = dataclasses.replace(fit, dataset=dataset)
        renamed.append(cell if cell.fit == fit else dataclasses.replace(cell, fit=fit))
    return renamed


def dataset_of(cell: Cell) -> str:
    """Return the hash of the identity of a cell's dataset; "": unknown."""
    return str(cell.provenance.get(DATASET, ""))
