"""The options that several commands share, each defined once.

Each also answers to an environment variable without the command's name: ``JEMBENCH_STORE`` for ``--store`` anywhere.
"""

from __future__ import annotations

from pathlib import Path

import click

from jembench.errors import SpecError

store = click.option(
    "--store",
    type=click.Path(path_type=Path),
    default="runs",
    show_default=True,
    envvar="JEMBENCH_STORE",
    help="The folder of fits and results.",
)

dataset = click.option(
    "--dataset",
    metavar="SPEC",
    default="digits",
    show_default=True,
    envvar="JEMBENCH_DATASET",
    help="The dataset; `jembench list datasets` says what there is.",
)

recipe = click.option(
    "--recipe",
    metavar="NAME",
    envvar="JEMBENCH_RECIPE",
    help="How models are trained: a recipe's name or a TOML file. By default the one made for the dataset.",
)

device = click.option(
    "--device",
    metavar="DEVICE",
    default="auto",
    show_default=True,
    envvar="JEMBENCH_DEVICE",
    help="cpu, cuda, cuda:1 ...; auto takes the first GPU there is.",
)

settings = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A field of the recipe (epochs=5, optimizer.learning_rate=1e-3) or, where metrics are computed, an option of "
    "one (fid.features=inception). May be repeated.",
)

seed = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The root of all chance.")

report_format = click.option(
    "--format",
    type=click.Choice(["table", "json", "markdown", "latex", "csv"]),
    default="table",
    show_default=True,
    help="How results are printed; all but table go to stdout alone.",
)

listing_format = click.option(
    "--format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How rows are printed; json goes to stdout alone.",
)


def seed_list(text: str) -> tuple[int, ...]:
    """Seeds separated by commas.

    Raises:
        SpecError: if one is not a whole number from 0 up.
    """
    seeds = [seed.strip() for seed in text.split(",")]
    if not all(seed.isdecimal() for seed in seeds):
        raise SpecError(f"--seeds is {text!r}; it must be whole numbers with commas between them, for example 0,1,2.")
    return tuple(int(seed) for seed in seeds)
