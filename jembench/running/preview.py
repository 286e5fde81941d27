"""The work that a run would do: the iterations of each fit, and the state of its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jembench.experiment.plan import CellPlan, Plan
from jembench.running.session import outcomes, unfinished
from jembench.store.outcome import Outcome
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.running.outlook import Outlook, Ready


class FitPreview(NamedTuple):
    """The work that is left for one fit."""

    model: str
    dataset: str
    recipe: str
    seed: int
    trained: bool  # here or elsewhere
    iterations: int | None  # None: they are unknown, since its dataset is missing
    to_do: list[str]  # metrics
    done: list[str]
    not_applicable: dict[str, str]  # metric -> why
    missing: dict[str, str]  # metric or dataset -> what it lacks, with the remedy


def preview(plan: Plan, store: Store) -> tuple[list[FitPreview], Outlook | None]:
    """Look at what the store does not have of a plan. Nothing is trained, downloaded or written.

    Returns:
        the work for each fit, and what is known of all that is to be done; None if nothing is.
    """
    found = {cell.id: cell for cell in outcomes(plan, store)}
    pending = Plan(plan.suite, unfinished(plan, found.values()))
    outlook = None
    if pending.cells:
        from jembench.running.outlook import Datasets, look_ahead

        outlook = look_ahead(pending, here=Datasets(dry=True))
    fits = []
    for fit in plan.fits:
        ready = outlook.fits.get(fit.key.id) if outlook else None
        trained = fit.is_pretrained or store.is_trained(fit.key)
        row = FitPreview(*fit.key.names, fit.seed, trained, ready.iterations if ready else None, [], [], {}, {})
        waiting = {cell.id for cell in pending.cells_of(fit)}
        for cell in plan.cells_of(fit):
            _sort(cell, found[cell.id].outcome if cell.id not in waiting else None, ready, row)
        if outlook and fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        fits.append(row._replace(iterations=0) if trained or not row.to_do else row)
    return fits, outlook


def _sort(cell: CellPlan, outcome: Outcome | None, ready: Ready | None, row: FitPreview) -> None:
    """Note a cell's metric in the preview of its fit; ``outcome`` is that in the store, if it counts."""
    metric = str(cell.metric)
    reason = ready.reasons.get(metric) if ready and outcome is None else None
    if reason:
        (row.missing if ready and ready.missing(metric) else row.not_applicable)[metric] = str(reason)
    elif outcome is None:
        row.to_do.append(metric)
    elif outcome.status == "ok":
        row.done.append(metric)
    else:
        row.not_applicable[metric] = outcome.reason
