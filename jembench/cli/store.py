"""``jembench store``: check the integrity of a store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from jembench.cli import options
from jembench.cli.groups import LazyCommand, LazyGroup
from jembench.cli.output import print_json, print_table
from jembench.store.store import Store
from jembench.store.verify import Finding, Status
from jembench.store.verify import verify as verified

COMMANDS = {
    "verify": LazyCommand("jembench.cli.store:verify", "Read every file of a store and check its digest."),
}


@click.group(cls=LazyGroup, late=COMMANDS)
def store() -> None:
    """Check the integrity of a store."""


@click.command("verify", epilog=options.examples("jembench store verify", "jembench store verify --store shared/runs"))
@options.store
@options.listing_format
def verify(store: Path, format: str) -> int:
    """Read every file of a store and check its digest.

    The exit code is 1 if a file is damaged. Files written by version 0.1, which have no digest, and files that do not
    belong to the store are listed but are no failure. Nothing is written.
    """
    found = verified(Store(store))
    counts = Counter(finding.status for finding in found)
    findings = [finding for finding in found if finding.status != "ok"]
    if format == "json":
        print_json({"files": len(found), **counts, "findings": [finding._asdict() for finding in findings]})
    else:
        _print(store, findings, counts)
    return int(counts["damaged"] > 0)


def _print(store: Path, findings: list[Finding], counts: Counter[Status]) -> None:
    if findings:
        print_table(("", "file", "reason"), [(finding.status, finding.file, finding.reason) for finding in findings])
        click.echo()
    numbers = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    click.echo(f"{store}: {sum(counts.values())} files{': ' if numbers else ''}{numbers}.")
