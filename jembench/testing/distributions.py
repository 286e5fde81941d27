"""The checks of everything that a distribution brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from jembench import testing
from jembench.api.listing import describe
from jembench.catalog import discovery, packages
from jembench.catalog.discovery import Component, Kind
from jembench.errors import PluginError, SpecError, unknown
from jembench.testing.checks import Check, CheckFailed, DoesNotApply

Checked = Kind | Literal["recipes", "references"]

CHECKS: dict[Checked, Callable[[str], list[Check]]] = {
    "models": testing.check_model,
    "samplers": testing.check_sampler,
    "metrics": testing.check_metric,
    "datasets": testing.check_dataset,
    "executors": testing.check_executor,
    "trackers": testing.check_tracker,
    "suites": testing.check_suite,
    "recipes": testing.check_recipe,
    "references": testing.check_reference,
}
"""The kinds that have checks. Components of other kinds are only imported."""

FOLDERS: dict[Checked, str] = {"suites": "", "recipes": "recipes", "references": "reference"}
"""The folders of a suite package that hold its files."""

IMPORTED = "can-be-imported", "The component can be imported, and its spec is complete."
BROUGHT = "brings-files", "A suite package brings TOML files, under names that no other one has."


def check_distribution(name: str) -> list[Check]:
    """The checks of every component of a distribution.

    Raises:
        SpecError: if it is not installed, or brings no component.
    """
    installed = discovery.catalogue().components
    own = [c for c in installed if c.distribution in (name, name.lower().replace("_", "-"))]
    if not own:
        raise unknown("distribution with plugins", name, {c.distribution for c in installed}, "jembench plugin list")
    return [check for component in own for check in _of_component(component)]


def check_component(kind: Checked, spec: str) -> list[Check]:
    """The checks of one component; one that fails if it cannot even be imported.

    Raises:
        SpecError: if there is no such component, or it has no such options.
    """
    try:
        return CHECKS[kind](spec)
    except PluginError as error:
        return [_known(IMPORTED, kind, spec, CheckFailed(str(error)))]


def _of_component(component: Component) -> Iterator[Check]:
    """The checks of a component by its name alone, if that is enough to make it."""
    kind, name, described = component.kind, component.name, describe(component)
    if kind == "suites" and not described.problem:
        yield from _of_files(component)
        return
    if kind not in CHECKS:
        yield _known(IMPORTED, kind, name, CheckFailed(described.problem) if described.problem else None)
        return
    if needed := [option.name for option in described.options if option.required]:
        message = (
            f"It needs {', '.join(needed)}. Check it by its spec: jembench plugin check --kind {kind} "
            f'"{name}:{needed[0]}=..."'
        )
        yield _known(IMPORTED, kind, name, DoesNotApply(message))
        return
    try:
        yield from check_component(kind, f"{component.distribution}/{name}")
    except SpecError as error:  # which here is the component's fault, not the user's
        yield _known(IMPORTED, kind, name, CheckFailed(str(error)))


def _of_files(component: Component) -> Iterator[Check]:
    """The checks of what a suite package brings."""
    brought = [(kind, name) for kind, folder in FOLDERS.items() for name in packages.files_of(component, folder)]
    if not brought:
        message = f"{component.module} holds no TOML file: neither a suite, nor a recipe or a reference in its folder."
        yield _known(BROUGHT, "suites", component.name, CheckFailed(message))
    for kind, name in brought:
        try:
            yield from check_component(kind, name)
        except SpecError as error:  # another package brings a file of the same name
            yield _known(BROUGHT, kind, name, CheckFailed(str(error)))


def _known(about: tuple[str, str], kind: str, component: str, found: Exception | None) -> Check:
    """A check whose result is known."""

    def run() -> None:
        if found:
            raise found

    return Check(*about, component, run, kind=kind)
