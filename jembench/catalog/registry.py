"""The resolution of specs to components, and their identities.

``resolve(kind, text).make(*context)`` makes the component of a registered name or an import path:
``resolve("samplers", "pcd:steps=4")``, ``resolve("models", "mypackage.zoo:build:width=8")``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from jembench.catalog import code_identity, discovery, options, trust
from jembench.catalog.contents import content
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.spec import FIRST_OPTIONS, OF_DATASETS, Scalar, Spec, split_list, stable_hash
from jembench.catalog.validation import read_text
from jembench.errors import JembenchError, PluginError, SpecError, error_text, unknown
from jembench.files import same_folder
from jembench.interfaces import (
    Dataset,
    FeatureNetwork,
    Importer,
    OODScore,
    OODSet,
    Sampler,
    Start,
    Tracker,
)
from jembench.interfaces.metrics import Adaptation, Metric
from jembench.interfaces.running import Executor
from jembench.stopping import contained

_PROTOCOLS: Mapping[str, type] = {
    "samplers": Sampler,
    "starts": Start,
    "datasets": Dataset,
    "ood_sets": OODSet,
    "metrics": Metric,
    "scores": OODScore,
    "adaptations": Adaptation,
    "features": FeatureNetwork,
    "importers": Importer,
    "executors": Executor,
    "trackers": Tracker,
}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ADVICE = "The reference of plugins says what a factory of {} is called with, and what it returns."


@dataclass(frozen=True)
class Resolved:
    """A component with its factory and its typed arguments, defaults included."""

    component: Component
    factory: Callable[..., Any]
    name: str  # the shortest unique name
    arguments: Mapping[str, Scalar]
    incidental: frozenset[str]  # options that are no part of the identity

    def __str__(self) -> str:
        return str(self.spec)

    @cached_property
    def spec(self) -> Spec:
        """The canonical spec: the options of the identity that are not at their defaults."""
        return self.text(without=self.incidental)

    def text(self, without: Set[str] = frozenset()) -> Spec:
        """Return the spec with every option that is not at its default.

        Other processes resolve it to the same component.

        Args:
            without: options to leave out.
        """
        changed = {}
        for key, option in options.options_of(self.factory).items():
            if key not in without and self.arguments[key] != option.default:
                changed[key] = self.arguments[key]
        return Spec.of(self.name, changed)

    @property
    def is_pretrained(self) -> bool:
        """True for a model that was trained elsewhere."""
        condition = getattr(self.factory, "trained_elsewhere", None)
        return condition is not None and condition(self.arguments)

    @property
    def is_never_mirrored(self) -> bool:
        """True for a dataset whose images no recipe flips."""
        return hasattr(self.factory, "never_mirrored")

    @cached_property
    def named(self) -> dict[str, list[Resolved]]:
        """The installed components that its options name, by option."""
        named: dict[str, list[Resolved]] = {}
        for option, names in options.marked(self.factory, options.Names).items():
            texts = str(self.arguments[option])
            for kind in names.kinds:
                with suppress(JembenchError):
                    parts = [resolve(kind, text) for text in split_list(texts)]
                    if parts and (
                        names.paths or all(part.component.distribution for part in parts)
                    ):
                        named[option] = parts
                        break
        return named

    @property
    def uses(self) -> list[Component]:
        """The component itself, followed by the components and import paths that its options name.

        Raises:
            SpecError: if neither the user nor installed code named an import path.
        """
        components = [self.component]
        for option, names in options.marked(self.factory, options.Names).items():
            kind: Kind = names.kinds[0] if names.kinds else "models"
            paths = trust.code_in(str(self.arguments[option]))
            components += [
                discovery.find(kind, path) for path in paths if not path.startswith(trust.SCRIPT)
            ]
        for parts in self.named.values():
            for part in parts:
                components += part.uses
        return list(dict.fromkeys(components))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity: name, distribution, options, content of files, unversioned code.

        Options at their defaults are part of it, since a default may change later. For code see
        :mod:`jembench.catalog.code_identity`.

        Raises:
            SpecError: if a file cannot be read.
            Unavailable: if files of a dataset are missing; the message says the remedy.
        """
        arguments: dict[str, Any] = dict(sorted(self.arguments.items()))
        for option in self.incidental:
            del arguments[option]
        for option in arguments.keys() & self.named.keys():
            parts: list[Any] = list(map(str, self.named[option]))
            # results that need missing files are N/A until the files are there
            with suppress(JembenchError):
                parts = [part.identity for part in self.named[option]]
            arguments[option] = parts if parts[1:] else parts[0]
        arguments |= self._contents
        identity = {
            "name": self.component.name,
            "arguments": arguments,
            "distribution": self.component.distribution,
        }
        if hashes := codes(self.uses):
            identity["code"] = hashes
        return identity

    @cached_property
    def id(self) -> str:
        """The hash of the identity."""
        return stable_hash(self.identity)

    @cached_property
    def _contents(self) -> dict[str, str]:
        """The content hash of each option that is a path."""
        contents = {}
        for option, mark in options.marked(self.factory, options.Content).items():
            values = tuple(str(self.arguments[name]) for name in (option, *mark.further))
            hashed = content_of(self.component, option, values, mark)
            if hashed:
                contents[option] = hashed
        return contents

    @property
    def content(self) -> str:
        """The hash of the content of all files; "" if there are none."""
        return stable_hash(self._contents) if self._contents else ""

    @cached_property
    def code(self) -> str:
        """The hash of all code without a version; "" if there is none."""
        hashes = codes(self.uses)
        return stable_hash(hashes) if hashes else ""

    @property
    def _advice(self) -> str:
        """The advice to wrap a class without a DataSpec argument; else ""."""
        is_own = not self.component.distribution or self.component.distribution.endswith(".py")
        is_class = self.component.kind == "models" and inspect.isclass(self.factory)
        if not (is_own and is_class) or options.stands_alone(self.factory):
            return ""
        parameters = []
        for parameter in inspect.signature(self.factory).parameters.values():
            if parameter.kind in _POSITIONAL:
                parameters.append(parameter)
        first = str(parameters[0]).partition("=")[0] if parameters else ""  # "data: DataSpec"
        if re.search("data|spec", first, re.IGNORECASE):
            return ""
        module, _, name = self.component.target.partition(":")
        head, arguments = ["data_spec"], list[str]()
        for parameter in parameters:
            option = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            if option.annotation is option.empty:
                option = option.replace(annotation=_type(option))
            head += [str(option)] if arguments else ["*", str(option)]
            arguments.append(f"{option.name}={option.name}")
        return (
            "A model is given the description of the images as its first argument, which this "
            f"class does not take. Write beside it `def build({', '.join(head)}): return "
            f"{name}({', '.join(arguments)})`, "
            f"and name {module}:build."
        )

    def make(self, *context: Any) -> Any:
        """Call the factory, without the context if it is a class that takes none.

        Raises:
            PluginError: if the factory would end the program, takes other arguments, or returns no
                component of its kind.
        """
        if options.stands_alone(self.factory):
            context = ()
        try:
            inspect.signature(self.factory).bind(*context, **self.arguments)
        except TypeError as error:
            advice = self._advice or _ADVICE.format(self.component.kind)
            raise PluginError(f"{self} cannot be made: {error}. {advice}") from None
        with contained(str(self)), same_folder():
            try:
                made = self.factory(*context, **self.arguments)
            except (TypeError, AttributeError, ValueError, RuntimeError) as error:
                if not self._advice:
                    raise
                raise PluginError(
                    f"{self} cannot be made: {error_text(error)}. {self._advice}"
                ) from error
        protocol = _PROTOCOLS.get(self.component.kind)
        if protocol and not isinstance(made, protocol):
            lacking = []
            for name in sorted({*dir(protocol), *protocol.__annotations__}):
                if name[0] != "_" and not hasattr(made, name):
                    lacking.append(name)
            raise PluginError(
                f"{self} returns an object of type {type(made).__name__}, which is no "
                f"{protocol.__name__}: it lacks {', '.join(lacking)}. "
                f"{_ADVICE.format(self.component.kind)}"
            )
        return made


