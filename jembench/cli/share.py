"""``jembench push`` and ``jembench fetch``: trained models to other people, and from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from jembench.api import sharing
from jembench.cli import options
from jembench.cli.output import check_file, plugins_aside, print_json
from jembench.cli.store import print_findings, size
from jembench.report.card import LICENSE
from jembench.store.store import Store


@click.command(
    "push",
    epilog=options.examples(
        "jembench push jem-digits hf://user/jem-digits",
        "jembench push 109dd351f5 model.zip --license apache-2.0",
        "jembench push jem shared/jem --without-chains",
    ),
)
@click.argument("fit", metavar="FIT")
@click.argument("to", metavar="TO")
@click.option("--without-chains", is_flag=True, help="Leave out the samples that training kept.")
@click.option("--license", metavar="NAME", default=LICENSE, help="License of the weights, for the model card.")
@click.option("--private", is_flag=True, help="Make the repository private if it is created.")
@options.store
@options.force
def push(fit: str, to: str, without_chains: bool, license: str, private: bool, store: Path, force: bool) -> None:
    """Share a trained model: weights, chains, recipe, results and a model card.

    FIT is an id of `jembench store list`, or the beginning of the name of a folder in runs/fits. TO is a repository of
    the Hugging Face Hub (hf://USER/NAME), a file that ends in .zip, or a new folder. The hub needs huggingface_hub: pip
    install "jembench[hub]". The records name the host, the command and the paths of the training.
    """
    if to.endswith(".zip"):
        check_file(Path(to), ".zip", force=force, option="TO")
    with plugins_aside():
        place = Store(store)
        done = sharing.push(
            place, sharing.find(place, fit), to, chains=not without_chains, license=license, private=private
        )
    click.echo(f"    fit  {done.fit}")
    click.echo(f"written  {done.where}: {done.files} files, {size(done.size)}")
    click.echo(f"   next  jembench fetch {to}")


@click.command(
    "fetch",
    epilog=options.examples(
        "jembench fetch hf://user/jem-digits",
        "jembench fetch hf://user/jem-digits@v1 --store theirs",
        "jembench fetch model.zip",
    ),
)
@click.argument("source", metavar="SOURCE")
@options.store
@options.listing_format
def fetch(source: str, store: Path, format: str) -> int:
    """Copy a shared model into a store, where it counts as if it had been trained there.

    SOURCE is a repository (hf://USER/NAME, with @REVISION if need be), a zip archive or a folder that `jembench push`
    wrote. Every file is checked against its digest, and no code is loaded. The exit code is 1 if the store keeps
    another model or result of the same identity.
    """
    with plugins_aside():
        done = sharing.fetch(source, Store(store))
    if format == "json":
        findings = [finding._asdict() for finding in done.findings]
        print_json({**done._asdict(), "fit": dataclasses.asdict(done.fit), "findings": findings})
    else:
        click.echo(f"    fit  {done.fit}, {done.results} results")
        for line in done.differences or ["every id is the same here: nothing is trained or measured again"]:
            click.echo(f"checked  {line}")
        print_findings(store, done.findings, "fits and files", format)
    return int(any(finding.status != "copied" for finding in done.findings))
