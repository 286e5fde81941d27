"""Installed components, found through entry points and loaded on use.

Finding them imports nothing. Core's components are registered in the same groups as plugins'.
Import paths are subject to :mod:`jembench.catalog.trust`.
"""

import configparser
import difflib
import importlib
import importlib.metadata
import importlib.resources
import os
import re
import sys
import tomllib
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import entrypoints

from jembench import files
from jembench.catalog import trust
from jembench.catalog.spec import Spec
from jembench.errors import Incompatible, JembenchError, PluginError, SpecError, error_text, unknown
from jembench.interfaces import API
from jembench.stopping import is_request

_Measured = Literal[
    "models", "samplers", "metrics", "datasets", "ood_sets", "features", "suites", "importers"
]
_Around = Literal["executors", "trackers", "formats", "figures"]
_Training = Literal["optimizers", "schedules", "augmentations", "starts", "scores", "adaptations"]
Kind = Literal[_Measured, _Around, _Training]
KINDS: tuple[Kind, ...] = get_args(Kind)

LIVE = "live"
"""The distribution of objects that only this process has, such as arrays."""


class Component(NamedTuple):
    """A component's name and place; it is not imported."""

    kind: Kind
    name: str
    distribution: str  # "" for an import path
    version: str
    module: str
    attribute: str  # "" for a module: suites
    api: int = API  # version of the plugin interface that its distribution states; 0: none

    @property
    def target(self) -> str:
        """The entry point's value: ``module:attribute``."""
        return f"{self.module}:{self.attribute}" if self.attribute else self.module

    def __str__(self) -> str:
        if not self.distribution:
            return self.target
        return f"{self.distribution} {self.version} [{self.name} = {self.target}]"


class Unreadable(NamedTuple):
    """A distribution with entry points that cannot be read."""

    distribution: str
    problem: str


class Catalogue(NamedTuple):
    """All components, and the distributions that cannot be read."""

    components: tuple[Component, ...]
    unreadable: tuple[Unreadable, ...]


@cache
def catalogue() -> Catalogue:
    """Read the entry points of every installed distribution, once.

    They are read again after ``catalogue.cache_clear()``.
    """
    readable: list[Component] = list(added)
    unreadable: list[Unreadable] = []
    # without "", the current folder, which is no installation
    for distribution in importlib.metadata.distributions(path=list(filter(None, sys.path))):
        parser = entrypoints.CaseSensitiveConfigParser(delimiters=("=",), interpolation=None)
        try:
            parser.read_string(distribution.read_text("entry_points.txt") or "")
            stated = parser.options("jembench.api") if "jembench.api" in parser else []
            api = max(map(int, stated), default=0)
            kinds, problem = [kind for kind in KINDS if f"jembench.{kind}" in parser], ""
        except (configparser.Error, ValueError) as error:  # ValueError: also no UTF-8
            kinds, problem = [], " ".join(str(error).split())
        if not kinds and not problem:
            continue  # its metadata stays unread
        name, version = "(without a name)", ""
        # metadata of a damaged or interrupted installation
        with suppress(UnicodeDecodeError, FileNotFoundError, KeyError):
            name = distribution.metadata["Name"] or name
            version = distribution.metadata["Version"] or ""
        if problem:
            unreadable.append(Unreadable(name, problem))
        entries = [(kind, *entry) for kind in kinds for entry in parser[f"jembench.{kind}"].items()]
        for kind, key, target in entries:
            try:
                point = entrypoints.EntryPoint.from_string(target, key)
            except entrypoints.BadEntryPoint:
                problem = f"{key} = {target} in jembench.{kind} is not module:attribute"
                unreadable.append(Unreadable(name, problem))
                continue
            place = (point.module_name, point.object_name or "")
            readable.append(Component(kind, key, _normalised(name), version, *place, api))
    # if a distribution is on sys.path twice, the first counts
    first: dict[tuple[int, str, str], Component] = {}
    for component in readable:
        key_of = (KINDS.index(component.kind), component.name, component.distribution)
        first.setdefault(key_of, component)
    return Catalogue(tuple(first[key] for key in sorted(first)), tuple(unreadable))


