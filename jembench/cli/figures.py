"""``jembench figures``: draw what a store holds."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from jembench.cli import options
from jembench.cli.output import write_file
from jembench.cli.parameters import PATH, Text
from jembench.drawing import PLAIN, Format, Style, inches
from jembench.errors import SpecError, error_text, printable, unknown
from jembench.report.names import NO_NAMES, Names
from jembench.report.selection import Selection, nothing
from jembench.store.outcome import Cell
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench figures",
    "jembench figures ood --output paper/figures",
    "jembench figures --figures reliability --format pdf --width column --no-titles",
)


@click.command("figures", epilog=EXAMPLES)
@options.selected
@click.option("--output", type=PATH, metavar="FOLDER", help="Output folder. By default figures/ in the store.")
@options.force
@click.option("--format", "formats", default="png,svg", metavar="LIST", help="Image formats: png, svg, pdf.")
@click.option(
    "--figures",
    "only",
    type=Text("NAMES", several=True),
    help="Figures, by their names or how these begin: reliability,samples-digits.",
)
@options.width
@click.option("--titles/--no-titles", default=True, help="Draw the titles of figures, or leave them to the caption.")
@options.store
@click.pass_context
def figures(
    ctx: click.Context,
    /,
    which: Selection,
    output: Path | None,
    force: bool,
    formats: str,
    only: list[str] | None,
    width: str | None,
    titles: bool,
    store: Path,
) -> int:
    """Draw the results of a store, each figure with its numbers as CSV.

    Draws every figure that the store has results for, or those of the metrics of SUITE. No model is run: if a figure is
    missing, its metric was not evaluated.
    """
    wanted = _formats(formats)
    style = Style(None if width is None else inches(width), titles)
    place = Store(store)
    place.sweep()
    left_out = LeftOut(ctx.obj.debug)
    found = which.of(place, left_out)
    for note in found.left_out:
        click.echo(f"Left out: {note}", err=True)
    written = 0
    folder, force = output or store / "figures", force or output is None
    how: dict[str, Any] = {"training": True, "force": force, "names": found.names, "style": style, "only": only}
    for path in draw(found.cells, place, folder, wanted, left_out, **how):
        click.echo(path)
        written += 1
    if not written and not left_out.count:
        suite = which.file or (which.suite.name if which.suite else None)
        click.echo(nothing(store, suite, which.limit, "results that have figures"))
    return int(left_out.count > 0)


@dataclass
class LeftOut:
    """Prints a line for each thing that could not be read or drawn."""

    debug: bool
    count: int = 0

    def __call__(self, problem: str) -> None:
        self.count += 1
        if self.debug and sys.exc_info()[0]:
            traceback.print_exc()
        click.echo(f"Left out: {printable(problem)}", err=True)


def _formats(text: str) -> list[Format]:
    known = get_args(Format)
    asked = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not set(asked) <= set(known):
        raise SpecError(f"--format is {text!r}; it must be of {', '.join(known)}, several with commas between them.")
    return [format for format in known if format in asked]


def draw(
    cells: Sequence[Cell],
    store: Store,
    folder: Path,
    formats: Sequence[Format],
    left_out: LeftOut,
    *,
    training: bool = False,
    force: bool = True,
    names: Names = NO_NAMES,
    style: Style = PLAIN,
    only: Sequence[str] | None = None,
) -> Iterable[Path]:
    """Draw the results of some cells and return the files. A figure that cannot be drawn stops no other.

    Args:
        training: draw how the models were trained as well.
        force: write over whatever is there.
        names: display names by canonical specs and recipes.
        style: of all figures.
        only: the names of figures, or how they begin; None: all.

    Raises:
        SpecError: if there is no such figure.
        StoreError: if they cannot be written.
    """
    from jembench.report.figures import catalogue
    from jembench.report.figures.planned import render

    stems: list[str] = []
    for planned in catalogue.figures(cells, store.read_arrays, left_out, store.history if training else None, names):
        stems.append(planned.stem)
        if only is not None and not any(_is_named(planned.stem, name) for name in only):
            continue
        try:
            files = render(planned, formats, style)
        except Exception as error:
            cause = " ".join(error_text(error).split())
            left_out(f"the figure {planned.stem} cannot be drawn: {cause}")
            continue
        for name, content in files.items():
            write_file(folder / name, content, force=force)
            yield folder / name
    for name in only or ():
        if not any(_is_named(stem, name) for stem in stems):
            raise unknown("figure of these results", name, stems, "")


def _is_named(stem: str, name: str) -> bool:
    return f"{stem}-".startswith(f"{name}-")
