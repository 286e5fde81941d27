"""The reader of TOML and JSON files and of values of specs, which checks names, types and ranges at all levels.

An error names the file, the key, the value and what is allowed. It reads all files of a fixed layout: recipes, suites,
published numbers, claims and the records of a store.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import reprlib
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from jembench.catalog.spec import Scalar, format_value
from jembench.errors import JembenchError, PluginError, SpecError, unknown

T = TypeVar("T")
Reader = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A range of numbers: ``Annotated[float, Range(above=0)]``."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, number: float | None) -> bool:
        return number is None or (self.least <= number <= self.most and self.above < number < self.below)

    def __str__(self) -> str:
        limits = {"at least": self.least, "greater than": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {limit:,.12g}" for words, limit in limits.items() if math.isfinite(limit))


class Rule(NamedTuple):
    """A condition on a value: ``Annotated[str, Rule("one line of text", is_line)]``."""

    wanted: str
    holds: Callable[[Any], object]

    def __contains__(self, value: object) -> bool:
        return bool(self.holds(value))

    def __str__(self) -> str:
        return self.wanted


Option = Annotated[str, "option of a spec"]
"""The value of an option in a spec: text, or a number or a boolean, which is converted to text."""


Printed = Annotated[float, "as printed"]
"""A number that may be nan."""


Style = Literal["toml", "json", "text"]
"""The style of values: TOML; JSON, with unknown keys and the numbers "nan", "inf" and "-inf"; text of an option."""


class Format(NamedTuple):
    """A kind of file: its error, the end of messages, and the style of values."""

    error: type[JembenchError]
    remedy: str
    style: Style


TOML = Format(SpecError, "", "toml")


def parse(content: bytes, where: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        SpecError: naming the file ``where`` if it is not valid.
    """
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also for too many digits or brackets
        raise SpecError(f"{where} is not valid TOML: {error}. Correct the file.") from error


def read(
    cls: type[T], data: Any, where: str, listing: str = "", *, form: Format = TOML, path: str = "", **given: Any
) -> T:
    """Make a dataclass or a named tuple from a table of a file.

    Args:
        cls: the class, whose type hints give the allowed values.
        data: the table.
        where: the file, for errors.
        listing: the command that explains each key, if there is one.
        form: the kind of file.
        path: the keys that lead to the table, if it is a part of the file.
        given: fields that the file may not set.

    Raises:
        SpecError: or ``form.error``, if a value is not allowed; the message names the file, the key and the allowed
        values.
    """
    try:
        made: T = _make(cls, data, form.style, given)
    except _Invalid as error:
        keys = "".join([path, *error.keys]).removeprefix(".")
        raise form.error(f"{error.describe(where, keys, listing)} {form.remedy}".rstrip()) from None
    return made


def read_text(text: str, hint: Any, what: str) -> Scalar:
    """Read a value of a type from a text; ``8/255`` is read exactly.

    Args:
        text: of an option in a spec.
        hint: int, float, bool, str, Literal[...] or one of these | None, with its range.
        what: the value, for errors.

    Raises:
        SpecError: if the text is no value of the type, or out of its range.
        PluginError: if the type is not one of these.
    """
    try:
        value: Scalar = _reader(hint, "text")(text)
    except _Invalid as error:
        raise SpecError(error.describe("", what, "").removeprefix("In , ")) from None
    except TypeError as error:
        raise PluginError(
            f"{what} has {error}; options are int, float, bool, str, Literal[...] or one of these | None."
        ) from None
    return value


def read_untyped(text: str) -> Any:
    """Read a text as JSON, or return the text if it is no JSON."""
    with suppress(ValueError):
        return json.loads(text)
    return text


class _Invalid(Exception):
    """A wrong value, with a function (file, keys, listing) -> sentence and the keys that lead to the value."""

    def __init__(self, describe: Callable[[str, str, str], str]) -> None:
        self.describe = describe
        self.keys: list[str] = []  # ".optimizer", ".betas", "[0]"


def _at(key: str, reader: Reader, value: Any) -> Any:
    """Read the value of a key, which is added to the keys of an error."""
    try:
        return reader(value)
    except _Invalid as error:
        error.keys.insert(0, key)
        raise


def _wrong(value: Any, wanted: object) -> _Invalid:
    shown = _SHORT.repr(value)
    return _Invalid(lambda where, path, _: f"In {where}, {path or 'the whole'} is {shown}; it must be {wanted}.")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


# --- tables -----------------------------------------------------------------------------------------------------------


