"""``jembench store``, ``push`` and ``fetch``: stores and shared models.

Stores are listed, verified, merged and cleaned.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from jembench.api.site import write_site
from jembench.api.stored import OpenStore
from jembench.cli import options
from jembench.cli.output import check_file, plugins_aside, print_json, print_table, say
from jembench.cli.parameters import PATH
from jembench.report.card import LICENSE
from jembench.store import upkeep, walk
from jembench.store.store import Store
from jembench.store.walk import FileFinding

_COPIED = {"ok", "copied"}
"""Statuses that a table of findings does not list."""


@click.command(
    "list", epilog=options.examples("jembench store list", "jembench store list --format json")
)
@options.store
@options.listing_format
def list_(store: Path, format: str) -> None:
    """List the trained models of a store, and the space that it takes."""
    inventory = upkeep.inventory(Store(store))
    rows: list[dict[str, Any]] = []
    for entry in inventory.fits:
        record, key = entry.record, entry.record.key
        fit = {
            "id": key.id,
            "model": key.model,
            "dataset": key.dataset,
            "recipe": key.recipe,
            "seed": key.seed,
        }
        time = str(record.provenance.get("time", ""))[:16]
        training = {"status": record.status, "iteration": record.iteration, "time": time}
        rows.append({**fit, **training, "results": entry.cells, "size": entry.size})
    if format == "json":
        print_json({"fits": rows, "unfinished": inventory.unfinished, "sizes": inventory.sizes})
        return
    columns = ("id", "model", "dataset", "recipe", "seed", "iteration", "results", "size", "time")
    table = []
    for row in rows:
        row["size"] = decimal(row["size"])
        if row["status"] == "failed":
            row["iteration"] = "failed"
        table.append([str(row[column]) for column in columns])
    print_table(columns, table)
    for name in inventory.unfinished:
        say(f"Not finished: {name}")
    parts = [f"{part} {decimal(taken)}" for part, taken in inventory.sizes.items() if taken]
    say(f"{store}: {len(rows)} trained models; {', '.join(parts) or 'nothing'}.")


# --- verify and merge -----------------------------------------------------------------------------


@click.command(
    "verify",
    epilog=options.examples("jembench store verify", "jembench store verify --store shared/runs"),
)
@options.store
@options.listing_format
def verify(store: Path, format: str) -> int:
    """Read every file of a store and check its digest.

    The exit code is 1 if a file is damaged. Files that do not belong to the store are listed but
    are no failure. Nothing is written.
    """
    findings = walk.verify(Store(store))
    print_findings(store, findings, "files", format)
    return int(any(finding.status == "damaged" for finding in findings))


@click.command(
    "merge", epilog=options.examples("jembench store merge laptop/runs cluster/runs --store runs")
)
@click.argument("stores", metavar="STORE...", type=PATH, nargs=-1, required=True)
@options.store
@options.listing_format
def merge(stores: Sequence[Path], store: Path, format: str) -> int:
    """Copy what --store lacks from other stores.

    Copies fits, and results with their arrays, after checking their digests. A result that is in
    both and differs is kept as it is in --store, and so is a fit that a process is working on. The
    exit code is 1 if something was not copied. The same command completes a merge that was
    interrupted.
    """
    findings = OpenStore(store).merge(*stores)
    print_findings(store, findings, "fits and files", format)
    return _is_incomplete(findings)


def _is_incomplete(findings: Sequence[FileFinding]) -> int:
    """Return 1, an exit code, if something was not copied, else 0."""
    return int(any(finding.status != "copied" for finding in findings))


def print_findings(store: Path, findings: Sequence[FileFinding], what: str, format: str) -> None:
    """Print the findings, except files that were copied or are intact."""
    counts = Counter(finding.status for finding in findings)
    shown = [finding for finding in findings if finding.status not in _COPIED]
    if format == "json":
        records = list(map(FileFinding._asdict, shown))
        print_json({"files": len(findings), **counts, "findings": records})
        return
    if shown:
        rows = [(finding.status, finding.file, finding.reason) for finding in shown]
        print_table(("", "file", "reason"), rows)
        click.echo()
    line = f"{store}: {len(findings)} {what}"
    if counts:
        numbers = (f"{count} {status}" for status, count in counts.most_common())
        line += f": {', '.join(numbers)}"
    say(f"{line}.")


@click.command(
    "site",
    epilog=options.examples("jembench store site runs laptop/runs cluster/runs --output site"),
)
@click.argument("stores", metavar="STORE...", type=PATH, nargs=-1, required=True)
@click.option("--output", type=PATH, metavar="FOLDER", default="site", help="Output folder.")
@options.names
def site(stores: Sequence[Path], output: Path, names: dict[str, str]) -> int:
    """Write the pages of stores and a leaderboard of their models.

    FOLDER/index.html lists the models of all stores, each linked to the page of its store, which is
    the one of `jembench report --format html`. Any static web server can serve the folder. Pages
    that exist are replaced. A store is left out, with exit code 1, if a file is damaged or it has
    no results.
    """
    with plugins_aside():
        files, left_out = write_site(stores, output, names)
    for path in files:
        say(path)
    for note in left_out:
        say(f"Left out: {note}", err=True)
    return int(bool(left_out))


# --- gc -------------------------------------------------------------------------------------------


@click.command("gc", epilog=options.examples("jembench store gc", "jembench store gc --yes"))
@click.option("--yes", is_flag=True, help="Remove the files.")
@options.store
@options.listing_format
def gc(yes: bool, store: Path, format: str) -> None:
    """List the files of a store that are no longer needed; with --yes, remove them.

    These are checkpoints of trainings that have ended, arrays without a result, predictions of
    weights that no model has and units of work that ended more than a day ago. With --yes, the
    temporary files of killed processes go too. Files that a running process may need are kept.
    """
    place = Store(store)
    garbage = upkeep.garbage(place)
    if yes:
        left = set(upkeep.remove(place, garbage))
        garbage = [entry for entry in garbage if entry not in left]
    if format == "json":
        print_json({"removed": yes, "files": [entry._asdict() for entry in garbage]})
        return
    if garbage:
        rows = [(entry.file, decimal(entry.size), entry.reason) for entry in garbage]
        print_table(("file", "size", "reason"), rows)
        click.echo()
    done = "to remove"
    if yes:
        done = "removed"
    elif garbage:
        done = "that can be removed with --yes"
    size = decimal(sum(entry.size for entry in garbage))
    say(f"{store}: {len(garbage)} files, {size}, {done}.")


# --- push and fetch -------------------------------------------------------------------------------


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
@click.option(
    "--license", metavar="NAME", default=LICENSE, help="License of the weights, for the model card."
)
@click.option("--private", is_flag=True, help="Make the repository private if it is created.")
@options.store
@options.force
def push(
    fit: str, to: str, without_chains: bool, license: str, private: bool, store: Path, force: bool
) -> None:
    """Share a trained model: weights, chains, recipe, results and a model card.

    FIT is an id of `jembench store list`, or the beginning of the name of a folder in runs/fits. TO
    is a repository of the Hugging Face Hub (hf://USER/NAME), a file that ends in .zip, or a new
    folder. The hub needs huggingface_hub: pip install "jembench[hub]". The records name the host,
    the command and the paths of the training.
    """
    if to.endswith(".zip"):
        check_file(Path(to), ".zip", force=force, option="TO")
    with plugins_aside():
        done = OpenStore(store).push(
            fit, to, chains=not without_chains, license=license, private=private
        )
    say(f"    fit  {done.fit}")
    say(f"written  {done.where}: {done.files} files, {decimal(done.size)}")
    say(f"   next  jembench fetch {to}")


@click.command(
    "fetch",
    epilog=options.examples(
        "jembench fetch hf://user/jem-digits",
        "jembench fetch hf://user/jem-digits@v1 --store theirs",
        "jembench fetch jem.zip baseline.zip",
    ),
)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@options.store
@options.listing_format
def fetch(sources: Sequence[str], store: Path, format: str) -> int:
    """Copy shared models into a store, and use them like those that were trained there.

    SOURCE is a repository (hf://USER/NAME, with @REVISION if need be), a zip archive or a folder
    that `jembench push` wrote. Every file is checked against its digest, and no code is loaded. The
    exit code is 1 if the store keeps another model or result of the same identity.
    """
    records, findings, differences = [], list[FileFinding](), Counter[str]()
    same = ["every id is the same here: nothing is trained or measured again"]
    for source in sources:
        with plugins_aside():
            fetched = OpenStore(store).fetch(source)
        if format != "json":
            say(f"    fit  {fetched.fit}, {fetched.results} results")
        findings += fetched.findings
        differences.update(fetched.differences or same)
        record = fetched._asdict()
        record["fit"] = dataclasses.asdict(fetched.fit)
        record["findings"] = list(map(FileFinding._asdict, fetched.findings))
        records.append(record)
    if format == "json":
        print_json(records)
        return _is_incomplete(findings)
    for line, count in differences.items():
        if count < len(sources):
            line = f"{line} ({count} of {len(sources)} models)"
        say(f"checked  {line}")
    print_findings(store, findings, "fits and files", format)
    return _is_incomplete(findings)
