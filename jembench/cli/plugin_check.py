"""``jembench plugin check``: whether components keep what every one of their kind promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import click

from jembench import testing
from jembench.catalog import discovery, packages
from jembench.catalog.discovery import Component, Kind
from jembench.cli import options
from jembench.cli.components import describe
from jembench.cli.output import plugins_aside, print_json, print_table
from jembench.errors import PluginError, SpecError, unknown
from jembench.testing import Check, perform

Checked = Kind | Literal["recipes", "references"]

CHECKS: dict[Checked, Callable[[str], list[Check]]] = {
    "models": testing.check_model,
    "samplers": testing.check_sampler,
    "metrics": testing.check_metric,
    "datasets": testing.check_dataset,
    "suites": testing.check_suite,
    "recipes": testing.check_recipe,
    "references": testing.check_reference,
}
"""The kinds that have checks. Components of other kinds are only imported."""

FOLDERS: dict[Checked, str] = {"suites": "", "recipes": "recipes", "references": "reference"}
"""The folders of a suite package that hold its files."""

EXAMPLES = options.examples(
    "jembench plugin check jembench-jem",
    'jembench plugin check --kind models "my-ebm:hidden=8"',
    "jembench plugin check --plugin my_ebm.py --kind models my-ebm",
)


class Row(NamedTuple):
    """The result of one check of one component."""

    kind: Checked
    component: str
    check: str
    promise: str
    status: str
    message: str
    is_fine: bool


@click.command("check", epilog=EXAMPLES)
@click.argument("subjects", metavar="PACKAGE...", nargs=-1, required=True)
@click.option(
    "--kind", type=click.Choice(list(CHECKS)), help="Check single components of this kind, named by their specs."
)
@options.listing_format
def check(subjects: tuple[str, ...], kind: Checked | None, format: str) -> int:
    """Check every model, sampler, metric, dataset, suite and recipe of a distribution.

    With --kind, PACKAGE is a spec instead, or the name of a suite or a recipe. The exit code is 1 if a check fails
    unexpectedly, or passes although it is declared to fail.
    """
    look = partial(_check, kind) if kind else _check_all
    with plugins_aside():
        rows = [row for subject in subjects for row in look(subject)]
    if format == "json":
        print_json([row._asdict() for row in rows])
    else:
        _print(rows)
    return 0 if all(row.is_fine for row in rows) else 1


def _check_all(name: str) -> list[Row]:
    """Every check of what a distribution brings.

    Raises:
        SpecError: if it is not installed, or brings no component.
    """
    installed = discovery.catalogue().components
    own = [c for c in installed if c.distribution in (name, name.lower().replace("_", "-"))]
    if not own:
        raise unknown("distribution with plugins", name, {c.distribution for c in installed}, "jembench plugin list")
    return [row for component in own for row in _check_component(component)]


def _check_component(component: Component) -> list[Row]:
    """Every check of a component by its name alone, if that is enough to make it."""
    described = describe(component)
    if component.kind == "suites" and not described.problem:
        return list(_check_files(component))
    if component.kind not in CHECKS:
        status = "failed" if described.problem else "passed"
        return [Row(component.kind, component.name, *_IMPORTED, status, described.problem, not described.problem)]
    needed = [option.name for option in described.options if option.required]
    if not needed:
        try:
            return _check(component.kind, f"{component.distribution}/{component.name}")
        except SpecError as error:  # which here is the component's fault, not the user's
            return [Row(component.kind, component.name, *_IMPORTED, "failed", str(error), is_fine=False)]
    message = (
        f"It needs {', '.join(needed)}. Check it by its spec: jembench plugin check --kind {component.kind} "
        f'"{component.name}:{needed[0]}=..."'
    )
    return [Row(component.kind, component.name, *_IMPORTED, "skipped", message, is_fine=True)]


def _check_files(component: Component) -> Iterator[Row]:
    """Every check of what a suite package brings."""
    brought = [(kind, name) for kind, folder in FOLDERS.items() for name in packages.files_of(component, folder)]
    if not brought:
        message = f"{component.module} holds no TOML file: neither a suite, nor a recipe or a reference in its folder."
        yield Row("suites", component.name, *_BROUGHT, "failed", message, is_fine=False)
    for kind, name in brought:
        try:
            yield from _check(kind, name)
        except SpecError as error:  # another package brings a file of the same name
            yield Row(kind, name, *_BROUGHT, "failed", str(error), is_fine=False)


def _check(kind: Checked, spec: str) -> list[Row]:
    """Every check of a component; one that fails if it cannot even be imported.

    Raises:
        SpecError: if there is no such component, or it has no such options.
    """
    try:
        checks = CHECKS[kind](spec)
    except PluginError as error:
        return [Row(kind, spec, *_IMPORTED, "failed", str(error), is_fine=False)]
    results = map(perform, checks)
    return [Row(kind, r.check.spec, r.check.name, r.check.promise, r.status, r.message, r.is_fine) for r in results]


_IMPORTED = "can-be-imported", "The component can be imported, and its spec is complete."
"""The first check of all."""

_BROUGHT = "brings-files", "A suite package brings TOML files, under names that no other one has."
"""The first check of a suite package."""


def _print(rows: Sequence[Row]) -> None:
    cells = [(f"{discovery.singular(row.kind)} {row.component}", row.check, row.status, row.message) for row in rows]
    print_table(("component", "check", "status", "message"), cells)
    counts = Counter(row.status for row in rows)
    click.echo(", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=lambda item: -item[1])))