def _make(cls: Any, data: Any, style: Style, given: Mapping[str, Any]) -> Any:
    if not isinstance(data, Mapping):
        raise _wrong(data, "a table")
    readers, required = _fields(cls, style)
    known = readers.keys() - given.keys() if given else readers.keys()
    if style != "json" and (extra := [key for key in data if key not in known]):
        raise _Invalid(
            lambda where, path, listing: str(
                unknown(f"key in {f'{path} of ' if path else ''}{where}", extra[0], known, listing)
            )
        )
    if missing := [f".{name}" for name in required if name not in data and name in known]:
        raise _Invalid(
            lambda file, path, _: f"{file} lacks {', '.join(f'{path}{key}'.lstrip('.') for key in missing)}."
        )
    return cls(**given, **{key: _at(f".{key}", readers[key], data[key]) for key in data if key in known})


@functools.cache
def _fields(cls: Any, style: Style) -> tuple[dict[str, Reader], list[str]]:
    """Return the reader of each field of a class, and the fields without a default."""
    hints, fields = get_type_hints(cls, include_extras=True), inspect.signature(cls).parameters
    required = [name for name, field in fields.items() if field.default is field.empty]
    return {name: _reader(hints[name], style) for name in fields}, required


def _mapping(read_key: Reader, read_value: Reader, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, "a table")
    return {read_key(key): _at(f".{key}", read_value, item) for key, item in value.items()}


def _list(read_item: Reader, length: int | None, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or length not in (None, len(value)):
        raise _wrong(value, f"a list of {length}" if length else "a list")
    return tuple(_at(f"[{number}]", read_item, item) for number, item in enumerate(value))


# --- values -----------------------------------------------------------------------------------------------------------


@functools.cache
def _reader(hint: Any, style: Style) -> Reader:
    """Return the function that checks and converts a value of a type.

    Raises:
        TypeError: if the value is a text, and the type none of an option.
    """
    if hint == Option:
        return _option
    if hint == Printed:
        return functools.partial(_scalar, float, "json")
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        constraints = [mark for mark in arguments[1:] if isinstance(mark, Range | Rule)]
        return functools.partial(_constrained, _reader(arguments[0], style), constraints, style)
    if origin is Literal:
        return functools.partial(_one_of, arguments, style)
    kinds = [each for each in arguments if each is not types.NoneType]
    if origin in (Union, types.UnionType) and (style != "text" or len(kinds) == 1):
        readers = [_reader(each, style) for each in kinds]
        return functools.partial(_any_of, types.NoneType in arguments, readers, style)
    if style == "text" and hint not in _SCALARS:
        raise TypeError("no type" if hint is inspect.Parameter.empty else f"the type {hint!r}")
    if origin in (tuple, Sequence):
        length = len(arguments) if origin is tuple and arguments[-1] is not Ellipsis else None
        return functools.partial(_list, _reader(arguments[0], style), length)
    if origin is Mapping:
        return functools.partial(_mapping, *(_reader(each, style) for each in arguments))
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return lambda value: _make(hint, value, style, {})
    return functools.partial(_scalar, hint, style)


def _constrained(reader: Reader, constraints: Sequence[Range | Rule], style: Style, value: Any) -> Any:
    found = reader(value)
    for constraint in constraints:
        if found not in constraint:
            raise _wrong(found if style == "text" else value, constraint)
    return found


def _option(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise _wrong(value, "text, a number, true or false")
    return value if isinstance(value, str) else json.dumps(value)


def _one_of(choices: tuple[Any, ...], style: Style, value: Any) -> Any:
    for choice in choices:
        if value == (format_value(choice) if style == "text" else choice):
            return choice
    raise _wrong(value, f"one of {', '.join(str(choice) or repr(choice) for choice in choices)}")


def _any_of(allows_none: bool, readers: Sequence[Reader], style: Style, value: Any) -> Any:
    """Read the value by the first type that allows it; an error is that of the last type."""
    if allows_none and (value.lower() == "none" if style == "text" else value is None):
        return None
    for reader in readers[:-1]:
        with suppress(_Invalid):
            return reader(value)
    return readers[-1](value)


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SCALARS: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a finite number", lambda text: float(Fraction(text) if "/" in text else text)),
    bool: ("true or false", lambda text: _TRUTH[text.lower()]),
    str: ("text", str),
}
"""The words for a type in errors, and the reader of its text in options."""


def _scalar(kind: Any, style: Style, value: Any) -> Any:
    if kind is Any:
        return value
    found = value
    with suppress(KeyError, ValueError, ZeroDivisionError, OverflowError):
        if style == "text":
            found = _SCALARS[kind][1](value)
        elif kind is float and (type(value) is int or (style == "json" and value in ("nan", "inf", "-inf"))):
            found = float(value)
    if type(found) is not kind or (kind is float and style != "json" and not math.isfinite(found)):
        raise _wrong(value, "a number" if kind is float and style == "json" else _SCALARS[kind][0])
    if kind is int and not -(2**63) <= found < 2**63:
        raise _wrong(value, "a whole number of at most 63 bits")
    return found
