"""The resolution of specs to components, and their identities.

``resolve(kind, text).make(*context)`` makes the component of a registered name or an import path:
``resolve("samplers", "pcd:steps=4")``, ``resolve("models", "mypackage.zoo:build:width=8")``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from jembench.catalog import code_identity, discovery, options, trust
from jembench.catalog import spec as specs
from jembench.catalog.contents import Listing, content
from jembench.catalog.discovery import Component, Kind
from jembench.errors import JembenchError, PluginError, SpecError
from jembench.interfaces import Dataset, FeatureNetwork, Importer, OODScore, OODSet, Sampler, Start, Tracker
from jembench.interfaces.metrics import Metric
from jembench.interfaces.running import Executor
from jembench.stopping import contained

_PROTOCOLS: Mapping[str, type] = {
    "samplers": Sampler,
    "starts": Start,
    "datasets": Dataset,
    "ood_sets": OODSet,
    "metrics": Metric,
    "scores": OODScore,
    "features": FeatureNetwork,
    "importers": Importer,
    "executors": Executor,
    "trackers": Tracker,
}
_ADVICE = "The reference of plugins says what a factory of {} is called with, and what it returns."


@dataclass(frozen=True)
class Resolved:
    """A component with its factory and its typed arguments."""

    component: Component
    factory: Callable[..., Any]
    bound: options.Bound

    def __str__(self) -> str:
        return str(self.bound)

    @property
    def is_pretrained(self) -> bool:
        """True for a model that was trained elsewhere."""
        return hasattr(self.factory, "trained_elsewhere")

    @cached_property
    def named(self) -> dict[str, Resolved]:
        """The installed components that its options name, by option."""
        marks = options.marked(self.factory, options.Names)
        found = {option: _installed(mark.kinds, str(self.bound.arguments[option])) for option, mark in marks.items()}
        return {option: resolved for option, resolved in found.items() if resolved}

    @property
    def uses(self) -> list[Component]:
        """The component itself, followed by the components and import paths that its options name.

        Raises:
            SpecError: if the user did not name an import path.
        """
        found = [self.component]
        for option, names in options.marked(self.factory, options.Names).items():
            kind: Kind = names.kinds[0] if names.kinds else "models"
            found += [discovery.find(kind, path) for path in trust.code_in(str(self.bound.arguments[option]))]
        found += [component for named in self.named.values() for component in named.uses]
        return list(dict.fromkeys(found))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity: the name and distribution, all options, the content of files, and code without a version.

        See :mod:`jembench.catalog.code_identity`.

        Raises:
            SpecError: if a file cannot be read.
            Unavailable: if files of a dataset are missing; the message says the remedy.
        """
        identity = {**self.bound.identity, "name": self.component.name, "distribution": self.component.distribution}
        arguments = identity["arguments"]
        arguments |= {option: _identity(named) for option, named in self.named.items() if option in arguments}
        arguments |= self._contents
        if codes := self._codes():
            identity["code"] = codes
        return identity

    @cached_property
    def id(self) -> str:
        """The hash of the identity."""
        return specs.stable_hash(self.identity)

    @cached_property
    def _contents(self) -> dict[str, str]:
        """The hash of the files of each option that is a path."""
        values, marks = self.bound.arguments, options.marked(self.factory, options.Content)
        found = {
            name: content_of(self.component, name, str(values[name]), mark.listing) for name, mark in marks.items()
        }
        return {name: hashed for name, hashed in found.items() if hashed}

    @property
    def content(self) -> str:
        """The hash of the content of all files; "" if there are none."""
        return specs.stable_hash(self._contents) if self._contents else ""

    @cached_property
    def code(self) -> str:
        """The hash of all code without a version; "" if there is none."""
        codes = self._codes()
        return specs.stable_hash(codes) if codes else ""

    def _codes(self) -> dict[str, str]:
        """Return the hashes of code without a version, by entry point or import path."""
        found = {component.target: code_of(component) for component in self.uses}
        return {target: code for target, code in sorted(found.items()) if code}

    def make(self, *context: Any) -> Any:
        """Call the factory.

        Raises:
            PluginError: if the factory would end the program, takes other arguments, or returns something else than a
                component of its kind.
        """
        try:
            inspect.signature(self.factory).bind(*context, **self.bound.arguments)
        except TypeError as error:
            raise PluginError(f"{self} cannot be made: {error}. {_ADVICE.format(self.component.kind)}") from None
        with contained(str(self)):
            made = self.factory(*context, **self.bound.arguments)
        protocol = _PROTOCOLS.get(self.component.kind)
        if protocol and not isinstance(made, protocol):
            members = {name for name in (*dir(protocol), *protocol.__annotations__) if not name.startswith("_")}
            lacking = ", ".join(sorted(name for name in members if not hasattr(made, name)))
            raise PluginError(
                f"{self} returns an object of type {type(made).__name__}, which is no {protocol.__name__}: it lacks "
                f"{lacking}. {_ADVICE.format(self.component.kind)}"
            )
        return made


def code_of(component: Component) -> str:
    """Return the hash of a component's code if it has no version; "" otherwise."""
    is_package = bool(component.distribution) and not component.distribution.endswith(".py")
    return code_identity.code(component.module, of_package=is_package)


@cache
def content_of(component: Component, option: str, value: str, listing: Listing) -> str:
    """Return the hash of an option's files, "" if there are none; cached, so that a plan reads files once."""
    try:
        files = listing(value)
        return content(files) if files else ""
    except OSError as error:
        raise SpecError(
            f"{option} of {component.name} is {value!r}, and {error.filename} cannot be read: {error.strerror}. "
            "Check the path."
        ) from error


def _identity(named: Resolved) -> Any:
    """Return the identity of the component that an option names, or its spec if its files cannot be read.

    Results that need missing files are N/A, and computed again when the files are available.
    """
    with suppress(JembenchError):
        return named.identity
    return str(named)


def resolve(kind: Kind, text: str) -> Resolved:
    """Return the component of a spec.

    Raises:
        SpecError: if a name or an option does not exist, or a value has the wrong type or is out of range.
        PluginError: if the component cannot be imported.
    """
    spec = specs.parse(text)
    component = discovery.find(kind, spec.name)
    factory = discovery.load(component)
    bound = options.bind(specs.Spec(_shortest(component), spec.arguments), factory, f"jembench list {kind}")
    trust.allow(bound.defaults.values())
    return Resolved(component, factory, bound)


def _installed(kinds: tuple[Kind, ...], text: str) -> Resolved | None:
    """Return the component of a spec of the first kind that has one; None if there is none."""
    for kind in kinds:
        with suppress(JembenchError):
            return resolve(kind, text)
    return None


def canonical(kind: Kind, text: str) -> str:
    """Return the canonical form of a spec, or the sorted spec if its component is not installed."""
    with suppress(JembenchError):
        return str(resolve(kind, text))
    return str(specs.parse(text))


def _shortest(component: Component) -> str:
    """Return the shortest unique name of a component, so that it has only one identity."""
    namesakes = [other for other in discovery.components(component.kind) if other.name == component.name]
    return f"{component.distribution}/{component.name}" if len(namesakes) > 1 else component.name
