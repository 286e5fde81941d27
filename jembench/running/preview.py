"""What a run would do, without doing it: the cost of each fit, and the state of its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.running.session import outcomes, unfinished
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    import torch

    from jembench.running.outlook import Outlook, Ready


class Cost(NamedTuple):
    """The estimated cost of an attack."""

    passes: int  # of an image through the network
    seconds: float  # on this device


class FitPreview(NamedTuple):
    """What would be done for one fit. Iterations and passes are None if they are unknown: its dataset is missing."""

    model: str
    dataset: str
    recipe: str
    seed: int
    trained: bool
    iterations: int | None
    passes: int | None  # forward-backward passes of a batch
    to_do: list[str]  # metrics
    done: list[str]
    not_applicable: dict[str, str]  # metric -> why
    missing: dict[str, str]  # metric or dataset -> what it lacks, with the remedy
    attacks: dict[str, Cost]


def preview(plan: Plan, store: Store, device: torch.device) -> tuple[list[FitPreview], Outlook | None]:
    """Look at what the store does not have of a plan. Nothing is trained, downloaded or written.

    The attacks are timed by a few batches on ``device``.

    Returns:
        what a run would do for each fit, and what is known of all that is to be done; None if nothing is.
    """
    found = {cell.id: cell for cell in outcomes(plan, store)}
    pending = Plan(plan.suite, unfinished(plan, found.values()))
    outlook = None
    if pending.cells:
        from jembench.running.outlook import Datasets, look_ahead

        outlook = look_ahead(pending, here=Datasets(dry=True))
    seconds: dict[str, float] = {}
    fits = []
    for fit in plan.fits:
        todo = pending.cells_of(fit)
        waiting = {cell.id for cell in todo}
        settled = [found[cell.id] for cell in plan.cells_of(fit) if cell.id not in waiting]
        ready = outlook.fits.get(fit.key.id) if outlook else None
        row = _fit(fit, settled, todo, ready, store.is_trained(fit.key))
        if outlook and fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        if ready and ready.costs:
            row.attacks.update(_attacks(ready, todo, seconds, device))
        fits.append(row)
    return fits, outlook


def _fit(
    fit: FitPlan, settled: Sequence[Cell], todo: Sequence[CellPlan], ready: Ready | None, is_trained: bool
) -> FitPreview:
    impossible, missing = (ready.impossible, ready.missing) if ready else ({}, {})
    metrics = [str(cell.metric) for cell in todo]
    possible = [metric for metric in metrics if metric not in impossible and metric not in missing]
    trained = fit.model.is_pretrained or is_trained
    iterations, passes = (ready.iterations, ready.passes) if ready else (None, None)
    if trained or not possible:
        iterations = passes = 0
    return FitPreview(
        model=fit.key.model,
        dataset=fit.key.dataset,
        recipe=fit.key.recipe,
        seed=fit.seed,
        trained=trained,
        iterations=iterations,
        passes=passes,
        to_do=possible,
        done=[cell.metric for cell in settled if cell.outcome.status == "ok"],
        not_applicable={
            **{cell.metric: cell.outcome.reason for cell in settled if cell.outcome.status == "na"},
            **{metric: impossible[metric] for metric in metrics if metric in impossible},
        },
        missing={metric: missing[metric] for metric in metrics if metric in missing},
        attacks={},
    )


def _attacks(
    ready: Ready, todo: Sequence[CellPlan], seconds: dict[str, float], device: torch.device
) -> dict[str, Cost]:
    """The cost of each attack. ``seconds`` of a pass are those of other seeds, if they are known."""
    from jembench.running.estimate import seconds_a_pass

    family = ready.fit.key.family
    if family not in seconds:
        seconds[family] = seconds_a_pass(ready.fit, ready.dataset, device)
    costs = [(str(cell.metric), ready.costs.get(str(cell.metric))) for cell in todo]
    return {metric: Cost(passes, passes * seconds[family]) for metric, passes in costs if passes is not None}
