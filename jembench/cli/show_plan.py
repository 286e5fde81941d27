"""The output of ``--dry-run``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click

from jembench.catalog import spec
from jembench.cli.output import print_json, print_table
from jembench.experiment.plan import PRETRAINED
from jembench.running.preview import FitPreview

NAMED = 3
"""Up to this many variants of one metric are listed by name; more are counted."""


def print_preview(fits: Sequence[FitPreview], format: str) -> None:
    """Print each fit with its iterations and its metrics; ``format`` is table or json."""
    if format == "json":
        print_json([fit._asdict() for fit in fits])
        return
    names = ["model", *(name for name in ("dataset", "recipe", "seed") if len({getattr(f, name) for f in fits}) > 1)]
    print_table(
        (*names, "training", "metrics"),
        [(*(str(getattr(fit, name)) for name in names), _training(fit), _measuring(fit)) for fit in fits],
    )
    shared = [f"{name} {getattr(fits[0], name)}" for name in ("dataset", "recipe", "seed") if name not in names]
    click.echo()
    if shared:
        click.echo(f"Throughout: {', '.join(shared)}.")
    click.echo(
        f"{sum(fit.iterations != 0 for fit in fits)} of {len(fits)} models are still to be trained, and "
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
    parts = [("to do", fit.to_do, ""), ("done", fit.done, "")]
    parts += [("N/A", metrics, f" ({reason})") for reason, metrics in _by_reason(fit.not_applicable)]
    parts += [("missing", metrics, f" ({reason})") for reason, metrics in _by_reason(fit.missing)]
    return "\n".join(f"{state}: {', '.join(_counted(names))}{reason}" for state, names, reason in parts if names)


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
