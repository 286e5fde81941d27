"""``jembench plugin``: the conformance checks of plugins, and new plugins."""

import itertools
import shlex
from collections import Counter
from pathlib import Path

import click

from jembench.catalog import discovery, registry
from jembench.cli import options
from jembench.cli.output import narrow_width, plugins_aside, print_json, print_table, say
from jembench.cli.parameters import PATH, SUBJECT
from jembench.testing import DIGITS, scaffold
from jembench.testing.checks import perform
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
    with plugins_aside():
        data = (
            registry.resolve("datasets", dataset).make().spec if dataset != DIGITS.name else DIGITS
        )
        checks = [
            check_component(kind, name, data) if kind else check_distribution(name, data)
            for name in subjects
        ]
        results = [perform(check) for group in checks for check in group]
    if format == "json":
        keys = ("kind", "component", "check", "promise", "status", "message")
        rows = [
            (c.kind, c.spec, c.name, c.promise, status, message) for c, status, message in results
        ]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        for (kind, spec), group in itertools.groupby(
            results, lambda result: (result.check.kind, result.check.spec)
        ):
            say(f"{discovery.singular(kind)} {spec}")
            table = [
                (c.name, status, text)
                for c, status, text in group
                if not text.startswith("See the check")
            ]
            print_table(("check", "status", "message"), table, narrow_width())
        counts = Counter(result.status for result in results)
        say(", ".join(f"{count} {status}" for status, count in counts.most_common()))
        say(
            f"Images of {data.name}, {data.shape}, {data.num_classes} classes; --dataset chooses "
            "others."
        )
    return int(any(result.status == "failed" for result in results))


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
    for command in (
        f"pip install -e {shlex.quote(f'{folder}[test]')}",
        *scaffold.commands(kind, name),
    ):
        say(f"  {command}")
