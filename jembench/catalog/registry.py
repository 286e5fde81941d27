"""Components: found through entry points without importing them, and loaded when they are used.

``resolve(kind, text).make(*context)`` leads from text to object, for a registered name and for an import path alike:
``resolve("samplers", "pcd:steps=4")``, ``resolve("models", "mypackage.zoo:build:width=8")``. Import paths are subject
to :mod:`jembench.catalog.trust`. Core's own components come through the same groups as those of plugins.
"""

from __future__ import annotations

import configparser
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import entrypoints

from jembench.catalog import code_identity, limits, trust
from jembench.catalog import spec as specs
from jembench.catalog.contents import Listing, content, the_file
from jembench.errors import Incompatible, JembenchError, PluginError, SpecError, unknown
from jembench.interfaces import API

Kind = Literal[
    "models",
    "samplers",
    "metrics",
    "datasets",
    "ood_sets",
    "features",
    "suites",
    "importers",
    "executors",
    "trackers",
    "formats",
    "figures",
    "optimizers",
    "schedules",
    "augmentations",
    "starts",
    "scores",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NO_OPTIONS = ("trackers", "formats", "figures", "optimizers", "schedules", "augmentations")
"""Kinds that no option of another component names: those that show results, and the parts of a recipe."""


_API_GROUP = "jembench.api"
_FORMER_GROUP = "jembench.outliers"  # of API 1, now jembench.ood_sets
_GROUPS: dict[str, Kind] = {**{f"jembench.{kind}": kind for kind in KINDS}, _FORMER_GROUP: "ood_sets"}


class Component(NamedTuple):
    """Where a component can be loaded from. Nothing of it has been imported."""

    kind: Kind
    name: str
    distribution: str  # "" for an import path
    version: str
    module: str
    attribute: str  # "" for a module: suites
    api: int = API  # the version of the plugin interface that its distribution was written for

    @property
    def is_compatible(self) -> bool:
        """Whether this jembench can use it."""
        return self.api == API

    @property
    def target(self) -> str:
        """The entry point's value: ``module:attribute``."""
        return f"{self.module}:{self.attribute}" if self.attribute else self.module

    def __str__(self) -> str:
        if not self.distribution:
            return self.target
        return f"{self.distribution} {self.version} [{self.name} = {self.target}]"


class Unreadable(NamedTuple):
    """A distribution whose entry points, or some of them, cannot be read."""

    distribution: str
    problem: str


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Every component found, and the distributions that cannot be read. Each reading is a key for caches of its own."""

    components: tuple[Component, ...]
    unreadable: tuple[Unreadable, ...]

    def of(self, kind: Kind) -> list[Component]:
        """The components of one kind, sorted by name."""
        return [component for component in self.components if component.kind == kind]


@cache
def catalogue() -> Catalogue:
    """Read the entry points of every installed distribution, once (``catalogue.cache_clear()`` forgets them)."""
    found, problems = _installed()
    first: dict[tuple[int, str, str], Component] = {}  # of a distribution that is on sys.path twice
    for component in (*added, *found):
        if not component.distribution.startswith("~"):  # what an interrupted pip leaves behind is not installed
            first.setdefault((KINDS.index(component.kind), component.name, component.distribution), component)
    return Catalogue(tuple(first[key] for key in sorted(first)), tuple(problems))


def _installed() -> tuple[list[Component], list[Unreadable]]:
    """The components of all distributions, and what cannot be read of them."""
    found: list[Component] = []
    problems: list[Unreadable] = []
    path = [folder for folder in sys.path if folder]  # the folder where the user stands is no installation
    for distribution in importlib.metadata.distributions(path=path):
        parser = entrypoints.CaseSensitiveConfigParser(delimiters=("=",), interpolation=None)
        try:
            if text := distribution.read_text("entry_points.txt"):
                parser.read_string(text)
            api = _api(list(parser[_API_GROUP]) if _API_GROUP in parser else [])
        except (configparser.Error, ValueError) as error:  # also of bytes that are no text
            problems.append(Unreadable(_name_and_version(distribution)[0], " ".join(str(error).split())))
            continue
        groups = [group for group in _GROUPS if group in parser]
        name, version = _name_and_version(distribution) if groups else ("", "")
        for group, (key, target) in ((each, entry) for each in groups for entry in parser[each].items()):
            stated = 1 if group == _FORMER_GROUP else api
            try:
                point = entrypoints.EntryPoint.from_string(target, key)
                where = point.module_name, point.object_name or ""
                found.append(Component(_GROUPS[group], key, _normalised(name), version, *where, stated))
            except entrypoints.BadEntryPoint:
                problems.append(Unreadable(name, f"{key} = {target} in {group} is not module:attribute"))
    return found, problems


def _api(stated: Sequence[str]) -> int:
    """The newest version of the plugin interface that a distribution says it was written for.

    Raises:
        ValueError: if that is not a number.
    """
    if not all(name.isdecimal() for name in stated):
        raise ValueError(f"{', '.join(stated)} in {_API_GROUP} is no whole number")
    return max(map(int, stated), default=1)


def _name_and_version(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    try:
        metadata = distribution.metadata
        known = {key: metadata[key] for key in metadata}
    except (UnicodeDecodeError, FileNotFoundError):  # damaged, or a leftover of an interrupted installation
        known = {}
    return known.get("Name", "(without a name)"), known.get("Version", "")


def _normalised(distribution: str) -> str:
    """One spelling for the names in metadata (``Jembench-JEM``) and in folders (``jembench_jem``)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


added: list[Component] = []
"""What the files of this process declare that were added as plugins (:mod:`jembench.catalog.plugin_files`)."""


def components(kind: Kind) -> list[Component]:
    """The components of one kind, sorted by name."""
    return catalogue().of(kind)


def find(kind: Kind, name: str) -> Component:
    """The component that ``name`` means: an entry point, ``distribution/name`` or an import path.

    Raises:
        SpecError: if nothing or more than one thing answers to the name, or it is an import path that the user did not
            name (:mod:`jembench.catalog.trust`).
    """
    if ":" in name:
        if specs.parse(name) != specs.Spec(name):
            raise SpecError(f"{name!r} is not an import path. Write package.module:function.")
        trust.check(name)
        module, attribute = name.split(":", 1)
        return Component(kind, name, "", "", module, attribute)
    distribution, _, bare = name.rpartition("/")
    matches = [
        c for c in components(kind) if c.name == bare and _normalised(distribution) in ("", _normalised(c.distribution))
    ]
    if not components(kind):
        raise SpecError(
            f"There is no {singular(kind)} named {name!r}: no {kind} are installed. If jembench was installed with -e "
            "and its code has changed since, install it again: pip install -e ."
        )
    if not matches:
        known = {f"{c.distribution}/{c.name}" if distribution else c.name for c in components(kind)}
        raise unknown(singular(kind), name, known, f"jembench list {kind}")
    if len(matches) > 1:
        candidates = ", ".join(f"{c.distribution}/{c.name} ({c.target})" for c in matches)
        raise SpecError(
            f"The {singular(kind)} {name!r} is offered by more than one distribution: {candidates}. "
            "Write the one that you mean with its distribution, or uninstall the other."
        )
    return matches[0]


def singular(kind: str) -> str:
    """What one of a kind is called in a sentence."""
    names = {"features": "feature network", "ood_sets": "OOD set", "starts": "start of chains"}
    return names.get(kind, kind.removesuffix("s"))


def load(component: Component) -> Any:
    """Import a component's factory, or the package of a suite.

    Raises:
        PluginError: if its distribution was written for another version of the plugin interface, or the import fails or
            gives no factory; the message names the distribution and its entry point.
    """
    if not component.is_compatible:
        raise Incompatible(
            f"{component.distribution} {component.version} was written for version {component.api} of jembench's "
            f"plugin interface, and this jembench has version {API}. Update "
            f"{'jembench' if component.api > API else component.distribution}, or uninstall {component.distribution}."
        )
    try:
        loaded = importlib.import_module(component.module)
        for attribute in filter(None, component.attribute.split(".")):
            loaded = getattr(loaded, attribute)
    except JembenchError:
        raise
    except (Exception, SystemExit) as error:  # a module that exits when imported must not end the command either
        of = f" of {component.distribution} {component.version}" if component.distribution else ""
        cause = f"{type(error).__name__}: {error}".rstrip(".: ")
        raise PluginError(
            f"The {singular(component.kind)} {component.name!r}{of} cannot be loaded from {component.target}: {cause}. "
            f"{_remedy(component)}"
        ) from error
    if component.kind != "suites" and not callable(loaded):
        raise PluginError(
            f"{component} is of type {type(loaded).__name__}, not a factory: an entry point of "
            f"jembench.{component.kind} must name something that can be called. {_remedy(component)}"
        )
    return loaded


def _remedy(component: Component) -> str:
    if component in added:
        return "Correct the file."
    if component.distribution:
        return f"Update or uninstall {component.distribution}."
    return "Check the path; the package must be importable from here."


@dataclass(frozen=True)
class Resolved:
    """A component, its factory and its typed arguments: all that is needed to make it."""

    component: Component
    factory: Callable[..., Any]
    bound: specs.Bound

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return str(self.bound)

    @property
    def pretrained(self) -> specs.Pretrained | None:
        """What is known of a model that is not trained here; None: it is."""
        return getattr(self.factory, "pretrained", None)

    @property
    def uses(self) -> list[Component]:
        """The components that it is made from, itself first.

        Raises:
            SpecError: if one of them is not installed.
        """
        return [self.component, *(component for component, _ in self._others())]

    def _others(self) -> list[tuple[Component, specs.Spec]]:
        """The other components that it is made from, and how they are asked for."""
        named = self.pretrained.uses(self.bound.arguments) if self.pretrained else []
        asked_for = [(cast(Kind, kind), specs.parse(text)) for kind, text in named]
        return [(find(kind, spec.name), spec) for kind, spec in asked_for]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What it is: its name in its distribution, whatever else is installed, every option, the content of its files.

        And its code, as far as no version tells of it: see :mod:`jembench.catalog.code_identity`.

        Raises:
            SpecError: if one of its files cannot be read.
            Unavailable: with the remedy, if files of a data set are missing.
        """
        identity = {**self.bound.identity, "name": self.component.name, "distribution": self.component.distribution}
        arguments = identity["arguments"]
        arguments |= {option: _named(value) for option, value in arguments.items() if isinstance(value, str)}
        arguments |= self._contents
        if codes := self._codes():
            identity["code"] = codes
        return identity

    @cached_property
    def id(self) -> str:
        """A hash of its identity."""
        return specs.stable_hash(self.identity)

    @cached_property
    def _contents(self) -> dict[str, str]:
        """A hash of the files that each option stands for."""
        return {
            option: _content(self.component, option, str(self.bound.arguments[option]), listing)
            for option, listing in self._listings.items()
            if self.bound.arguments[option] or option not in self.bound.defaults or listing is not the_file
        }

    @property
    def _listings(self) -> Mapping[str, Listing]:
        listings: Mapping[str, Listing] = getattr(self.factory, "content_options", {})
        return listings

    @property
    def content(self) -> str:
        """A hash of the content of all its files; empty if it is not made of files."""
        return specs.stable_hash(self._contents) if self._contents else ""

    @property
    def without_paths(self) -> str:
        """The canonical spec without the options that are paths, for what must not depend on where files lie."""
        return self.bound.without(self.bound.incidental | self._listings.keys())

    @cached_property
    def code(self) -> str:
        """A hash of all code without a version that it is made of; empty if there is none."""
        codes = self._codes()
        return specs.stable_hash(codes) if codes else ""

    def _codes(self) -> dict[str, str]:
        """A hash of each code without a version that it is made of, by what leads there."""
        made_of = [self.component, *_led_to(map(str, self.bound.arguments.values()))]
        for component, spec in self._others():
            made_of += [component, *_led_to(value for _, value in spec.arguments)]
        found = {component.target: code_of(component) for component in made_of}
        return {target: code for target, code in sorted(found.items()) if code}

    def check_size(self) -> None:
        """Whether it, and what it is made from, may be made by the limits, as far as the options tell.

        Raises:
            SpecError: if not, or if one of its files cannot be read.
        """
        if least := getattr(self.factory, "least_size", None):
            least(self.bound.arguments).check(str(self))
        _ = self._contents  # a file that cannot be read is named with its option, before anything asks what it holds
        for component, spec in self._others():
            if ":" not in spec.name:  # the user's own code states no size
                resolve(component.kind, str(spec)).check_size()

    def make(self, *context: Any) -> Any:
        """Call the factory.

        Raises:
            PluginError: if it ends the program.
        """
        sized = self.component.kind in ("models", "samplers")
        try:
            with limits.allocating(str(self)) if sized else nullcontext():
                return self.factory(*context, **self.bound.arguments)
        except SystemExit as error:
            raise PluginError(
                f"{self} ends the program (exit code {error.code}) instead of being made. Raise an error that says "
                "what is wrong."
            ) from error


def _led_to(values: Iterable[str]) -> Iterator[Component]:
    """What options lead to: an import path, ``net=mypackage.nets:build``, or the name of any component."""
    for value in values:
        try:
            name = specs.parse(value).name
        except SpecError:  # of another kind
            continue
        if ":" in name:
            yield find("models", name)  # of no kind yet
        else:
            named = (component for component in catalogue().components if component.name == name)
            yield from (component for component in named if component.kind not in _NO_OPTIONS)


def code_of(component: Component) -> str:
    """A hash of a component's code, if it has no version that tells of it; empty otherwise."""
    is_package = bool(component.distribution) and not component.distribution.endswith(".py")
    return code_identity.code(component.module, of_package=is_package)


@cache
def _content(component: Component, option: str, value: str, listing: Listing) -> str:
    """The content of an option's files as it is now; :func:`look_again` makes it be read again."""
    if ":" in value and not Path(value).exists() and listing is the_file:
        return value  # an import path, where an option may be either
    try:
        return content(listing(value))
    except OSError as error:
        of = "" if listing is the_file else f" holds {error.filename}, which"
        raise SpecError(
            f"{option} of {component.name} is {value!r}, which{of} cannot be read: {error.strerror}. Check the path."
        ) from error


@cache
def _named(value: str) -> Any:
    """What an option's text stands for in an identity: of a component that is made of files, its own identity.

    Of one that is got in some way, ``svhn:root=/data``, its spec without that. All else stands for itself, and so do
    files that cannot be read: what is measured without them says so, and is measured again when they are there.
    """
    try:
        spec = specs.parse(value)
        bare = spec.name.rpartition("/")[2]
        kinds: Iterable[Kind] = (component.kind for component in catalogue().components if component.name == bare)
        if ":" in spec.name:
            kinds = ("ood_sets",) if spec.arguments else ()  # without options it is of no files
        for kind in kinds:
            resolved = resolve(kind, value)
            if resolved.content:
                return resolved.identity
            if resolved.bound.incidental & dict(spec.arguments).keys():
                kept = ((key, text) for key, text in spec.arguments if key not in resolved.bound.incidental)
                return str(specs.Spec(spec.name, tuple(kept)))
    except JembenchError:
        pass
    return value


def look_again() -> None:
    """Forget what files hold, of which nothing is read twice while a run is planned."""
    _content.cache_clear()
    _named.cache_clear()


def resolve(kind: Kind, text: str) -> Resolved:
    """From a spec string to a component that can be made.

    Raises:
        SpecError: for a name or an option that is not there, or a value of the wrong type.
        PluginError: if the component cannot be imported.
    """
    spec = specs.parse(text)
    component = find(kind, spec.name)
    factory = load(component)
    bound = specs.bind(specs.Spec(_shortest(component), spec.arguments), factory, f"jembench list {kind}")
    trust.allow(bound.defaults.values())
    return Resolved(component, factory, bound)


def _shortest(component: Component) -> str:
    """The shortest name that means this component alone, so that one thing has one identity."""
    namesakes = [other for other in components(component.kind) if other.name == component.name]
    return f"{component.distribution}/{component.name}" if len(namesakes) > 1 else component.name


def describe(factory: Any) -> str:
    """The first line of a factory's docstring."""
    return (getattr(factory, "__doc__", None) or "").strip().partition("\n")[0]
