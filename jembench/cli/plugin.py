"""``jembench plugin``: the conformance checks of plugins, and new plugins."""

import itertools
import operator
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from jembench.catalog import discovery, registry
from jembench.cli import options
from jembench.cli.output import narrow_width, plugins_aside, print_json, print_table, say
from jembench.cli.parameters import PATH, SUBJECT
from jembench.testing import DIGITS, scaffold
from jembench.testing.checks import Check, Result, perform
from jembench.testing.distributions import CHECKS, check_component, check_distribution

CHECK_EXAMPLES = options.examples(
    "jembench plugin check jembench-jem",
    'jembench plugin check --kind models "my-ebm:hidden=8"',
    "jembench plugin check --plugin my_ebm.py --kind models my-ebm --dataset cifar10",
)


@click.command("check", epilog=CHECK_EXAMPLES)
@click.argument("subjects", metavar="PACKAGE...", type=SUBJECT, nargs=-1, required=True)
@click.option(
    "--kind",
    type=click.Choice(list(CHECKS)),
    help="Check single components of this kind, named by their specs.",
)
@click.option(
    "--dataset",
    default="digits",
    help="Dataset with the shape and classes for models and samplers.",
)
@options.listing_format
def check(subjects: tuple[str, ...], kind: str | None, dataset: str, format: str) -> int:
    """Check the components of a distribution.

    Models, samplers, metrics and datasets are checked by the conformance kit, and others imported.

    With --kind, PACKAGE is a spec instead. The exit code is 1 if a check fails.
    """
    data, checks = DIGITS, list[Check]()
    with plugins_aside():
        if dataset != DIGITS.name:
            data = registry.resolve("datasets", dataset).make().spec
        for name in subjects:
            if kind:
                checks += check_component(kind, name, data)
            else:
                checks += check_distribution(name, data)
        results = list(map(perform, checks))
    counts = Counter(result.status for result in results)
    if format == "json":
        print_json(list(map(_record, results)))
    else:
        _print_results(results)
        say(", ".join(f"{count} {status}" for status, count in counts.most_common()))
        say(
            f"Images of {data.name}, {data.shape}, {data.num_classes} classes; --dataset chooses "
            "others."
        )
    return int("failed" in counts)


def _record(result: Result) -> dict[str, str]:
    check, status, message = result
    return {
        "kind": check.kind,
        "component": check.spec,
        "check": check.name,
        "promise": check.promise,
        "status": status,
        "message": message,
    }


def _print_results(results: Sequence[Result]) -> None:
    """Print a table for each component.

    Checks that another check explains are left out.
    """
    component = operator.attrgetter("check.kind", "check.spec")
    for (kind, spec), group in itertools.groupby(results, component):
        say(f"{discovery.singular(kind)} {spec}")
        rows = []
        for check, status, message in group:
            if not message.startswith("See the check"):
                rows.append((check.name, status, message))
        print_table(("check", "status", "message"), rows, narrow_width())


NEW_EXAMPLES = options.examples(
    "jembench plugin new model my-ebm",
    "jembench plugin new sampler my-sampler --folder ~/code/my-sampler",
    "jembench plugin new suite my-suite",
)


@click.command("new", epilog=NEW_EXAMPLES)
@click.argument("kind", metavar="KIND", type=click.Choice(list(scaffold.KINDS)))
@click.argument("name", metavar="NAME")
@click.option(
    "--folder",
    type=PATH,
    metavar="PATH",
    help="Output folder. By default NAME in the current folder.",
)
def new(kind: str, name: str, folder: Path | None) -> None:
    """Write a complete distribution: a small component that works, its tests and its packaging.

    KIND is model, sampler, metric, dataset, tracker or suite. NAME names the component and the
    distribution: my-ebm.
    """
    folder = folder or Path(name)
    for path in scaffold.write(kind, name, folder):
        say(path)
    say(
        "\nInstall it, check it and use it; then make it yours, beginning with "
        f"{folder / 'README.md'}:\n"
    )
    install = f"pip install -e {shlex.quote(f'{folder}[test]')}"
    for command in (install, *scaffold.commands(kind, name)):
        say(f"  {command}")
