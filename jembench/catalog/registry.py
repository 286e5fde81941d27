"""From a spec to a component that can be made, and what it is identified by.

``resolve(kind, text).make(*context)`` leads from text to object, for a registered name and for an import path alike:
``resolve("samplers", "pcd:steps=4")``, ``resolve("models", "mypackage.zoo:build:width=8")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from jembench.catalog import code_identity, discovery, limits, options, trust
from jembench.catalog import spec as specs
from jembench.catalog.contents import Listing, content, the_file
from jembench.catalog.discovery import Component, Kind
from jembench.errors import JembenchError, SpecError
from jembench.stopping import contained

_NO_OPTIONS = ("trackers", "formats", "figures", "optimizers", "schedules", "augmentations")
"""Kinds that no option of another component names: those that show results, and the parts of a recipe."""


@dataclass(frozen=True)
class Resolved:
    """A component, its factory and its typed arguments: all that is needed to make it."""

    component: Component
    factory: Callable[..., Any]
    bound: options.Bound

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return str(self.bound)

    @property
    def is_pretrained(self) -> bool:
        """Whether it is a model that is not trained here."""
        return hasattr(self.factory, "made_from")

    @property
    def uses(self) -> list[Component]:
        """The components that it is made from, itself first.

        Raises:
            SpecError: if one of them is not installed.
        """
        return [self.component, *(component for component, _ in self._others())]

    def _others(self) -> list[tuple[Component, specs.Spec]]:
        """The other components that it is made from, and how they are asked for."""
        made_from: options.Uses = getattr(self.factory, "made_from", lambda arguments: [])
        asked_for = [(cast(Kind, kind), specs.parse(text)) for kind, text in made_from(self.bound.arguments)]
        return [(discovery.find(kind, spec.name), spec) for kind, spec in asked_for]

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
        with contained(str(self)), limits.allocating(str(self)) if sized else nullcontext():
            return self.factory(*context, **self.bound.arguments)


def _led_to(values: Iterable[str]) -> Iterator[Component]:
    """What options lead to: an import path, ``net=mypackage.nets:build``, or the name of any component."""
    for value in values:
        try:
            name = specs.parse(value).name
        except SpecError:  # of another kind
            continue
        if ":" in name:
            yield discovery.find("models", name)  # of no kind yet
        else:
            named = (component for component in discovery.catalogue().components if component.name == name)
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
        kinds: Iterable[Kind] = (
            component.kind for component in discovery.catalogue().components if component.name == bare
        )
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
    component = discovery.find(kind, spec.name)
    factory = discovery.load(component)
    bound = options.bind(specs.Spec(_shortest(component), spec.arguments), factory, f"jembench list {kind}")
    trust.allow(bound.defaults.values())
    return Resolved(component, factory, bound)


def canonical(kind: Kind, text: str) -> str:
    """The canonical form of a spec; of a component that is not installed any more, as far as it can be known."""
    try:
        return str(resolve(kind, text))
    except JembenchError:
        return str(specs.parse(text))


def _shortest(component: Component) -> str:
    """The shortest name that means this component alone, so that one thing has one identity."""
    namesakes = [other for other in discovery.components(component.kind) if other.name == component.name]
    return f"{component.distribution}/{component.name}" if len(namesakes) > 1 else component.name
