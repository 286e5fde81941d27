"""Which of the results that go by the same names count: those that were asked for last.

A name can come to mean another thing: code is edited, a default changes. The former results stay in the store, and come
back with what gave them. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Sequence

from jembench.outcome import Cell
from jembench.store import Store


def newest(cells: Sequence[Cell]) -> list[Cell]:
    """Those that count, in their order.

    Never of two codes in one row: of the fits of one name, those of another family than the last are all out of date.
    """
    families: dict[tuple[str, str, str], str] = {}
    latest: dict[tuple[object, ...], Cell] = {}
    for cell in sorted(cells, key=_when):
        fit = cell.fit
        families[fit.model, fit.dataset, fit.recipe] = fit.family
        names = (fit.model, fit.dataset, fit.recipe, fit.family, fit.seed, cell.metric, cell.provenance.get("limit"))
        latest[names] = cell
    kept = {
        cell.id
        for cell in latest.values()
        if cell.fit.family == families[cell.fit.model, cell.fit.dataset, cell.fit.recipe]
    }
    return [cell for cell in cells if cell.id in kept]


def _when(cell: Cell) -> str:
    return str(cell.provenance.get("asked_for") or cell.provenance.get("time", ""))


def ask_for(store: Store, ids: Collection[str]) -> None:
    """From now on these cells count, where others of their names did.

    Raises:
        StoreError: if that cannot be written.
    """
    if not store.root.is_dir():
        return
    cells = store.contents().cells
    counting = {cell.id for cell in newest(cells)}
    now = datetime.datetime.now(datetime.UTC).isoformat()
    for cell in cells:
        if cell.id in ids and cell.id not in counting:
            asked_for = dataclasses.replace(cell, provenance={**cell.provenance, "asked_for": now})
            store.write_cell(asked_for, cell.metric, {})
