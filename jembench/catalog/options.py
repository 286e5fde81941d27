"""The options of factories: their types and defaults, and the marks that say what they mean for identities.

A factory's keyword-only parameters are its options. A spec gives their values as text; the annotations type them.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from jembench.catalog.contents import Listing, the_file
from jembench.catalog.limits import Size
from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.errors import PluginError, SpecError, unknown

Factory = TypeVar("Factory", bound=Callable[..., Any])


def _mark(**attributes: Any) -> Callable[[Factory], Factory]:
    """A decorator that sets attributes of a factory."""

    def mark(factory: Factory) -> Factory:
        for name, value in attributes.items():
            setattr(factory, name, value)
        return factory

    return mark


def incidental(*options: str) -> Callable[[Factory], Factory]:
    """Mark options of a factory that say where a component comes from, not what it is: a folder, a download.

    The same component from another place is still the same: its results are found again.
    """
    return _mark(incidental_options=frozenset(options))


def added_later(**neutral: Scalar) -> Callable[[Factory], Factory]:
    """Mark options that were added to a factory later, each with the value at which it has no effect.

    At that value an option is not part of the identity, so that models trained before it existed are still found. The
    value must not change, even if the default does. Marks of a base class are kept.
    """
    return lambda factory: _mark(neutral_options={**getattr(factory, "neutral_options", {}), **neutral})(factory)


def only_with(**conditions: tuple[str, Scalar]) -> Callable[[Factory], Factory]:
    """Mark options of a factory that change nothing unless another option has a certain value.

    Elsewhere they are no part of the identity.

    Args:
        conditions: an option to (the other option, its value).
    """
    return _mark(conditional_options=conditions)


def content_of(*options: str, listing: Listing = the_file) -> Callable[[Factory], Factory]:
    """Mark options of a factory whose values are paths: another content is another thing, another path is not.

    An option at an empty default stands for no file.

    Args:
        options: the names of the options.
        listing: from the value to the files that are read; by default, the value is the path of one file. Of a folder
            it gives each file under its name there, and raises Unavailable, with the remedy, if some are missing.
    """
    return _mark(content_options=dict.fromkeys(options, listing))


def takes(least: Callable[[Mapping[str, Any]], Size]) -> Callable[[Factory], Factory]:
    """Mark a factory whose options say how large the result is at least, so that planning can refuse absurd sizes.

    Args:
        least: from all options to that size. It imports no torch. What is made is counted exactly.
    """
    return _mark(least_size=least)


Uses = Callable[[Mapping[str, Scalar]], "list[tuple[str, str]]"]
"""From the arguments of a factory to the components that it makes its own from: ("models", "jem:net=small-8")."""


def pretrained(*files: str, uses: Uses = lambda arguments: []) -> Callable[[Factory], Factory]:
    """Mark a factory whose models are measured as they are made: they have been trained elsewhere.

    Args:
        files: options whose values are paths of files, as for :func:`content_of`.
        uses: the other components that a model is made from, to be recorded with its results.
    """
    return _mark(made_from=uses, content_options=dict.fromkeys(files, the_file))


@dataclass(frozen=True, slots=True)
class Bound:
    """A spec whose arguments have been typed by the signature of its factory, defaults included."""

    name: str
    arguments: Mapping[str, Scalar]
    defaults: Mapping[str, Scalar]
    incidental: frozenset[str] = frozenset()
    neutral: Mapping[str, Scalar] = field(default_factory=dict)  # of options that were added later

    def __str__(self) -> str:
        """The canonical spec: only what makes a difference, sorted."""
        return self.without(self.incidental)

    @property
    def in_full(self) -> str:
        """The spec with every option that is not at its default, as a command that is to be copied needs it."""
        return self.without(())

    def without(self, options: Collection[str]) -> str:
        """The spec without some of its options."""
        changed = {key: value for key, value in self.arguments.items() if value != self.defaults.get(key, ...)}
        kept = ((key, format_value(value)) for key, value in sorted(changed.items()) if key not in options)
        return str(Spec(self.name, tuple(kept)))

    @property
    def identity(self) -> dict[str, Any]:
        """What the component is, in full: a default that changes later makes it another one."""
        essential = {
            key: value
            for key, value in sorted(self.arguments.items())
            if key not in self.incidental and not (key in self.neutral and value == self.neutral[key])
        }
        return {"name": self.name, "arguments": essential}


def bind(spec: Spec, factory: Callable[..., Any], list_command: str = "jembench list") -> Bound:
    """Type the arguments of ``spec`` by the keyword-only parameters of ``factory``.

    Raises:
        SpecError: for an unknown key, a value of the wrong type, or a required key that is missing.
    """
    parameters = keyword_parameters(factory)
    _check_marks(factory, parameters.keys())
    given = dict(spec.arguments)
    for key in given:
        if key not in parameters:
            raise unknown(f"option of {spec.name}", key, parameters, list_command)
    defaults = {key: _typed_default(p) for key, p in parameters.items() if p.default is not p.empty}
    missing = sorted(parameters.keys() - given.keys() - defaults.keys())
    if missing:
        raise SpecError(f"{spec.name} needs {', '.join(missing)}: write {spec.name}:{missing[0]}=...")
    typed = {key: convert(value, parameters[key].annotation, f"{key} of {spec.name}") for key, value in given.items()}
    arguments = {**defaults, **typed}
    conditions = getattr(factory, "conditional_options", {}).items()
    idle = {option for option, (other, value) in conditions if arguments[other] != value}
    return Bound(
        spec.name,
        arguments,
        defaults,
        getattr(factory, "incidental_options", frozenset()) | idle,
        getattr(factory, "neutral_options", {}),
    )


def _check_marks(factory: Callable[..., Any], options: Collection[str]) -> None:
    """Whether the options that are marked exist: one that is misspelt would count in the identity, or not count.

    Raises:
        PluginError: if not.
    """
    for mark in ("incidental_options", "neutral_options", "conditional_options", "content_options"):
        if missing := [option for option in getattr(factory, mark, ()) if option not in options]:
            raise PluginError(
                f"{factory.__module__}: a decorator of the factory {factory.__qualname__} marks {missing[0]!r}, which "
                f"is none of its options: {', '.join(options) or 'it has none'}."
            )


def _typed_default(parameter: inspect.Parameter) -> Scalar:
    """A float's default may be written as an int; given or left out, it must be the same value in the identity."""
    default: Scalar = parameter.default
    is_float = float in (parameter.annotation, *get_args(parameter.annotation))
    return float(default) if is_float and type(default) is int else default


