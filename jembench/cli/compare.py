"""``jembench compare``: two models of a store side by side."""

from __future__ import annotations

from pathlib import Path

import click

from jembench.catalog import spec
from jembench.cli import options, show

EXAMPLES = options.examples(
    "jembench compare jem baseline",
    "jembench compare jem baseline:norm=batch --metrics accuracy,ece",
    "jembench compare jem jem --recipe digits+chains.conditional=true --recipe-b digits",
)


@click.command("compare", epilog=EXAMPLES)
@click.argument("a")
@click.argument("b")
@click.option("--dataset", metavar="SPEC", help="Dataset. By default the one on which both were evaluated.")
@click.option("--recipe", metavar="LABEL", help="Recipe of both models, as `jembench report` names it.")
@click.option("--recipe-b", metavar="LABEL", help="Recipe of B, if it differs from that of A.")
@click.option(
    "--metrics", metavar="LIST", help="Metrics to compare: accuracy,ood:set=interp. A bare name covers all its options."
)
@click.option("--seeds", metavar="LIST", help="Seeds to compare: 0,1,2. By default all that both models have.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Compare the results of `run --limit N`.")
@click.option(
    "--resamples",
    type=click.IntRange(min=1),
    metavar="R",
    default=10_000,
    show_default=True,
    help="Resamples of the bootstrap. No p value is below 1 / (R + 1).",
)
@options.store
@options.report_format
def compare(
    a: str,
    b: str,
    dataset: str | None,
    recipe: str | None,
    recipe_b: str | None,
    metrics: str | None,
    seeds: str | None,
    limit: int | None,
    resamples: int,
    store: Path,
    format: str,
) -> None:
    """Compare two models of a store, image by image and seed by seed.

    Nothing is trained or evaluated. A and B are models as `jembench report` shows them; a bare name is enough if it is
    unambiguous. If there are several recipes, the most recently requested one is used. Every value that both models
    have under one protocol gets a confidence interval of the difference and a verdict.
    """
    from jembench.api.stored import compare as compare_models

    found = compare_models(
        a,
        b,
        store=store,
        dataset=dataset,
        recipe=recipe,
        recipe_b=recipe_b,
        metrics=None if metrics is None else spec.split_list(metrics),
        seeds=None if seeds is None else options.seed_list(seeds),
        limit=limit,
        resamples=resamples,
    )
    show.print_document(found.document, format)
