"""Showing plans and results: what ``run`` and ``report`` print."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from jembench.cli.output import print_json, print_table
from jembench.outcome import Cell
from jembench.report import references, table
from jembench.store import Store
from jembench.suite import CellPlan, Plan


def unfinished(plan: Plan, store: Store) -> list[CellPlan]:
    """The cells that are still to be computed."""
    return [cell for cell in plan.cells if not store.is_settled(cell.id, cell.name)]


def results(plan: Plan, store: Store, format: str) -> int:
    """Print the table of a plan's cells, and where everything lies.

    Returns:
        1 if a cell failed, else 0.
    """
    cells = [found for cell in plan.cells if (found := store.read_cell(cell.id, cell.name))]
    metrics = list(dict.fromkeys(str(cell.metric) for cell in plan.cells))
    print_results(cells, metrics, plan.suite.reference, format)
    if format == "table":
        _print_whereabouts(plan, store, cells)
    return int(any(cell.outcome.status == "failed" for cell in cells))


def print_results(cells: Sequence[Cell], metrics: Sequence[str], reference: Sequence[str], format: str) -> None:
    """Print one table of cells, in a format of ``jembench.report``, with the published numbers below."""
    built = table.build(cells, metrics=metrics, published=references.load(reference))
    if format == "table":
        from rich.console import Console

        from jembench.report import terminal

        terminal.show(built, Console())
    else:
        from jembench.report.render import render

        click.echo(render(built, format), nl=False)  # type: ignore[arg-type]  # click has checked the format


def _print_whereabouts(plan: Plan, store: Store, cells: Sequence[Cell]) -> None:
    pictures = [store.fit_folder(fit.key) / "samples.png" for fit in plan.fits]
    lines = [("samples", str(picture)) for picture in pictures if picture.exists()]
    lines.append(("results", f"{store.root / 'cells'}: {len(cells)} outcomes, each with its provenance"))
    if any(cell.outcome.status == "failed" for cell in cells):
        lines.append(("failed", "the same command again tries what failed once more; report --format json tells why"))
    lines += [("next", command) for command in _suggestions(plan, store.root)]
    click.echo()
    for name, text in lines:
        click.echo(f"{name:>8}  {text}")


def _suggestions(plan: Plan, store: Path) -> list[str]:
    suite, fit = plan.suite, plan.fits[0]
    place = "" if store == Path("runs") else f" --store {shlex.quote(str(store))}"
    several = f"jembench run {suite.name} --models {','.join(suite.models)} --seeds 0,1,2{place}"
    return [several, f"jembench sample {fit.key.model} --steps 100{place}", f"jembench report --format markdown{place}"]


def plan(plan: Plan, store: Store, format: str) -> None:
    """Print what would be done: each fit with its cost, and its cells with what is known of them beforehand."""
    from jembench import work

    ready = {item.fit.key.id: item for item in work.look_ahead(plan)}
    todo = {cell.id for cell in unfinished(plan, store)}
    rows = []
    for fit in plan.fits:
        item = ready[fit.key.id]
        is_trained = (record := store.read_fit(fit.key)) is not None and record.status == "done"
        for cell in plan.cells_of(fit):
            reason = item.impossible.get(cell.id, "")
            rows.append(
                {
                    "fit": str(fit),
                    "training": "done" if is_trained else f"{item.iterations} iterations, {item.passes} passes",
                    "metric": str(cell.metric),
                    "state": f"N/A: {reason}" if reason else "to do" if cell.id in todo else "done",
                }
            )
    if format == "json":
        print_json(rows)
        return
    print_table(("fit", "training", "metric", "state"), [tuple(row.values()) for row in rows])
    click.echo(
        f"{len(plan.fits)} fits, {len(plan.cells)} cells, {len(todo)} to do. A pass is forward and backward "
        "through the network for one batch of the recipe."
    )
