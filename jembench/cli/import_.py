"""``jembench import``: weights that were trained elsewhere, as a fit of the store."""

import shlex
import unicodedata
from pathlib import Path

import click

from jembench.catalog import trust
from jembench.cli import options, show
from jembench.cli.output import plugins_aside, say
from jembench.cli.parameters import IMPORTER, MODEL, PATH
from jembench.errors import SpecError
from jembench.store.store import Store

SHOWN = 5
"""The largest number of unused names that are printed."""

EXAMPLES = options.examples(
    "jembench import jem CIFAR10_MODEL.pt --dataset cifar10 --name jem-authors",
    "jembench import weights resnet.pt --model baseline:net=wrn-28-10 --dataset cifar10",
    "jembench run hybrid --models jem-authors --dataset cifar10",
)


@click.command("import", epilog=EXAMPLES)
@click.argument("importer", metavar="IMPORTER", type=IMPORTER)
@click.argument("file", metavar="FILE", type=PATH)
@click.option(
    "--model", type=MODEL, help="Model that the weights belong to, if the file does not name it."
)
@options.dataset
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the model in --models. By default that of FILE, without its ending.",
)
@options.store
@click.pass_context
def import_(
    ctx: click.Context,
    importer: str,
    file: Path,
    model: str | None,
    dataset: str,
    name: str | None,
    store: Path,
) -> None:
    """Import weights that were trained elsewhere into the store.

    IMPORTER is the format of FILE; `jembench list importers` lists them. All names, shapes and
    dtypes must match: mismatches are listed, and then nothing is written. No code in the file is
    run. The weights become a fit. Other commands take NAME as a model, and measure it without
    training.
    """
    from jembench.running.imports import import_fit

    file = _as_stored(file)
    if not file.is_file():
        raise SpecError(f"There is no file {file}. Check the path.")
    place, name = Store(store), unicodedata.normalize("NFC", name or file.stem)
    with plugins_aside():
        done = import_fit(importer, file, model, dataset, name, place)
    found = done.content
    lines = [f"   model  {found.model}, {done.parameters:,} parameters, every name and shape fits"]
    if found.sampler:
        lines.append(f"  chains  {found.sampler}")
    if found.unused:
        more = f" and {len(found.unused) - SHOWN} more" if len(found.unused) > SHOWN else ""
        lines.append(f"  unused  {', '.join(found.unused[:SHOWN])}{more}")
    lines.append(f" written  {place.fit_folder(done.fit.key)}")
    # code of the user's own is named in the next command, since a record alone may not name it
    code = [] if show.plugins(ctx) else list(trust.code_in(found.model))
    files = [file for one in code if (file := Path(f"{one.partition(':')[0]}.py")).is_file()]
    following = [
        "jembench",
        "run",
        "hybrid",
        "--models",
        name,
        "--dataset",
        dataset,
        *show.plugins(ctx),
    ]
    following += [word for file in dict.fromkeys(files) for word in ("--plugin", str(file))]
    following += ["--store", str(store)] if str(store) != "runs" else []
    unnamed = f"{trust.VARIABLE}={','.join(code)} " if len(files) < len(code) else ""
    lines.append(f"    next  {unnamed}{shlex.join(following)}")
    for line in lines:
        say(line)


def _as_stored(file: Path) -> Path:
    """Return a path with the name that the file has on disk, in whichever Unicode form it is."""
    forms = (unicodedata.normalize(form, file.name) for form in ("NFC", "NFD"))
    there = [file, *(file.with_name(name) for name in forms)] if file.name else []
    return next((path for path in there if path.is_file()), file)
