"""The options of factories, described by the annotations of keyword-only parameters.

``Annotated[int, Range(least=1)]`` gives the type and the range; other marks give an option's role
in the identity of its component: :class:`Content`, :class:`Incidental`, :class:`Names` and
:class:`OnlyWith`; :class:`NotInFiles` keeps files from setting it. The values in specs are text.
"""

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, overload

from jembench.catalog.contents import Listing, the_file
from jembench.catalog.discovery import Kind
from jembench.catalog.spec import Scalar
from jembench.errors import PluginError
from jembench.files import digest

Factory = TypeVar("Factory", bound=Callable[..., Any])
Mark = TypeVar("Mark")
Component = TypeVar("Component")


@dataclass(frozen=True, slots=True)
class Incidental:
    """An option that says where or how a component is obtained, such as a folder or a download.

    The option is no part of the identity, so that results are found again under another value.
    """


@dataclass(frozen=True, slots=True)
class Content:
    """An option that is a path and counts by the files' content.

    The content is part of the identity in place of the path. An empty text: no file.

    Args:
        listing: lists the files of a value by name, and raises Unavailable, with the remedy, if
            files are missing. By default the value is the path of one file.
        further: options whose values the listing takes too.
        of_file: returns the digest of a file; by default the SHA-256 of its bytes.
    """

    listing: Listing = the_file
    further: tuple[str, ...] = ()
    of_file: Callable[[Path], str] = digest


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """An option that counts only while another option has a certain value.

    Otherwise it has no effect, and is no part of the identity.
    """

    option: str
    value: Scalar


class Neutral:
    """An option outside the identity while at its default, so that old ids remain."""


class NotInFiles:
    """An option of an executor, a tracker or a format that a file may not set.

    A file may set only numbers, truth values and named choices, so that options of text need no
    mark. Mark the other options that make a connection or change something outside the store.
    """


class Names:
    """An option that is the spec of another component, or a list of specs.

    The named components' identities and code are parts of the identity.

    Args:
        kinds: the kind, ``Names("starts")``, or several, of which the first with the name is used;
            none: names that the factory itself resolves, and import paths.
        paths: False if import paths count by their text and their code alone.
    """

    def __init__(self, *kinds: Kind, paths: bool = True) -> None:
        self.kinds = kinds
        self.paths = paths


class Option(NamedTuple):
    """An option of a factory."""

    # int, float, bool, str, Literal[...] or one of these | None, in Annotated[...] with its marks
    hint: Any
    annotation: Any  # the type without its marks
    default: Any  # REQUIRED: a spec must give a value

    @property
    def is_for_files(self) -> bool:
        """True if a file may set the option; see :class:`NotInFiles`.

        This concerns options of executors, trackers and formats.
        """
        for part in (self.hint, *get_args(self.hint)):
            marks = getattr(part, "__metadata__", ())
            if any(isinstance(mark, NotInFiles) for mark in marks):
                return False
        is_union = get_origin(self.annotation) in (typing.Union, types.UnionType)
        kinds = get_args(self.annotation) if is_union else (self.annotation,)
        plain = (int, float, bool, types.NoneType)
        return all(kind in plain or get_origin(kind) is Literal for kind in kinds)


REQUIRED = inspect.Parameter.empty
"""The default that marks an option as required."""


def built_from(
    part: Callable[..., Any], **defaults: Scalar
) -> Callable[[Callable[..., Component]], Callable[..., Component]]:
    """Let a factory take the options of a part.

    The part, built from these options, is the factory's last positional argument.

    Args:
        part: a factory, such as a network's, called with the positional arguments that it declares.
        defaults: of options, where they differ from the part's own.
    """
    kinds = [parameter.kind for parameter in inspect.signature(part).parameters.values()]
    takes = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    options = {}
    for name, option in options_of(part).items():
        default = defaults.get(name, option.default)
        options[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option.hint
        )

    def decorate(factory: Callable[..., Component]) -> Callable[..., Component]:
        @functools.wraps(factory)
        def build(*context: Any, **arguments: Any) -> Component:
            of_part = {}
            for name, option in options.items():
                of_part[name] = arguments.pop(name, option.default)
            return factory(*context, part(*context[:takes], **of_part), **arguments)

        signature = inspect.signature(factory)
        positional, keyword = list[inspect.Parameter](), list[inspect.Parameter]()
        for parameter in signature.parameters.values():
            is_keyword = parameter.kind is parameter.KEYWORD_ONLY
            (keyword if is_keyword else positional).append(parameter)
        parameters = [*positional[:-1], *options.values(), *keyword]  # without the part
        build.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return build

    return decorate


