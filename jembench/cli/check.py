"""``jembench check``: a gate for results, by a stored baseline and by claims."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from jembench.api import check as api
from jembench.cli import options, show
from jembench.cli.output import check_ending, check_file, plugins_aside
from jembench.cli.parameters import PATH

EXAMPLES = options.examples(
    "jembench check baseline",
    "jembench check baseline experiment.toml --tolerance accuracy=1,fid=0.5",
    "jembench check baseline experiment.toml --format github >> $GITHUB_STEP_SUMMARY",
)


@click.command("check", epilog=EXAMPLES)
@click.argument("baseline", metavar="BASELINE", type=PATH)
@options.selected
@options.tolerance
@options.strict
@options.store
@options.workers
@options.report_format
@options.output
@options.force
def check(
    baseline: Path,
    tolerance: Mapping[str, float] | None,
    strict: bool,
    output: Path | None,
    force: bool,
    **given: Any,
) -> int:
    """Check that no result is worse than a baseline's, and that claims hold.

    BASELINE is a store. With SUITE or FILE, what the store lacks of it is trained and measured
    first, and its claims are judged; without, the store's results are taken as they are. A value is
    worse if its loss is significant after Holm's adjustment and above the tolerance.

    The exit code is 0 if no value is worse and no claim fails, 1 if one is or does, and 2 if one
    could not be judged: it is missing, or was measured under another protocol.
    """
    command = options.run_command(given)
    if output:  # refused now, not after the work
        check_ending(output, command.format)
        check_file(output, output.suffix, force=force)
    how = command.how._asdict()
    del how["trackers"]
    with plugins_aside():
        checked = api.check(
            baseline, store=command.store, tolerance=tolerance or {}, strict=strict, **how, **given
        )
    return show.check(checked, command.format, output, force=force)
