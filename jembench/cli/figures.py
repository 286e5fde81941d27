"""``jembench figures``: the figures of a store's results."""

import sys
import traceback
from pathlib import Path
from typing import Any, get_args

import click

from jembench.api.arguments import selection
from jembench.cli import options
from jembench.cli.output import plugins_aside, say, write_file
from jembench.cli.parameters import PATH, Text
from jembench.drawing import Format, Style, inches
from jembench.errors import JembenchError, SpecError, error_text, unknown
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
    from jembench.report.figures import planning
    from jembench.report.layout import Report
    from jembench.report.published import published_numbers

    if other := set(formats) - set(get_args(Format)):
        raise unknown("image format", min(other), get_args(Format), "")
    style = Style(None if width is None else inches(width), titles)
    if output and output.exists() and not output.is_dir():
        raise SpecError(f"--output is {output}, which is a file. Name a folder.")
    place = Store(store)
    place.sweep()
    problems: list[str] = []
    notes: list[str] = []  # printed after the check of --figures, whose error stands alone

    def leave_out(problem: str) -> None:
        problems.append(problem)
        notes.append(problem)
        if ctx.obj.debug and sys.exc_info()[0]:
            traceback.print_exc()

    with plugins_aside():
        which = selection(**selected)
    cells, _, names, left_out = which.of(place, leave_out)
    notes += left_out
    published = published_numbers(None, which.suite.references if which.suite else ())
    report = Report(cells, published=published, names=names, read=place.read_arrays)
    planned, written = planning.figures(report, place, leave_out), 0
    for name in only or ():
        if not any(f"{one.stem}-".startswith(f"{name}-") for one in planned):
            raise unknown("figure of these results", name, [one.stem for one in planned], "")
    for note in notes:
        say(f"Left out: {note}", err=True)
    for one in planned:
        if only and not f"{one.stem}-".startswith(tuple(f"{name}-" for name in only)):
            continue
        try:
            files = planning.render(one, formats, style)
        except Exception as error:  # a figure that cannot be drawn stops no other
            reason = " ".join(error_text(error).split())
            leave_out(f"the figure {one.stem} cannot be drawn: {reason}")
            say(f"Left out: {notes[-1]}", err=True)
            if isinstance(error, JembenchError) and not only:
                problems.pop()  # the store is in order: only the images of its data are not here
            continue
        for name, content in files.items():
            path = (output or store / "figures") / name
            write_file(path, content, force=force or output is None)
            say(path)
            written += 1
    if not written and not problems:
        say(which.nothing(store, "results that have figures"))
    return int(bool(problems))
