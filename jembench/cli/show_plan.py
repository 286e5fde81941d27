"""Showing a plan: what ``--dry-run`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from jembench.catalog import spec
from jembench.cli.output import print_json, print_table
from jembench.errors import SpecError
from jembench.experiment.plan import PRETRAINED, CellPlan, FitPlan, Plan
from jembench.running.session import outcomes, unfinished
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    import torch

    from jembench.running.outlook import Outlook, Ready

NAMED = 3
"""Up to this many variants of one metric are listed by name; more are counted."""


def show_plan(plan: Plan, store: Store, format: str, device: torch.device, *, skip_missing: bool) -> None:
    """Print what would be done: each fit with its cost and its metrics, those of attacks with their own.

    Raises:
        SpecError: for a format that a plan has not.
        Unavailable: after the plan, if it could not be carried out because something is missing.
    """
    if format not in ("table", "json"):
        raise SpecError(f"--dry-run prints a plan, and --format {format} is for results. Use --format table or json.")
    found = {cell.id: cell for cell in outcomes(plan, store)}
    pending = Plan(plan.suite, unfinished(plan, found.values()))
    outlook = _look_ahead(pending) if pending.cells else None
    rows = _rows(plan, pending, outlook, found, store, device)
    if format == "json":
        print_json(rows)
    else:
        _print_rows(rows)
    if outlook:
        outlook.check(pending, skip_missing=skip_missing)


def _look_ahead(pending: Plan) -> Outlook:
    from jembench.running.outlook import look_ahead

    return look_ahead(pending, dry=True)


def _rows(
    plan: Plan,
    pending: Plan,
    outlook: Outlook | None,
    found: Mapping[str, Cell],
    store: Store,
    device: torch.device,
) -> list[dict[str, Any]]:
    seconds: dict[str, float] = {}
    rows = []
    for fit in plan.fits:
        todo = pending.cells_of(fit)
        ready = outlook.fits.get(fit.key.id) if outlook else None
        waiting = {cell.id for cell in todo}
        settled = [found[cell.id] for cell in plan.cells_of(fit) if cell.id not in waiting]
        row = _row(fit, settled, todo, ready, store)
        if outlook and fit.key.dataset in outlook.absent:
            row["missing"][fit.key.dataset] = outlook.absent[fit.key.dataset]
        if ready and ready.costs:
            row["attacks"] = _attacks(ready, todo, seconds, device)
        rows.append(row)
    return rows


def _row(
    fit: FitPlan, settled: Sequence[Cell], todo: Sequence[CellPlan], ready: Ready | None, store: Store
) -> dict[str, Any]:
    """One fit; iterations and passes are None if they are unknown, as for a missing dataset."""
    impossible, missing = (ready.impossible, ready.missing) if ready else ({}, {})
    possible = [str(cell.metric) for cell in todo if cell.id not in impossible and cell.id not in missing]
    trained = fit.model.is_pretrained or store.is_trained(fit.key)
    iterations, passes = (ready.iterations, ready.passes) if ready else (None, None)
    if trained or not possible:
        iterations = passes = 0
    return {
        "model": fit.key.model,
        "dataset": fit.key.dataset,
        "recipe": fit.key.recipe,
        "seed": fit.seed,
        "trained": trained,
        "iterations": iterations,
        "passes": passes,
        "to_do": possible,
        "done": [cell.metric for cell in settled if cell.outcome.status == "ok"],
        "not_applicable": {
            **{cell.metric: cell.outcome.reason for cell in settled if cell.outcome.status == "na"},
            **{str(cell.metric): impossible[cell.id] for cell in todo if cell.id in impossible},
        },
        "missing": {str(cell.metric): missing[cell.id] for cell in todo if cell.id in missing},
        "attacks": {},
    }


def _attacks(
    ready: Ready, todo: Sequence[CellPlan], seconds: dict[str, float], device: torch.device
) -> dict[str, dict[str, float]]:
    """What each attack takes: passes of an image through the network, and seconds on this device."""
    from jembench.running.estimate import seconds_a_pass

    family = ready.fit.key.family
    if family not in seconds:
        seconds[family] = seconds_a_pass(ready.fit, ready.dataset, device)
    costs = {str(cell.metric): ready.costs[cell.id] for cell in todo if cell.id in ready.costs}
    return {metric: {"passes": passes, "seconds": passes * seconds[family]} for metric, passes in costs.items()}


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    names = ["model", *(name for name in ("dataset", "recipe", "seed") if len({row[name] for row in rows}) > 1)]
    print_table(
        (*names, "training", "metrics"),
        [(*(str(row[name]) for name in names), _training(row), _measuring(row)) for row in rows],
    )
    shared = [f"{name} {rows[0][name]}" for name in ("dataset", "recipe", "seed") if name not in names]
    remaining = [row for row in rows if row["iterations"] != 0]
    unknown = [row for row in remaining if row["passes"] is None]
    passes = sum(row["passes"] or 0 for row in remaining)
    cells = sum(len(row["to_do"]) for row in rows)
    click.echo()
    if shared:
        click.echo(f"Throughout: {', '.join(shared)}.")
    click.echo(
        f"{len(remaining)} of {len(rows)} models are still to be trained, in {passes:,} passes in all"
        f"{f', not counting {len(unknown)} whose dataset is missing' if unknown else ''}, and {cells} "
        "metrics to be computed. A pass goes forward and backward through the network with one batch."
    )
    _print_attacks(rows)


def _print_attacks(rows: Sequence[dict[str, Any]]) -> None:
    attacks = [(row["model"], metric, cost) for row in rows for metric, cost in row["attacks"].items()]
    if not attacks:
        return
    click.echo()
    print_table(
        ("model", "attack", "passes of an image", "time"),
        [(model, metric, f"{cost['passes']:,}", _duration(cost["seconds"])) for model, metric, cost in attacks],
    )
    total = sum(cost["seconds"] for _, _, cost in attacks)
    click.echo()
    click.echo(
        f"All attacks take about {_duration(total)} here. How soon they succeed decides it: an image that is found "
        "leaves. --max-hours stops them with what is done by then."
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _training(row: Mapping[str, Any]) -> str:
    if row["iterations"] is None:
        return "not known"
    if row["iterations"]:
        return f"{row['iterations']:,} iterations\n{row['passes']:,} passes"
    if row["recipe"].partition("+")[0] == PRETRAINED:
        return "elsewhere"
    return "done" if row["trained"] else "not needed"


def _measuring(row: Mapping[str, Any]) -> str:
    parts = [("to do", row["to_do"], ""), ("done", row["done"], "")]
    parts += [("N/A", metrics, reason) for reason, metrics in _by_reason(row["not_applicable"])]
    parts += [("missing", metrics, reason) for reason, metrics in _by_reason(row["missing"])]
    lines = [(f"{state}: {', '.join(_counted(names))}", reason) for state, names, reason in parts if names]
    return "\n".join(f"{line} ({reason})" if reason else line for line, reason in lines)


def _by_reason(reasons: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(reason, []).append(name)
    return list(found.items())


def _counted(metrics: Sequence[str]) -> list[str]:
    """The metrics; those of a grid, one metric under many options, as ``42 of ood``."""
    counts = Counter(spec.parse(metric).name for metric in metrics)
    texts = (
        f"{counts[name]} of {name}" if counts[name] > NAMED else metric
        for metric in metrics
        for name in [spec.parse(metric).name]
    )
    return list(dict.fromkeys(texts))
