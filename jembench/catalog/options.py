"""The options of factories, each described once: by the annotation of a keyword-only parameter.

``Annotated[int, Range(least=1)]`` gives the type and the range; other marks say what an option means for the identity
of a component: :class:`Content`, :class:`Incidental`, :class:`Names` and :class:`OnlyWith`. A spec gives the values as
text.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from jembench.catalog.contents import Listing, the_file
from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.catalog.validation import read_text
from jembench.errors import PluginError, SpecError, unknown

Factory = TypeVar("Factory", bound=Callable[..., Any])
Mark = TypeVar("Mark")


@dataclass(frozen=True, slots=True)
class Incidental:
    """An option that says where or how a component is got, such as a folder or a download, and not what it is.

    The same component from another place is still the same: its results are found again.
    """


@dataclass(frozen=True, slots=True)
class Content:
    """An option that is a path: another content is another component, another path is not. Empty text is no file.

    Args:
        listing: from the value to the files that are read; by default, the value is the path of one file. Of a folder
            it gives each file under its name there, and raises Unavailable, with the remedy, if some are missing.
    """

    listing: Listing = the_file


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """An option that changes nothing, and is no part of the identity, unless another option has a certain value."""

    option: str
    value: Scalar


class Names:
    """An option that is the spec of another component, whose identity and code count.

    Args:
        kinds: its kind, ``Names("starts")``, or several, of which the first that has the name counts; none: names of
            the factory's own, and import paths.
    """

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a factory."""

    hint: Any  # int, float, bool, str, Literal[...] or one of these | None, in Annotated[...] with its marks
    annotation: Any  # the type without its marks
    marks: tuple[Any, ...]
    default: Any  # REQUIRED: none

    @property
    def is_required(self) -> bool:
        """Whether a spec must give a value."""
        return self.default is REQUIRED

    def mark(self, kind: type[Mark]) -> Mark | None:
        """Return its mark of one class, or None."""
        return next((mark for mark in self.marks if isinstance(mark, kind)), None)


REQUIRED = inspect.Parameter.empty
"""The default of an option that has none."""


def pretrained() -> Callable[[Factory], Factory]:
    """Mark a factory whose models are measured as they are made: they have been trained elsewhere."""

    def mark(factory: Factory) -> Factory:
        factory.trained_elsewhere = True  # type: ignore[attr-defined]
        return factory

    return mark


@dataclass(frozen=True, slots=True)
class Bound:
    """A spec whose arguments have been typed by the signature of its factory, defaults included."""

    name: str
    arguments: Mapping[str, Scalar]
    defaults: Mapping[str, Scalar]
    incidental: frozenset[str] = frozenset()  # options that are no part of the identity

    def __str__(self) -> str:
        """Return the canonical spec: only what makes a difference, sorted."""
        return self.without(self.incidental)

    @property
    def in_full(self) -> str:
        """The spec with every option that is not at its default, as a command that is to be copied needs it."""
        return self.without(())

    def without(self, options: Collection[str]) -> str:
        """Return the spec without some of its options."""
        changed = {key: value for key, value in self.arguments.items() if value != self.defaults.get(key, ...)}
        kept = ((key, format_value(value)) for key, value in sorted(changed.items()) if key not in options)
        return str(Spec(self.name, tuple(kept)))

    @property
    def identity(self) -> dict[str, Any]:
        """The name and every option that counts: a default that changes later makes it another one."""
        essential = {key: value for key, value in sorted(self.arguments.items()) if key not in self.incidental}
        return {"name": self.name, "arguments": essential}