def never_mirrored(factory: Factory) -> Factory:
    """Mark the factory of a dataset whose images no recipe flips, such as digits."""
    factory.never_mirrored = True  # type: ignore[attr-defined]
    return factory


@overload
def pretrained(factory: Factory) -> Factory: ...


@overload
def pretrained(*, when: Callable[[Mapping[str, Any]], bool]) -> Callable[[Factory], Factory]: ...


def pretrained(factory: Any = None, *, when: Any = lambda _: True) -> Any:
    """Mark a factory whose models were trained elsewhere.

    Such models are measured without training. Use it as ``@pretrained``, or with a condition as
    ``@pretrained(when=...)``.

    Args:
        factory: of the models.
        when: takes the options of a model by name, and returns whether it was trained elsewhere.
    """
    if factory is None:
        return functools.partial(pretrained, when=when)
    factory.trained_elsewhere = when
    return factory


def marked(factory: Callable[..., Any], kind: type[Mark]) -> dict[str, Mark]:
    """Return a factory's options with a mark of one class: name -> mark."""
    marks = {}
    for name, option in options_of(factory).items():
        for mark in getattr(option.hint, "__metadata__", ()):
            if isinstance(mark, kind):
                marks[name] = mark
    return marks


def stands_alone(factory: Callable[..., Any]) -> bool:
    """Return whether a factory is a network's class without a DataSpec argument.

    A class takes a DataSpec if its first argument is annotated as such, or named after data or a
    spec, or has neither an annotation nor a default.
    """
    if not inspect.isclass(factory):
        return False
    if not any(base.__module__.startswith("torch.nn") for base in factory.__mro__[1:]):
        return False
    parameters = list(inspect.signature(factory).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return True
    first = parameters[0]
    if first.kind is first.VAR_POSITIONAL:
        return factory.__init__.__module__.startswith("torch.nn")
    is_typed = first.annotation is not first.empty
    words = f"{first.name} {first.annotation}" if is_typed else first.name
    if re.search("data|spec", words, re.IGNORECASE):
        return False
    return is_typed or first.default is not first.empty


def _option_parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a factory that are options: keyword-only ones.

    Of a class that stands alone, options are also all parameters without a default, and all with a
    number or a text as default, whose type replaces a missing annotation.
    """
    alone, parameters = stands_alone(factory), []
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            parameters.append(parameter)
        elif alone and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            default = parameter.default
            is_scalar = isinstance(default, bool | int | float | str)
            if is_scalar and parameter.annotation is parameter.empty:
                parameters.append(parameter.replace(annotation=type(default)))
            elif is_scalar or default is parameter.empty:
                parameters.append(parameter)
    return parameters


@functools.lru_cache(maxsize=1_000)
def options_of(factory: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the options of a factory, by name.

    Raises:
        PluginError: if an annotation cannot be read.
    """
    owners = reversed(inspect.getmro(factory)) if inspect.isclass(factory) else [factory]
    namespace: dict[str, Any] = {}
    for owner in owners:
        namespace |= vars(sys.modules.get(owner.__module__, typing))
    options: dict[str, Option] = {}
    for parameter in _option_parameters(factory):
        name = parameter.name
        holder = type("Holder", (), {"__annotations__": {"option": parameter.annotation}})
        try:  # annotations may be text, from the source of a plugin
            hint = typing.get_type_hints(holder, namespace, include_extras=True)["option"]
            bare = typing.get_type_hints(holder, namespace)["option"]
        except Exception as error:
            raise PluginError(
                f"{factory.__module__}: cannot read the type {parameter.annotation!r} of option "
                f"{name!r} ({error}). Options are int, float, bool, str or Literal[...]; each "
                "may be optional (| None) and wrapped in Annotated[...]."
            ) from error
        default = parameter.default
        if type(default) is int and float in (bare, *get_args(bare)):
            default = float(default)  # so that the identity is the same as for an explicit value
        options[name] = Option(hint, bare, default)
    return options
