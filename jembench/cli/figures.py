"""``jembench figures``: the figures of a store's results."""

import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import click

from jembench.api.arguments import selection
from jembench.api.figures import LeftOut, draw_figures
from jembench.cli import options
from jembench.cli.output import plugins_aside, say, write_file
from jembench.cli.parameters import PATH, Text
from jembench.drawing import Format
from jembench.errors import SpecError
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench figures",
    "jembench figures ood --output paper/figures",
    "jembench figures --figures reliability --format pdf --width column --no-titles",
)


@click.command("figures", epilog=EXAMPLES)
@options.selected
@click.option(
    "--output", type=PATH, metavar="FOLDER", help="Output folder. By default figures/ in the store."
)
@options.force
@click.option(
    "--format",
    "formats",
    type=Text("LIST", lambda: get_args(Format), several=True),
    default="png,svg",
    help="Image formats: png, svg, pdf.",
)
@click.option(
    "--figures",
    "only",
    type=Text("NAMES", several=True),
    help="Figures, by name or the beginning of it: reliability,samples-digits.",
)
@click.option(
    "--width",
    metavar="WIDTH",
    help="Width: column or page of a paper in two columns, or a length (5.5in).",
)
@click.option(
    "--titles/--no-titles",
    default=True,
    help="Draw the titles of figures, or leave them to the caption.",
)
@options.store
@click.pass_context
def figures(
    ctx: click.Context,
    /,
    output: Path | None,
    force: bool,
    formats: list[Format],
    only: list[str] | None,
    width: str | None,
    titles: bool,
    store: Path,
    **selected: Any,
) -> int:
    """Draw the results of a store, each figure with its numbers as CSV.

    Draws every figure that the store has results for, or those of the metrics of SUITE. No model is
    run: if a figure is missing, its metric was not evaluated.
    """
    if output and output.exists() and not output.is_dir():
        raise SpecError(f"--output is {output}, which is a file. Name a folder.")
    with plugins_aside():
        which = selection(**selected)
    folder, has_problems = output or store / "figures", False
    endings: dict[str, list[str]] = defaultdict(list)  # of the files of each figure
    for item in draw_figures(
        Store(store), which, formats=formats, only=only or (), width=width, titles=titles
    ):
        if isinstance(item, LeftOut):
            if ctx.obj.debug and item.error:
                traceback.print_exception(item.error)
            say(f"Left out: {item.sentence}", err=True)
            has_problems |= item.is_problem
        else:
            write_file(folder / item.name, item.content, force=force or output is None)
            figure, ending = item.name.rsplit(".", 1)
            endings[figure].append(ending)
            if ending == "csv":  # a figure's last file
                say(f"{folder / figure}: {', '.join(endings[figure])}")
    if not endings and not has_problems:
        say(which.nothing(store, "results that have figures"))
    return int(has_problems)