def bind(spec: Spec, factory: Callable[..., Any], list_command: str = "jembench list") -> Bound:
    """Type the arguments of ``spec`` by the options of ``factory``.

    Raises:
        SpecError: for an unknown key, a value of the wrong type or out of range, or a required key that is missing.
    """
    options, given = options_of(factory), dict(spec.arguments)
    for key in given:
        if key not in options:
            raise unknown(f"option of {spec.name}", key, options, list_command)
    if missing := sorted(name for name, option in options.items() if option.is_required and name not in given):
        raise SpecError(f"{spec.name} needs {', '.join(missing)}: write {spec.name}:{missing[0]}=...")
    defaults = {name: option.default for name, option in options.items() if not option.is_required}
    arguments = defaults | {
        key: read_text(text, options[key].hint, f"{key} of {spec.name}") for key, text in given.items()
    }
    incidental = {name for name, option in options.items() if _is_incidental(option, arguments)}
    return Bound(spec.name, arguments, defaults, frozenset(incidental))


def _is_incidental(option: Option, arguments: Mapping[str, Scalar]) -> bool:
    condition = option.mark(OnlyWith)
    is_idle = condition is not None and arguments[condition.option] != condition.value
    return is_idle or option.mark(Incidental) is not None


def marked(factory: Callable[..., Any], kind: type[Mark]) -> dict[str, Mark]:
    """Return the options of a factory that have a mark of one class, with the mark."""
    found = {name: option.mark(kind) for name, option in options_of(factory).items()}
    return {name: mark for name, mark in found.items() if mark is not None}


def options_of(factory: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the options of a factory, by name; those of a function or class are read once.

    Raises:
        PluginError: if an annotation cannot be read, or a mark names no option.
    """
    known = inspect.isfunction(factory) or inspect.isclass(factory)
    return _known_options(factory) if known else _read_options(factory)


def _read_options(factory: Callable[..., Any]) -> Mapping[str, Option]:
    owners = reversed(inspect.getmro(factory)) if inspect.isclass(factory) else [factory]
    modules = (sys.modules.get(owner.__module__, typing) for owner in owners)
    namespace = {name: value for module in modules for name, value in vars(module).items()}
    options = {
        name: _option(factory, parameter, namespace)
        for name, parameter in _own_first(factory, inspect.signature(factory).parameters)
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    for name, option in options.items():
        condition = option.mark(OnlyWith)
        if condition is not None and condition.option not in options:
            raise PluginError(
                f"{factory.__module__}: option {name!r} of the factory {factory.__qualname__} counts only with "
                f"{condition.option!r}, which is none of its options: {', '.join(options)}."
            )
    return options


_known_options = functools.lru_cache(maxsize=1_000)(_read_options)


def _option(factory: Callable[..., Any], parameter: inspect.Parameter, namespace: dict[str, Any]) -> Option:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, namespace)  # the plugin's own source text
        except Exception as error:
            raise PluginError(
                f"{factory.__module__}: cannot read the type {annotation!r} of option {parameter.name!r} ({error}). "
                "Options are int, float, bool, str, Literal[...] or one of these | None, which Annotated may mark."
            ) from error
    bare, marks = _split(annotation)
    default = parameter.default
    if type(default) is int and float in (bare, *get_args(bare)):
        default = float(default)  # given or left out, it is the same value in the identity
    return Option(annotation, bare, tuple(marks), default)


def _split(annotation: Any) -> tuple[Any, list[Any]]:
    """Return a type without its marks, and the marks, those of the members of a union included."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        bare, further = _split(inner)
        return bare, [*marks, *further]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [_split(member) for member in get_args(annotation)]
        bare = functools.reduce(lambda a, b: a | b, (member for member, _ in members))
        return bare, [mark for _, marks in members for mark in marks]
    return annotation, []


def _own_first(
    factory: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]
) -> list[tuple[str, inspect.Parameter]]:
    """Return the parameters in their order; of a dataclass, its own fields before those of its bases."""
    owners = inspect.getmro(factory) if inspect.isclass(factory) else ()
    order = list(dict.fromkeys(name for owner in owners for name in vars(owner).get("__annotations__", ())))
    return sorted(parameters.items(), key=lambda one: order.index(one[0]) if one[0] in order else -1)
