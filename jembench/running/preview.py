"""The work that a run would do: the iterations of each fit, and the state of its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.running.session import outcomes, unfinished
from jembench.store.outcome import Cell
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
        todo = pending.cells_of(fit)
        waiting = {cell.id for cell in todo}
        settled = [found[cell.id] for cell in plan.cells_of(fit) if cell.id not in waiting]
        ready = outlook.fits.get(fit.key.id) if outlook else None
        row = _preview_fit(fit, settled, todo, ready, trained=fit.is_pretrained or store.is_trained(fit.key))
        if outlook and fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        fits.append(row)
    return fits, outlook


def _preview_fit(
    fit: FitPlan, settled: Sequence[Cell], todo: Sequence[CellPlan], ready: Ready | None, *, trained: bool
) -> FitPreview:
    impossible, missing = (ready.impossible, ready.missing) if ready else ({}, {})
    metrics = [str(cell.metric) for cell in todo]
    possible = [metric for metric in metrics if metric not in impossible and metric not in missing]
    iterations = ready.iterations if ready else None
    return FitPreview(
        model=fit.key.model,
        dataset=fit.key.dataset,
        recipe=fit.key.recipe,
        seed=fit.seed,
        trained=trained,
        iterations=0 if trained or not possible else iterations,
        to_do=possible,
        done=[cell.metric for cell in settled if cell.outcome.status == "ok"],
        not_applicable={
            **{cell.metric: cell.outcome.reason for cell in settled if cell.outcome.status == "na"},
            **{metric: impossible[metric] for metric in metrics if metric in impossible},
        },
        missing={metric: missing[metric] for metric in metrics if metric in missing},
    )
