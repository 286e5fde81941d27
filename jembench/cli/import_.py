"""``jembench import``: a model of weights that were trained elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.catalog import trust
from jembench.catalog.spec import Spec
from jembench.cli import options, show
from jembench.cli.output import check_file, plugins_aside
from jembench.cli.parameters import IMPORTER, MODEL, PATH
from jembench.errors import SpecError, printable
from jembench.files import sweep_beside

if TYPE_CHECKING:
    from jembench.interfaces import Import
    from jembench.models.adapters.imported import Imported

SHOWN = 5
"""Names of what is not used, of however many."""

EXAMPLES = options.examples(
    "jembench import jem CIFAR10_MODEL.pt --dataset cifar10",
    "jembench import weights resnet.pt --model baseline:net=wrn-28-10 --dataset cifar10",
    "jembench run hybrid --models imported:file=CIFAR10_MODEL.safetensors --dataset cifar10",
)


@click.command("import", epilog=EXAMPLES)
@click.argument("importer", metavar="IMPORTER", type=IMPORTER)
@click.argument("file", metavar="FILE", type=PATH)
@click.option("--model", type=MODEL, help="Model that the weights belong to, if the file does not name it.")
@options.dataset
@click.option(
    "--output",
    type=PATH,
    metavar="FILE.safetensors",
    help="Output file. By default FILE with the extension .safetensors. An existing file is kept, unless it was "
    "imported from the same FILE.",
)
@options.force
@click.pass_context
def import_(
    ctx: click.Context,
    importer: str,
    file: Path,
    model: str | None,
    dataset: str,
    output: Path | None,
    force: bool,
) -> None:
    """Import weights that were trained elsewhere.

    IMPORTER is the format of FILE; `jembench list importers` lists them. All names, shapes and dtypes must match:
    mismatches are listed, and then nothing is written. No code in the file is run. The imported model is evaluated like
    any other, as imported:file=FILE.safetensors.
    """
    from jembench.models.adapters import imported

    target = _target(file, output, force)
    sweep_beside(target)
    with plugins_aside():
        done = imported.import_file(importer, file, model, dataset, target)
    for line in _told(done, target):
        click.echo(printable(line))
    click.echo(f"    next  {_next(ctx, done.found, target, dataset)}")


def _target(file: Path, output: Path | None, force: bool) -> Path:
    """Where the model goes.

    Raises:
        SpecError: if there is nothing to read, or the file exists.
    """
    if not file.is_file():
        raise SpecError(f"There is no file {file}. Check the path.")
    target = output or file.with_suffix(".safetensors")
    if target.exists() and target.samefile(file):
        raise SpecError(f"{target} is the file that is imported. Name another file with --output.")
    check_file(target, ".safetensors", force=force)
    return target


def _told(done: Imported, target: Path) -> list[str]:
    found = done.found
    lines = [f"   model  {found.model}, {done.parameters:,} parameters, every name and shape fits"]
    if found.chains:
        lines.append(f"  chains  {found.chains.sampler}")
    if found.unused:
        more = f" and {len(found.unused) - SHOWN} more" if len(found.unused) > SHOWN else ""
        lines.append(f"  unused  {', '.join(found.unused[:SHOWN])}{more}")
    return [*lines, f" written  {target}"]


def _next(ctx: click.Context, found: Import, target: Path, dataset: str) -> str:
    """The command that measures it. Code of the user's own is named there, since the file alone may not name it."""
    spec = Spec("imported", (("file", str(target)),))
    code = "" if show.plugins(ctx) else ",".join(trust.code_in(found.model))
    words = ["jembench", "run", "hybrid", "--models", str(spec), "--dataset", dataset, *show.plugins(ctx)]
    return f"{trust.VARIABLE}={code} {shlex.join(words)}" if code else shlex.join(words)