def _type(parameter: inspect.Parameter) -> type:
    if isinstance(parameter.default, bool | int | float | str):
        return type(parameter.default)
    return int


def codes(components: Iterable[Component]) -> dict[str, str]:
    """Return code hashes of components without a version, by their entry points."""
    hashes: dict[str, str] = {}
    for component in components:
        is_package = bool(component.distribution) and not component.distribution.endswith(".py")
        if code := code_identity.code(component.module, of_package=is_package):
            hashes[component.target] = code
    return dict(sorted(hashes.items()))


@cache
def content_of(
    component: Component, option: str, values: tuple[str, ...], mark: options.Content
) -> str:
    """Return the hash of the files of an option's value, and of further options; "": none.

    The hash is cached, so that a plan reads files once.
    """
    try:
        files = mark.listing(*values)
        return content(files, mark.of_file) if files else ""
    except OSError as error:
        raise SpecError(
            f"{option} of {component.name} is {values[0]!r}, and {error.filename} cannot be read: "
            f"{error.strerror}. Check the path."
        ) from error


def resolve(kind: Kind, text: str) -> Resolved:
    """Return the component of a spec.

    Raises:
        SpecError: if a name or an option does not exist, or a value has the wrong type or is out of
            range.
        PluginError: if the component cannot be imported.
    """
    spec = Spec(text)
    component = discovery.find(kind, spec.name)
    name = component.name
    installed = [namesake.name for namesake in discovery.components(kind)]
    if installed.count(name) > 1:
        name = f"{component.distribution}/{name}"
    factory = discovery.load(component)
    declared = options.options_of(factory)
    texts = dict(spec.options)
    # specs hold the first option of models and of datasets under one name
    first = OF_DATASETS.get(spec.bare, "")
    if first in declared and first not in texts and FIRST_OPTIONS[spec.bare] in texts:
        texts[first] = texts.pop(FIRST_OPTIONS[spec.bare])
    unexpected = [key for key in texts if key not in declared]
    if unexpected:
        raise unknown(f"option of {name}", unexpected[0], declared, f"jembench list {kind}")
    required = [key for key, option in declared.items() if option.default is options.REQUIRED]
    missing = sorted(set(required) - texts.keys())
    if missing:
        raise SpecError(_lacking(name, factory, missing))

    defaults = {key: declared[key].default for key in declared if key not in required}
    trust.allow(defaults.values())
    arguments = dict(defaults)
    for key, value in texts.items():
        arguments[key] = read_text(value, declared[key].hint, f"{key} of {name}")

    incidental = set(options.marked(factory, options.Incidental))
    for key, only in options.marked(factory, options.OnlyWith).items():
        if arguments[only.option] != only.value:  # it has no effect
            incidental.add(key)
    for key in options.marked(factory, options.Neutral):
        if arguments[key] == defaults[key]:
            incidental.add(key)
    return Resolved(component, factory, name, arguments, frozenset(incidental))


