"""Checks what TOML and JSON files say against dataclasses: names, types and ranges, all the way down.

An error names the file, the key, the value and what is allowed. Every file of a fixed layout is read here: recipes,
suites, published numbers, claims and the records of a store.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import reprlib
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from jembench.errors import JembenchError, SpecError, unknown

T = TypeVar("T")
Reader = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The numbers that are allowed: ``Annotated[float, Range(above=0)]``."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return self.least <= number <= self.most and self.above < number < self.below

    def __str__(self) -> str:
        limits = {"at least": self.least, "greater than": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {limit:,.12g}" for words, limit in limits.items() if math.isfinite(limit))


class Rule(NamedTuple):
    """A condition on a value: ``Annotated[str, Rule("one line of text", is_line)]``."""

    wanted: str
    holds: Callable[[Any], bool]

    def __contains__(self, value: object) -> bool:
        return self.holds(value)

    def __str__(self) -> str:
        return self.wanted


Option = Annotated[str, "option of a spec"]
"""The value of an option in a spec: text, or a number or a boolean that becomes text."""


Printed = Annotated[float, "as printed"]
"""A number that may be nan."""


class Format(NamedTuple):
    """How strictly a kind of file is read, and the end of its errors."""

    error: type[JembenchError]
    remedy: str
    is_json: bool  # unknown keys are ignored; "nan", "inf" and "-inf" are numbers


TOML = Format(SpecError, "", is_json=False)


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
        cls: the class. Its type hints say what is allowed.
        data: the table.
        where: the file, for errors.
        listing: the command that explains each key, if there is one.
        form: the kind of file.
        path: the keys that lead to the table, if it is a part of the file.
        given: fields that the file may not set.

    Raises:
        SpecError: or ``form.error``, naming the file, the key and what it must be.
    """
    try:
        made: T = _make(cls, data, form.is_json, given)
    except _Invalid as error:
        keys = "".join([path, *error.keys]).removeprefix(".")
        if isinstance(error, _Unknown):
            raise unknown(f"key in {f'{keys} of ' if keys else ''}{where}", error.key, error.known, listing) from None
        raise form.error(f"{error.describe(where, keys)} {form.remedy}".rstrip()) from None
    return made


class _Invalid(Exception):
    """A wrong value, and the keys that lead to it."""

    def __init__(self, describe: Callable[[str, str], str] = "".format) -> None:
        self.describe = describe  # (file, path) -> a sentence
        self.keys: list[str] = []  # ".optimizer", ".betas", "[0]"


class _Unknown(_Invalid):
    """A key that is not allowed, and those that are."""

    def __init__(self, key: str, known: Iterable[str]) -> None:
        super().__init__()
        self.key, self.known = key, known


def _wrong(value: Any, wanted: object) -> _Invalid:
    return _Invalid(lambda where, path: f"In {where}, {path or 'the whole'} is {_shown(value)}; it must be {wanted}.")


def _lacking(names: Sequence[str], is_json: bool) -> _Invalid:
    def describe(where: str, path: str) -> str:
        lacking = ", ".join(f"{path}.{name}".removeprefix(".") for name in names)
        return f"{where} lacks {lacking}.{'' if is_json else ' Add it to the file.'}"

    return _Invalid(describe)


def _shown(value: Any) -> str:
    shown = reprlib.Repr()
    shown.maxstring = shown.maxother = 200
    return shown.repr(value)


# --- tables -----------------------------------------------------------------------------------------------------------


def _make(cls: Any, data: Any, is_json: bool, given: Mapping[str, Any]) -> Any:
    if not isinstance(data, Mapping):
        raise _wrong(data, "a table")
    readers, required = _fields(cls, is_json)
    known = readers.keys() - given.keys() if given else readers.keys()
    if not is_json and (extra := [key for key in data if key not in known]):
        raise _Unknown(extra[0], known)
    if missing := [name for name in required if name not in data and name in known]:
        raise _lacking(missing, is_json)
    return cls(**given, **_read_each({key: readers[key] for key in data if key in known}, data))


