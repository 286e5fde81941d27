"""From a spec to a component that can be made, and what it is identified by.

``resolve(kind, text).make(*context)`` leads from text to object, for a registered name and for an import path alike:
``resolve("samplers", "pcd:steps=4")``, ``resolve("models", "mypackage.zoo:build:width=8")``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from jembench.catalog import code_identity, discovery, options, trust
from jembench.catalog import spec as specs
from jembench.catalog.contents import Listing, content
from jembench.catalog.discovery import Component, Kind
from jembench.errors import JembenchError, SpecError
from jembench.stopping import contained


@dataclass(frozen=True)
class Resolved:
    """A component, its factory and its typed arguments: all that is needed to make it."""

    component: Component
    factory: Callable[..., Any]
    bound: options.Bound

    def __str__(self) -> str:
        return str(self.bound)

    @property
    def is_pretrained(self) -> bool:
        """Return whether it is a model that is not trained here."""
        return hasattr(self.factory, "trained_elsewhere")

    @cached_property
    def named(self) -> dict[str, Resolved]:
        """The components that its options name, by the option; those that are not installed are left out."""
        marks = options.marked(self.factory, options.Names)
        found = {option: _installed(mark.kinds, str(self.bound.arguments[option])) for option, mark in marks.items()}
        return {option: resolved for option, resolved in found.items() if resolved}

    @property
    def uses(self) -> list[Component]:
        """The components that it is made of, itself first, import paths in its options among them.

        Raises:
            SpecError: for an import path that the user did not name.
        """
        found = [self.component]
        for option, names in options.marked(self.factory, options.Names).items():
            kind: Kind = names.kinds[0] if names.kinds else "models"
            found += [discovery.find(kind, path) for path in trust.code_in(str(self.bound.arguments[option]))]
        found += [component for named in self.named.values() for component in named.uses]
        return list(dict.fromkeys(found))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that makes it what it is: its name in its distribution, every option, and the content of its files.

        And its code, as far as no version tells of it: see :mod:`jembench.catalog.code_identity`.

        Raises:
            SpecError: if one of its files cannot be read.
            Unavailable: with the remedy, if files of a data set are missing.
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
        """A hash of its identity."""
        return specs.stable_hash(self.identity)

    @cached_property
    def _contents(self) -> dict[str, str]:
        """A hash of the files that each option stands for."""
        values, marks = self.bound.arguments, options.marked(self.factory, options.Content)
        found = {
            name: content_of(self.component, name, str(values[name]), mark.listing) for name, mark in marks.items()
        }
        return {name: hashed for name, hashed in found.items() if hashed}

    @property
    def content(self) -> str:
        """A hash of the content of all its files; empty if it is not made of files."""
        return specs.stable_hash(self._contents) if self._contents else ""

    @cached_property
    def code(self) -> str:
        """A hash of all code without a version that it is made of; empty if there is none."""
        codes = self._codes()
        return specs.stable_hash(codes) if codes else ""

    def _codes(self) -> dict[str, str]:
        """Return a hash of each code without a version that it is made of, by what leads there."""
        found = {component.target: code_of(component) for component in self.uses}
        return {target: code for target, code in sorted(found.items()) if code}

    def make(self, *context: Any) -> Any:
        """Call the factory.

        Raises:
            PluginError: if it ends the program.
        """
        with contained(str(self)):
            return self.factory(*context, **self.bound.arguments)


def code_of(component: Component) -> str:
    """Return a hash of a component's code, if it has no version that tells of it; empty otherwise."""
    is_package = bool(component.distribution) and not component.distribution.endswith(".py")
    return code_identity.code(component.module, of_package=is_package)


@cache
def content_of(component: Component, option: str, value: str, listing: Listing) -> str:
    """Return the content of an option's files as it is now, "" if there are none: nothing is read twice in a plan."""
    try:
        files = listing(value)
        return content(files) if files else ""
    except OSError as error:
        raise SpecError(
            f"{option} of {component.name} is {value!r}, and {error.filename} cannot be read: {error.strerror}. "
            "Check the path."
        ) from error


def _identity(named: Resolved) -> Any:
    """Return the identity of what an option names, or its spec if its files cannot be read.

    What is measured without them says so, and is measured again when they are there.
    """
    with suppress(JembenchError):
        return named.identity
    return str(named)


def resolve(kind: Kind, text: str) -> Resolved:
    """Return the component that a spec string names, ready to be made.

    Raises:
        SpecError: for a name or an option that is not there, or a value of the wrong type or out of range.
        PluginError: if the component cannot be imported.
    """
    spec = specs.parse(text)
    component = discovery.find(kind, spec.name)
    factory = discovery.load(component)
    bound = options.bind(specs.Spec(_shortest(component), spec.arguments), factory, f"jembench list {kind}")
    trust.allow(bound.defaults.values())
    return Resolved(component, factory, bound)


def _installed(kinds: tuple[Kind, ...], text: str) -> Resolved | None:
    """Return the component of the first kind that has one of that spec; None if there is none that can be used."""
    for kind in kinds:
        with suppress(JembenchError):
            return resolve(kind, text)
    return None


def canonical(kind: Kind, text: str) -> str:
    """Return the canonical form of a spec; of a component that is not installed any more, as far as it can be known."""
    with suppress(JembenchError):
        return str(resolve(kind, text))
    return str(specs.parse(text))


def _shortest(component: Component) -> str:
    """Return the shortest name that means this component alone, so that one thing has one identity."""
    namesakes = [other for other in discovery.components(component.kind) if other.name == component.name]
    return f"{component.distribution}/{component.name}" if len(namesakes) > 1 else component.name
