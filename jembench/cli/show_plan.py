"""What ``--dry-run`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click

from jembench.catalog import spec
from jembench.cli.output import print_json, print_table
from jembench.experiment.plan import PRETRAINED
from jembench.progress import duration
from jembench.running.preview import FitPreview

NAMED = 3
"""Up to this many variants of one metric are listed by name; more are counted."""


def print_preview(fits: Sequence[FitPreview], format: str) -> None:
    """Print each fit with its cost and its metrics, and the attacks with theirs; ``format`` is table or json."""
    if format == "json":
        costs = [{metric: cost._asdict() for metric, cost in fit.attacks.items()} for fit in fits]
        print_json([{**fit._asdict(), "attacks": cost} for fit, cost in zip(fits, costs, strict=True)])
        return
    names = ["model", *(name for name in ("dataset", "recipe", "seed") if len({getattr(f, name) for f in fits}) > 1)]
    print_table(
        (*names, "training", "metrics"),
        [(*(str(getattr(fit, name)) for name in names), _training(fit), _measuring(fit)) for fit in fits],
    )
    shared = [f"{name} {getattr(fits[0], name)}" for name in ("dataset", "recipe", "seed") if name not in names]
    remaining = [fit for fit in fits if fit.iterations != 0]
    unknown = [fit for fit in remaining if fit.passes is None]
    passes = sum(fit.passes or 0 for fit in remaining)
    click.echo()
    if shared:
        click.echo(f"Throughout: {', '.join(shared)}.")
    click.echo(
        f"{len(remaining)} of {len(fits)} models are still to be trained, in {passes:,} passes in all"
        f"{f', not counting {len(unknown)} whose dataset is missing' if unknown else ''}, and "
        f"{sum(len(fit.to_do) for fit in fits)} metrics to be computed. A pass goes forward and backward through the "
        "network with one batch."
    )
    _print_attacks(fits)


def _print_attacks(fits: Sequence[FitPreview]) -> None:
    attacks = [(fit.model, metric, cost) for fit in fits for metric, cost in fit.attacks.items()]
    if not attacks:
        return
    click.echo()
    print_table(
        ("model", "attack", "passes of an image", "time"),
        [(model, metric, f"{cost.passes:,}", duration(cost.seconds)) for model, metric, cost in attacks],
    )
    total = sum(cost.seconds for _, _, cost in attacks)
    click.echo()
    click.echo(
        f"All attacks take about {duration(total)} here. How soon they succeed decides it: an image that is found "
        "leaves. --max-hours stops them with what is done by then."
    )


def _training(fit: FitPreview) -> str:
    if fit.iterations is None:
        return "not known"
    if fit.iterations:
        return f"{fit.iterations:,} iterations\n{fit.passes:,} passes"
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