def _read_each(readers: Mapping[str, Reader], data: Mapping[str, Any]) -> dict[str, Any]:
    key, found = "", {}
    try:
        for key, reader in readers.items():
            found[key] = reader(data[key])
    except _Invalid as error:
        error.keys.insert(0, f".{key}")
        raise
    return found


@functools.cache
def _fields(cls: Any, is_json: bool) -> tuple[dict[str, Reader], list[str]]:
    """The reader of each field of a class, and the fields without a default."""
    if dataclasses.is_dataclass(cls):
        every = dataclasses.fields(cls)
        names = [field.name for field in every]
        required = [f.name for f in every if f.default is f.default_factory is dataclasses.MISSING]
    else:
        names, required = cls._fields, [name for name in cls._fields if name not in cls._field_defaults]
    hints = get_type_hints(cls, include_extras=True)
    return {name: _reader(hints[name], is_json) for name in names}, required


def _mapping(read_key: Reader, read_value: Reader, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, "a table")
    return _read_each({read_key(key): read_value for key in value}, value)


def _list(read_item: Reader, length: int | None, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or length not in (None, len(value)):
        raise _wrong(value, f"a list of {length}" if length else "a list")
    found: list[Any] = []
    try:
        found.extend(map(read_item, value))
    except _Invalid as error:
        error.keys.insert(0, f"[{len(found)}]")
        raise
    return tuple(found)


# --- values -----------------------------------------------------------------------------------------------------------


@functools.cache
def _reader(hint: Any, is_json: bool) -> Reader:
    """The function that checks and converts a value of a type."""
    if hint == Option:
        return _option
    if hint == Printed:
        return functools.partial(_scalar, float, True)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _constrained(arguments[0], arguments[1:], is_json)
    if origin is Literal:
        return functools.partial(_one_of, arguments)
    if origin in (Union, types.UnionType):
        readers = [_reader(each, is_json) for each in arguments if each is not types.NoneType]
        return functools.partial(_any_of, types.NoneType in arguments, readers)
    if origin in (tuple, Sequence):
        length = len(arguments) if origin is tuple and arguments[-1] is not Ellipsis else None
        return functools.partial(_list, _reader(arguments[0], is_json), length)
    if origin is frozenset:
        read_list = functools.partial(_list, _reader(arguments[0], is_json), None)
        return lambda value: frozenset(read_list(value))
    if origin is Mapping:
        return functools.partial(_mapping, *(_reader(each, is_json) for each in arguments))
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return lambda value: _make(hint, value, is_json, {})
    return functools.partial(_scalar, hint, is_json)


def _constrained(hint: Any, constraints: Iterable[Any], is_json: bool) -> Reader:
    reader = _reader(hint, is_json)

    def read_constrained(value: Any) -> Any:
        found = reader(value)
        for constraint in constraints:
            if found not in constraint:
                raise _wrong(value, constraint)
        return found

    return read_constrained


def _option(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise _wrong(value, "text, a number, true or false")
    return value if isinstance(value, str) else json.dumps(value)


def _one_of(choices: tuple[Any, ...], value: Any) -> Any:
    if value not in choices:
        raise _wrong(value, f"one of {', '.join(str(choice) or repr(choice) for choice in choices)}")
    return value


def _any_of(allows_none: bool, readers: Sequence[Reader], value: Any) -> Any:
    """The value as the first type that it has; an error is that of the last."""
    if value is None and allows_none:
        return None
    for reader in readers[:-1]:
        with suppress(_Invalid):
            return reader(value)
    return readers[-1](value)


_NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}


def _scalar(kind: Any, is_json: bool, value: Any) -> Any:
    if kind is Any:
        return value
    if kind is float and (type(value) is int or (is_json and value in ("nan", "inf", "-inf"))):
        with suppress(OverflowError):
            return float(value)
    wrong = type(value) is not kind or (kind is int and not -(2**63) <= value < 2**63)
    if wrong or (kind is float and not is_json and not math.isfinite(value)):
        raise _wrong(value, "a number" if is_json and kind is float else _NAMES[kind])
    return value
