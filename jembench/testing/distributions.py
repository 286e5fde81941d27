"""The checks of every component of a distribution."""

from collections.abc import Callable, Mapping

from jembench import testing
from jembench.api.listing import describe
from jembench.catalog import discovery
from jembench.catalog.discovery import Component
from jembench.errors import PluginError, SpecError, unknown
from jembench.interfaces import DataSpec
from jembench.testing.checks import Check, CheckFailed, DoesNotApply

CHECKS: Mapping[str, Callable[[str, DataSpec], list[Check]]] = {
    "models": testing.check_model,
    "samplers": testing.check_sampler,
    "metrics": lambda spec, data: testing.check_metric(spec),
    "datasets": lambda spec, data: testing.check_dataset(spec),
}
"""The function that returns checks, by kind. Components of other kinds are only imported."""


def check_distribution(name: str, data: DataSpec) -> list[Check]:
    """Return the checks of every component of a distribution.

    Models and samplers are checked for images of ``data``.

    Raises:
        SpecError: if the distribution is not installed, or has no component.
    """
    installed = discovery.catalogue().components
    own = [c for c in installed if c.distribution in (name, name.lower().replace("_", "-"))]
    if not own:
        names = {c.distribution for c in installed}
        raise unknown("distribution with plugins", name, names, "jembench list")
    checks = list[Check]()
    for component in own:
        checks += _check_installed(component, data)
    return checks


def check_component(kind: str, spec: str, data: DataSpec) -> list[Check]:
    """Return a component's checks, or one failed check of the import.

    Raises:
        SpecError: if there is no such component, or it has no such options.
    """
    try:
        return CHECKS[kind](spec, data)
    except PluginError as error:
        return [_import_check(kind, spec, CheckFailed(str(error)))]


def _check_installed(component: Component, data: DataSpec) -> list[Check]:
    """Return the checks of a component with default options.

    A component that needs options has one skipped check.
    """
    kind, name, described = component.kind, component.name, describe(component)
    if described.problem:
        return [_import_check(kind, name, CheckFailed(described.problem))]
    if kind not in CHECKS:
        return [_import_check(kind, name, None)]
    needed = [option["name"] for option in described.fields["options"] if option["required"]]
    if needed:
        command = f'jembench plugin check --kind {kind} "{name}:{needed[0]}=..."'
        reason = f"It needs {', '.join(needed)}. Check it by its spec: {command}"
        return [_import_check(kind, name, DoesNotApply(reason))]
    try:
        return CHECKS[kind](f"{component.distribution}/{name}", data)
    except (PluginError, SpecError) as error:
        return [_import_check(kind, name, CheckFailed(str(error)))]


def _import_check(kind: str, name: str, problem: Exception | None) -> Check:
    """Return the check of the import, with its known outcome."""

    def run() -> None:
        if problem:
            raise problem

    return Check(
        "can-be-imported",
        "The component can be imported, and its spec is complete.",
        kind,
        name,
        run,
    )
