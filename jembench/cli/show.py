"""Showing plans and results: what ``run`` and ``report`` print."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from jembench import spec
from jembench.cli import suggest
from jembench.cli.output import print_json, print_table
from jembench.errors import SpecError
from jembench.outcome import Cell
from jembench.plan import CellPlan, FitPlan, Part, Plan
from jembench.report import table
from jembench.report.references import PublishedTable
from jembench.store import Store
from jembench.twins import differences

if TYPE_CHECKING:
    import torch

    from jembench.report.findings import Findings
    from jembench.work import Ready

PICTURES = 3
"""So many are named one by one."""

NAMED = 3
"""So many of one metric under different options are named one by one."""


def outcomes(plan: Plan, store: Store) -> list[Cell]:
    """What the store has of a plan. Whoever needs it again keeps it.

    The names are the plan's: results may have been stored when a data set lay elsewhere.
    """
    planned = {cell.id: cell for cell in plan.cells}
    return [
        dataclasses.replace(found, fit=planned[found.id].fit.key, metric=str(planned[found.id].metric))
        for found in store.read_cells((cell.id, cell.name) for cell in plan.cells)
    ]


def unfinished(plan: Plan, found: Iterable[Cell]) -> list[CellPlan]:
    """The cells that are still to be computed, after what was found of them."""
    settled = {cell.id for cell in found if cell.outcome.is_settled}
    return [cell for cell in plan.cells if cell.id not in settled]


# --- results ----------------------------------------------------------------------------------------------------------


def results(
    ctx: click.Context,
    plan: Plan,
    store: Store,
    published: Sequence[PublishedTable],
    format: str,
    cells: Sequence[Cell],
) -> int:
    """Print the tables of a plan's cells, and where everything lies.

    Returns:
        the exit code.
    """
    print_results(cells, plan.parts, published, format, plan.recipe_names)
    if format == "table":
        click.echo()
        for name, text in _whereabouts(ctx, plan, store, cells):
            click.echo(f"{name:>8}  {text}")
    return exit_code(ctx, cells)


def print_results(
    cells: Sequence[Cell],
    parts: Sequence[Part],
    published: Sequence[PublishedTable],
    format: str,
    recipe_names: Mapping[str, str] | None = None,
) -> None:
    """Print the tables of some cells, in a format of ``jembench.report``, with the published numbers."""
    built = table.build(cells, parts=parts, published=published, recipe_names=recipe_names)
    if format == "table":
        from rich.console import Console

        from jembench.report import terminal

        terminal.show(built, Console())
    else:
        from jembench.report.render import render

        click.echo(render(built, format), nl=False)  # type: ignore[arg-type]  # click has checked the format


def print_findings(findings: Findings, format: str) -> None:
    """Print grids, or what programs and papers read of them, in a format of ``jembench.report``."""
    if format == "table":
        from rich.console import Console

        from jembench.report import terminal

        terminal.show_grids(findings.grids, Console())
    else:
        from jembench.report.findings import render

        click.echo(render(findings, format), nl=False)  # type: ignore[arg-type]  # click has checked the format


def exit_code(ctx: click.Context, cells: Iterable[Cell]) -> int:
    """1 if a cell failed, else 0. With ``--debug`` the tracebacks are printed, each once."""
    failed = [cell for cell in cells if cell.outcome.status == "failed"]
    if ctx.obj.debug:
        for traceback in dict.fromkeys(cell.outcome.traceback for cell in failed):
            click.echo(traceback, err=True)
    return int(bool(failed))


def images(limit: int | None) -> str:
    """Which images were evaluated."""
    return "all test images" if limit is None else f"{limit} of the test images"


def _whereabouts(ctx: click.Context, plan: Plan, store: Store, cells: Sequence[Cell]) -> list[tuple[str, str]]:
    drawn = [fit for fit in plan.fits if (store.fit_folder(fit.key) / "samples.png").exists()]
    pictures = [str(store.fit_folder(fit.key) / "samples.png") for fit in drawn]
    if len(pictures) > PICTURES:
        pictures = [f"{store.root / 'fits'}: samples.png of {len(pictures)} trained models"]
    lines = [("samples", picture) for picture in pictures]
    lines.append(("results", f"{store.root / 'cells'}: {len(cells)} outcomes, each with its provenance"))
    if failures := [cell for cell in cells if cell.outcome.status == "failed"]:
        lines.append(
            ("failed", f"{len(failures)} of {len(cells)} outcomes; this tries them again and shows tracebacks:")
        )
        lines.append(("", suggest.again(ctx, debug=True)))
    else:
        following = [suggest.again(ctx, seeds="0,1,2")] if len({fit.seed for fit in plan.fits}) == 1 else []
        following += [suggest.sample(ctx, fit) for fit in drawn[:1]]
        following.append(suggest.report(ctx, plan.suite.name))
        lines += [("next", command) for command in following]
    return lines


def twins(fits: Iterable[FitPlan], store: Store) -> None:
    """Say before training what of the store was trained under the same names, and how it differs."""
    for line in differences(fits, store):
        click.echo(line, err=True)


# --- plans ------------------------------------------------------------------------------------------------------------


def plan(plan: Plan, store: Store, format: str, device: torch.device) -> None:
    """Print what would be done: each fit with its cost and its metrics, those of attacks with their own.

    Raises:
        SpecError: for a format that a plan has not.
    """
    if format not in ("table", "json"):
        raise SpecError(f"--dry-run prints a plan, and --format {format} is for results. Use --format table or json.")
    rows = _plan_rows(plan, store, device)
    if format == "json":
        print_json(rows)
    else:
        _print_plan(rows)


def _plan_rows(plan: Plan, store: Store, device: torch.device) -> list[dict[str, Any]]:
    from jembench import work

    todo = {cell.id for cell in unfinished(plan, outcomes(plan, store))}
    rows = []
    for ready in work.look_ahead(plan):
        cells = plan.cells_of(ready.fit)
        possible = [cell for cell in cells if cell.id not in ready.impossible]
        key = ready.fit.key
        costs = {str(cell.metric): ready.costs[cell.id] for cell in cells if cell.id in ready.costs and cell.id in todo}
        rows.append(
            {
                "model": key.model,
                "dataset": key.dataset,
                "recipe": key.recipe,
                "seed": key.seed,
                "trained": bool(ready.fit.model.pretrained) or store.is_trained(ready.fit.key),
                "iterations": ready.iterations,
                "passes": ready.passes,
                "to_do": [str(cell.metric) for cell in possible if cell.id in todo],
                "done": [str(cell.metric) for cell in possible if cell.id not in todo],
                "not_applicable": {
                    str(cell.metric): ready.impossible[cell.id] for cell in cells if cell.id in ready.impossible
                },
                "attacks": _attacks(ready, costs, device) if costs else {},
            }
        )
    return rows


def _attacks(ready: Ready, costs: Mapping[str, int], device: torch.device) -> dict[str, dict[str, float]]:
    """What each attack takes: passes of an image through the network, and seconds on this device."""
    from jembench.estimate import seconds_a_pass

    seconds = seconds_a_pass(ready.fit, ready.dataset, device)
    return {metric: {"passes": passes, "seconds": passes * seconds} for metric, passes in costs.items()}


def _print_plan(rows: Sequence[dict[str, Any]]) -> None:
    names = ["model", *(name for name in ("dataset", "recipe", "seed") if len({row[name] for row in rows}) > 1)]
    print_table(
        (*names, "training", "metrics"),
        [(*(str(row[name]) for name in names), _training(row), _measuring(row)) for row in rows],
    )
    shared = [f"{name} {rows[0][name]}" for name in ("dataset", "recipe", "seed") if name not in names]
    remaining = [row for row in rows if not row["trained"]]
    passes = sum(row["passes"] for row in remaining)
    cells = sum(len(row["to_do"]) for row in rows)
    click.echo()
    if shared:
        click.echo(f"Throughout: {', '.join(shared)}.")
    click.echo(
        f"{len(remaining)} of {len(rows)} models are still to be trained, in {passes:,} passes in all, and {cells} "
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


def _training(row: dict[str, Any]) -> str:
    if row["trained"]:
        return "done" if row["iterations"] else "elsewhere"
    return f"{row['iterations']:,} iterations\n{row['passes']:,} passes"


def _measuring(row: dict[str, Any]) -> str:
    reasons: dict[str, list[str]] = {}
    for metric, reason in row["not_applicable"].items():
        reasons.setdefault(reason, []).append(metric)
    parts = [("to do", row["to_do"], ""), ("done", row["done"], "")]
    parts += [("N/A", metrics, f" ({reason})") for reason, metrics in reasons.items()]
    return "\n".join(f"{state}: {', '.join(_counted(metrics))}{reason}" for state, metrics, reason in parts if metrics)


def _counted(metrics: Sequence[str]) -> list[str]:
    """The metrics; those of a grid, one metric under many options, as ``42 of ood``."""
    counts = Counter(spec.parse(metric).name for metric in metrics)
    texts = (
        f"{counts[name]} of {name}" if counts[name] > NAMED else metric
        for metric in metrics
        for name in [spec.parse(metric).name]
    )
    return list(dict.fromkeys(texts))
