"""``jembench import``: weights from elsewhere, as a fit of the store."""

import shlex
import unicodedata
from collections.abc import Sequence
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
    "jembench import weights mine.pt --model my:Net --set-input bounds=0..1 --dataset cifar10",
    "jembench run hybrid --models jem-authors --dataset cifar10",
)


@click.command("import", epilog=EXAMPLES)
@click.argument("importer", metavar="IMPORTER", type=IMPORTER)
@click.argument("file", metavar="FILE", type=PATH)
@click.option(
    "--model", type=MODEL, help="Model that the weights belong to, if the file does not name it."
)
@click.option(
    "--set-input",
    "form",
    metavar="OPTIONS",
    help="Range, normalisation, size and outputs of the model, as options of the model `adapted`: "
    "bounds=0..1,mean=.485+.456+.406,std=.229+.224+.225,size=224,outputs=FILE.json.",
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
    form: str | None,
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
        done = import_fit(importer, file, model, dataset, name, place, form=form)
    content = done.content
    say(f"   model  {content.model}, {done.parameters:,} parameters, every name and shape fits")
    if content.sampler:
        say(f"  chains  {content.sampler}")
    if content.unused:
        names = ", ".join(content.unused[:SHOWN])
        if len(content.unused) > SHOWN:
            names += f" and {len(content.unused) - SHOWN} more"
        say(f"  unused  {names}")
    say(f" written  {place.fit_folder(done.fit.key)}")
    command = ["run", "hybrid", "--models", name, "--dataset", dataset]
    say(f"    next  {_with_code(ctx, command, content.model, store)}")


def _with_code(ctx: click.Context, command: Sequence[str], model: str, store: Path) -> str:
    """Return a command that names the code of a model.

    Code that only a record names does not run.
    """
    words = ["jembench", *command, *show.plugins(ctx)]
    code = [] if show.plugins(ctx) else list(trust.code_in(model))
    files = [Path(f"{path.partition(':')[0]}.py") for path in code]
    for file in dict.fromkeys(filter(Path.is_file, files)):
        words += ["--plugin", str(file)]
    if str(store) != "runs":
        words += ["--store", str(store)]
    line = shlex.join(words)
    if not all(map(Path.is_file, files)):
        line = f"{trust.VARIABLE}={','.join(code)} {line}"
    return line


def _as_stored(file: Path) -> Path:
    """Return a path in the Unicode form of the file on disk."""
    if file.name and not file.is_file():
        for form in ("NFC", "NFD"):
            stored = file.with_name(unicodedata.normalize(form, file.name))
            if stored.is_file():
                return stored
    return file
