"""``jembench plugin new``: the beginning of a plugin of one's own."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from jembench.cli import options
from jembench.testing import scaffold

EXAMPLES = options.examples(
    "jembench plugin new model my-ebm",
    "jembench plugin new sampler my-sampler --folder ~/code/my-sampler",
    "jembench plugin new suite my-suite",
)


@click.command("new", epilog=EXAMPLES)
@click.argument("kind", metavar="KIND", type=click.Choice(list(scaffold.KINDS)))
@click.argument("name", metavar="NAME")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Output folder. By default NAME in the current folder.",
)
def new(kind: str, name: str, folder: Path | None) -> None:
    """Write a complete distribution: a small component that works, its tests and its packaging.

    KIND is model, sampler, metric, dataset or suite. NAME names the component and the distribution: my-ebm.
    """
    folder = folder or Path(name)
    for path in scaffold.write(kind, name, folder):
        click.echo(path)
    click.echo(f"\nInstall it, check it and use it; then make it yours, beginning with {folder / 'README.md'}:\n")
    for command in (f"pip install -e {shlex.quote(f'{folder}[test]')}", *scaffold.commands(kind, name)):
        click.echo(f"  {command}")