def _lacking(name: str, factory: Callable[..., Any], missing: Sequence[str]) -> str:
    """Return the error for options without a default that a spec leaves out."""
    first = missing[0]
    text = f"{name} needs {', '.join(missing)}: write {name}:{first}=..."
    mark = options.marked(factory, options.Names).get(first)
    if mark is None or not mark.kinds:
        return text
    names, listings = list[str](), list[str]()
    for kind in mark.kinds:
        names += [component.name for component in discovery.components(kind)]
        listings.append(f"`jembench list {kind}`")
    return f"{text}, one of {', '.join(sorted(names))} ({', '.join(listings)})."


def check_of_file(kind: Kind, text: str, where: str) -> None:
    """Check that a file's spec sets only numbers and named choices.

    A text for an executor, a tracker or a format could be a line of shell, an address or a path.

    Args:
        kind: of the component.
        text: the spec in the file; an unresolvable spec passes, and fails when it is used.
        where: the file.

    Raises:
        SpecError: if the spec sets another option.
    """
    named = Spec(text).options.keys()
    if not named:
        return  # without importing the component
    try:
        resolved = resolve(kind, text)
    except JembenchError:
        return
    declared = options.options_of(resolved.factory)
    allowed = {key for key, option in declared.items() if option.is_for_files}
    if refused := sorted(named - allowed):
        which = discovery.singular(kind)
        article = "an" if which[0] in "aeio" else "a"
        choices = f" ({', '.join(sorted(allowed))})" if allowed else ""
        raise SpecError(
            f"{where} sets {', '.join(refused)} of the {which} {resolved.name}. A file may choose "
            f"{article} {which}, and set its numbers and named "
            f"choices only{choices}. Leave it out of the file, and give the whole spec on the "
            "command line or in the environment."
        )


def canonical(kind: Kind, text: str) -> Spec:
    """Return the canonical form of a spec, or the sorted spec if its component is not installed."""
    with suppress(JembenchError):
        return resolve(kind, text).spec
    return Spec(text)
