"""The remaining work of a plan, for a dry run."""

from contextlib import suppress
from typing import NamedTuple

import torch

from jembench.errors import NotApplicable
from jembench.experiment.plan import Plan
from jembench.metrics.attacks import Attack
from jembench.models import devices
from jembench.running.caches import FeatureBank
from jembench.running.check import Datasets, Outlook, look_ahead
from jembench.running.estimate import attack_seconds
from jembench.running.fits import FitWork
from jembench.store.store import Store


class FitPreview(NamedTuple):
    """The remaining work of one fit."""

    model: str
    dataset: str
    recipe: str
    seed: int
    trained: bool  # also if it was trained elsewhere
    iterations: int | None  # None: unknown, since the dataset is missing
    to_do: list[str]  # metrics
    done: list[str]
    not_applicable: dict[str, str]  # metric -> why
    missing: dict[str, str]  # metric or dataset -> what is missing, with the remedy
    seconds: dict[str, float]  # attack on a trained model -> its estimated time in one process


def preview(plan: Plan, store: Store, device: torch.device) -> tuple[list[FitPreview], Outlook]:
    """Check the part of a plan that is not in the store, without training, downloading or writing anything.

    Attacks on trained models are timed on the device.

    Returns:
        the work of each fit, and the results of the check.
    """
    found = filter(None, map(store.read_cell, plan.cells))
    settled = {cell.id: cell.outcome for cell in found if cell.outcome.is_settled}
    outlook = look_ahead(Plan(plan.suite, [cell for cell in plan.cells if cell.id not in settled]), Datasets(dry=True))
    fits = []
    for fit in plan.fits:
        ready = outlook.fits.get(fit.key.id)
        trained = fit.is_pretrained or store.is_trained(fit.key)
        row = FitPreview(*fit.key.names, fit.seed, trained, ready.iterations if ready else None, [], [], {}, {}, {})
        for cell in plan.cells_of(fit):
            metric, outcome = str(cell.metric), settled.get(cell.id)
            if outcome and outcome.status == "ok":
                row.done.append(metric)
            elif outcome:
                row.not_applicable[metric] = outcome.reason
            elif ready and (reason := ready.reasons.get(metric)):
                (row.not_applicable if isinstance(reason, NotApplicable) else row.missing)[metric] = str(reason)
            else:
                row.to_do.append(metric)
                if ready and store.is_trained(fit.key) and isinstance(attack := cell.metric.make(), Attack):
                    bank = FeatureBank(ready.dataset, store, device)
                    work = FitWork(fit=fit, bank=bank, store=store, report=lambda event: None)
                    with devices.threads_for(ready.dataset.spec, device), suppress(Exception):  # its outcome says why
                        row.seconds[metric] = attack_seconds(attack, work.load_or_train(cell.limit))
        if fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        fits.append(row._replace(iterations=0) if trained or not row.to_do else row)
    return fits, outlook
