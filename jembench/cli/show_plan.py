"""The output of ``--dry-run``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from jembench.cli.output import print_json, print_table
from jembench.experiment.plan import PRETRAINED
from jembench.experiment.sweep import bare_name

if TYPE_CHECKING:
    from jembench.running.check import FitPreview

NAMED = 3
"""The largest number of variants of a metric that are listed by name."""


def print_preview(fits: Sequence[FitPreview], format: str) -> None:
    """Print each fit with its iterations and its metrics; ``format`` is table or json."""
    if format == "json":
        print_json([fit._asdict() for fit in fits])
        return
    columns = ("model", "dataset", "recipe", "seed", "training", "metrics")
    print_table(columns, [(f.model, f.dataset, f.recipe, str(f.seed), _training(f), _measuring(f)) for f in fits])
    click.echo(
        f"\n{sum(fit.iterations != 0 for fit in fits)} of {len(fits)} models are still to be trained, and "
        f"{sum(len(fit.to_do) for fit in fits)} metrics to be computed. `jembench estimate MODEL` estimates the hours "
        "of a training."
    )


def _training(fit: FitPreview) -> str:
    if fit.iterations is None:
        return "not known"
    if fit.iterations:
        return f"{fit.iterations:,} iterations"
    if fit.recipe.partition("+")[0] == PRETRAINED:
        return "elsewhere"
    return "done" if fit.trained else "not needed"


def _measuring(fit: FitPreview) -> str:
    """Return the metrics by their states and reasons."""
    groups: dict[tuple[str, str], list[str]] = {("to do", ""): fit.to_do, ("done", ""): fit.done}
    for state, reasons in (("N/A", fit.not_applicable), ("missing", fit.missing)):
        for metric, reason in reasons.items():
            groups.setdefault((state, f" ({reason})"), []).append(metric)
    return "\n".join(f"{state}: {_counted(metrics)}{reason}" for (state, reason), metrics in groups.items() if metrics)


def _counted(metrics: Sequence[str]) -> str:
    """Return the metrics in words, those of a grid as ``42 of ood``."""
    counts = Counter(map(bare_name, metrics))
    many = {name: f"{count} of {name}" for name, count in counts.items() if count > NAMED}
    return ", ".join(dict.fromkeys(many.get(bare_name(metric), metric) for metric in metrics))