def keyword_parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The keyword-only parameters of a factory, their annotations resolved; of a function or class, read once."""
    known = inspect.isfunction(factory) or inspect.isclass(factory)
    return _known_parameters(factory) if known else _keyword_parameters(factory)


def _keyword_parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    owners = reversed(inspect.getmro(factory)) if inspect.isclass(factory) else [factory]
    modules = (sys.modules.get(owner.__module__, typing) for owner in owners)
    namespace = {name: value for module in modules for name, value in vars(module).items()}
    parameters = {}
    for name, parameter in _own_first(factory, inspect.signature(factory).parameters):
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        annotation = parameter.annotation
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, namespace)  # the plugin's own source text
            except Exception as error:
                raise PluginError(
                    f"{factory.__module__}: cannot read the type {annotation!r} of option {name!r} ({error}). "
                    "Options are int, float, bool, str, Literal[...] or one of these | None."
                ) from error
        is_annotated = get_origin(annotation) is typing.Annotated
        parameters[name] = parameter.replace(annotation=get_args(annotation)[0] if is_annotated else annotation)
    return parameters


def _own_first(
    factory: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]
) -> list[tuple[str, inspect.Parameter]]:
    """The parameters in their order; of a dataclass, its own fields before those of its bases."""
    owners = inspect.getmro(factory) if inspect.isclass(factory) else ()
    order = list(dict.fromkeys(name for owner in owners for name in vars(owner).get("__annotations__", ())))
    return sorted(parameters.items(), key=lambda one: order.index(one[0]) if one[0] in order else -1)


_known_parameters = functools.lru_cache(maxsize=1_000)(_keyword_parameters)


def convert(text: str, annotation: Any, what: str) -> Scalar:
    """Convert the text of a value to the type of its annotation; ``8/255`` is read exactly.

    Raises:
        SpecError: if the text is not of that type; ``what`` names the value.
    """
    if get_origin(annotation) in (Union, types.UnionType):
        if text.lower() == "none" and type(None) in get_args(annotation):
            return None
        kinds = [option for option in get_args(annotation) if option is not type(None)]
        annotation = kinds[0] if len(kinds) == 1 else annotation
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        for choice in choices:
            if format_value(choice) == text:
                return typing.cast(Scalar, choice)
        raise SpecError(f"{what} is {text!r}; it must be one of {', '.join(map(format_value, choices))}.")
    if annotation is bool:
        if text.lower() in ("true", "yes", "1"):
            return True
        if text.lower() in ("false", "no", "0"):
            return False
        raise SpecError(f"{what} is {text!r}; it must be true or false.")
    if annotation is str:
        return text
    if annotation in (int, float):
        return _number(text, annotation, what)
    kind = "no type" if annotation is inspect.Parameter.empty else f"the type {annotation!r}"
    raise PluginError(f"{what} has {kind}; options are int, float, bool, str, Literal[...] or one of these | None.")


def _number(text: str, kind: type, what: str) -> int | float:
    try:
        number = int(text) if kind is int else float(Fraction(text) if "/" in text else text)
    except (ValueError, ZeroDivisionError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        wanted = "a whole number" if kind is int else "a finite number, for example 0.1, 1e-4 or 8/255"
        raise SpecError(f"{what} is {text!r}; it must be {wanted}.")
    return number
