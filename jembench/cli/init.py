"""``jembench init``: a commented file for an experiment."""

from pathlib import Path

import click

from jembench.cli import options
from jembench.cli.output import check_file, emit
from jembench.cli.parameters import SUITE
from jembench.errors import SpecError
from jembench.experiment import suite as suites

TEMPLATE = Path(__file__).with_name("experiment.toml")

EXAMPLES = options.examples(
    "jembench init hybrid > experiment.toml", "jembench init ood --output experiment.toml"
)


@click.command("init", epilog=EXAMPLES)
@click.argument("suite", metavar="SUITE", type=SUITE)
@options.output
@options.force
def init(suite: str, output: Path | None, force: bool) -> None:
    """Write an experiment's file on the basis of SUITE.

    It contains every field as a comment with an example. `jembench run FILE` runs the experiment.
    """
    if suite not in suites.names():
        suites.load(suite)  # its error names the nearest suite
        raise SpecError(
            f"{suite} is a file already. Copy it, or name a suite: {', '.join(suites.names())}."
        )
    text = TEMPLATE.read_text(encoding="utf-8").replace("SUITE", suite)
    if output:
        check_file(output, ".toml", force=force)
    emit(text, output, force=force)