def _normalised(distribution: str) -> str:
    """Return one spelling for names in metadata and in folders.

    Examples are ``Jembench-JEM`` and ``jembench_jem``.
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


added: list[Component] = []
"""The components of plugin files of this process (:mod:`jembench.catalog.plugin_files`)."""


def components(kind: Kind) -> list[Component]:
    """List the components of one kind, sorted by name."""
    return [component for component in catalogue().components if component.kind == kind]


def find(kind: Kind, name: str) -> Component:
    """Return the component of a name: an entry point, ``distribution/name`` or an import path.

    Raises:
        SpecError: if no component or several have the name, or neither the user nor installed code
            named the import path (:mod:`jembench.catalog.trust`).
    """
    if ":" in name:
        if Spec(name).name != name:
            raise SpecError(f"{name!r} is not an import path. Write package.module:function.")
        trust.check(name)
        module, attribute = name.split(":", 1)
        return Component(kind, name, "", "", module, attribute)
    distribution, _, bare = name.rpartition("/")
    wanted = _normalised(distribution)
    matches = []
    for component in components(kind):
        if component.name == bare and wanted in ("", _normalised(component.distribution)):
            matches.append(component)
    if not matches:
        if kind in ("datasets", "ood_sets") and os.path.isdir(name):  # noqa: PTH112, also for a name that is too long
            raise SpecError(
                f"There is no {singular(kind)} named {name!r}. For its images write "
                f"imagefolder:root={name}."
            )
        names = {component.name for component in components(kind)}
        if distribution:
            names = {f"{component.distribution}/{component.name}" for component in components(kind)}
        raise plugin_of(kind, bare) or unknown(singular(kind), name, names, f"jembench list {kind}")
    if len(matches) > 1:
        candidates = ", ".join(f"{c.distribution}/{c.name} ({c.target})" for c in matches)
        raise SpecError(
            f"The {singular(kind)} {name!r} is offered by more than one distribution: "
            f"{candidates}. Write one of these names, or uninstall or rename the "
            "other component."
        )
    return matches[0]


def plugin_of(kind: str, name: str) -> SpecError | None:
    """Return the error for a name from a plugin that is not installed.

    None if no plugin of this repository has the name, or the plugin is installed.

    Args:
        kind: of components, or "recipes".
        name: of a component, a suite or a recipe.
    """
    table = importlib.resources.files("jembench.catalog").joinpath("first_party.toml")
    plugins = tomllib.loads(table.read_text("utf-8")).get(kind, {})
    plugin = next((plugin for plugin, names in plugins.items() if name in names), "")
    installed = {_normalised(component.distribution) for component in catalogue().components}
    if not plugin or plugin in installed:
        return None
    return SpecError(
        f"The {singular(kind)} {name!r} is in the plugin {plugin}, which is not installed here. "
        f"Install it (pip install {plugin}, or ./plugins/{plugin} of a clone), and run the "
        "command again."
    )


def singular(kind: str) -> str:
    """Return the singular of a kind, for sentences."""
    names = {"features": "feature network", "ood_sets": "OOD set", "starts": "start of chains"}
    return names.get(kind, kind.removesuffix("s"))


def _check_defined(component: Component, module: Any) -> None:
    """Check that the module of an import path has the attribute.

    Raises:
        PluginError: if it is missing; the message lists what the module defines.
    """
    first = component.attribute.partition(".")[0]
    if component.distribution or hasattr(module, first):
        return
    defined = []
    for name, value in sorted(vars(module).items()):
        is_own = getattr(value, "__module__", "") == module.__name__
        if is_own and callable(value) and not name.startswith("_"):
            defined.append(name)
    if not defined:
        raise PluginError(f"{component.module} defines no {first}; it defines nothing.")
    nearest = difflib.get_close_matches(first, defined, n=1) or defined
    raise PluginError(
        f"{component.module} defines no {first}; it defines {', '.join(defined)}. Write "
        f"{component.module}:{nearest[0]}."
    )


def load(component: Component) -> Any:
    """Import a component's factory, or the package of a suite.

    Raises:
        PluginError: if its distribution was written for another version of the plugin interface,
            the import fails, or the entry point is no factory; the message names the distribution
            and the entry point.
    """
    if component.api != API:
        stated = "states no version"
        if component.api:
            stated = f"was written for version {component.api}"
        older = "jembench" if component.api > API else component.distribution
        raise Incompatible(
            f"{component.distribution} {component.version} {stated} of jembench's plugin "
            f"interface, and this jembench has version {API}. Update {older}, or uninstall "
            f"{component.distribution}."
        )
    try:
        with files.same_folder():
            loaded = importlib.import_module(component.module)
        if component.attribute:
            _check_defined(component, loaded)
            loaded = attrgetter(component.attribute)(loaded)
        if component.kind != "suites" and not callable(loaded):
            raise TypeError(f"it is of type {type(loaded).__name__}, not a factory")
    except BaseException as error:  # also SystemExit of a module on import
        if isinstance(error, JembenchError) or is_request(error):
            raise
        of, remedy = "", "Check the path; the package must be importable from here."
        if component.distribution:
            of = f" of {component.distribution} {component.version}"
            remedy = f"Update or uninstall {component.distribution}."
        if component in added:
            remedy = "Correct the file."
        raise PluginError(
            f"The {singular(component.kind)} {component.name!r}{of} cannot be loaded from "
            f"{component.target}: {error_text(error).rstrip('.: ')}. {remedy}"
        ) from error
    return loaded
