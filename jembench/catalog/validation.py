"""The reader of TOML, JSON and options, which checks names, types and ranges.

Tables within tables are checked too. An error names the file, the key, the value and what is
allowed. All files of a fixed layout are read here: recipes, suites, published numbers, claims and
the records of a store.
"""

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
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.errors import JembenchError, PluginError, SpecError, printable, unknown

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A range of numbers: ``Annotated[float, Range(above=0)]``."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, number: float | None) -> bool:
        """Return whether a number is in the range; True for None."""
        if number is None:
            return True
        return self.least <= number <= self.most and self.above < number < self.below

    @property
    def wanted(self) -> str:
        """The limits in words."""
        limits = []
        for words, limit in (
            ("at least", self.least),
            ("greater than", self.above),
            ("at most", self.most),
            ("below", self.below),
        ):
            if math.isfinite(limit):
                limits.append(f"{words} {limit:,.12g}")
        return " and ".join(limits)


class Rule(NamedTuple):
    """A condition on a value: ``Annotated[str, Rule("one line of text", is_line)]``."""

    wanted: str
    holds: Callable[[Any], object]


Option = Annotated[str, "option of a spec"]
"""The value of an option in a spec: text, or a number or a boolean, which is converted to text."""


Filled = Annotated[str, Rule("text that is not empty", str.strip)]
"""A text that holds more than blanks."""

Printed = Annotated[float, "as printed"]
"""A number that may be nan."""


class Format(NamedTuple):
    """A kind of file: its error, the end of messages, and the style of values.

    The style is TOML; JSON, where unknown keys and the numbers "nan", "inf" and "-inf" are allowed;
    or the text of an option.
    """

    error: type[JembenchError]
    remedy: str
    style: Literal["toml", "json", "text"]


TOML = Format(SpecError, "", "toml")
_TEXT = Format(SpecError, "", "text")


def parse(content: bytes, where: str) -> dict[str, Any]:
    """Parse TOML, whose texts are made safe for a terminal.

    Raises:
        SpecError: if it is not valid; the message names the file ``where``.
    """
    try:
        table: dict[str, Any] = printable_data(tomllib.loads(content.decode()))
        return table
    except (ValueError, RecursionError) as error:  # also for too many digits or brackets
        raise SpecError(f"{where} is not valid TOML: {error}. Correct the file.") from error


def read(
    cls: type[T],
    data: Any,
    where: str,
    listing: str = "",
    *,
    form: Format = TOML,
    path: str = "",
    **given: Any,
) -> T:
    """Make a dataclass or a named tuple from a table of a file.

    Args:
        cls: the class, whose type hints give the allowed values.
        data: the table.
        where: the file, for errors.
        listing: the command that explains each key, if there is one.
        form: the kind of file.
        path: the keys that lead to the table, if it is a part of the file: ".optimizer".
        given: values of fields that the file may not set.

    Raises:
        SpecError: or ``form.error``, if a value is not allowed; the message names the file, the key
        and the allowed values.
    """
    made: T = _Reader(form, where, listing).table(cls, data, path, given)
    return made


def read_text(text: str, hint: Any, what: str) -> Scalar:
    """Read a value of a type from a text; ``8/255`` is read exactly.

    Args:
        text: of an option in a spec.
        hint: int, float, bool, str, Literal[...] or one of these | None, with its range.
        what: the value, for errors.

    Raises:
        SpecError: if the text is no value of the type, or out of its range.
        PluginError: if ``hint`` is another type.
    """
    value: Scalar = _Reader(_TEXT).value(hint, text, what)
    return value


def check_value(value: Any, hint: Any, what: str) -> Any:
    """Check a Python caller's value like a file's, and return it.

    Args:
        value: of any type; a number of NumPy becomes one of Python.
        hint: the allowed type, with its range.
        what: the name of the value, for errors.

    Raises:
        SpecError: if it has another type, or is out of range.
    """
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    return _Reader(TOML).value(hint, value, what)


def read_untyped(text: str) -> Any:
    """Read a text as JSON, or return the text if it is no JSON."""
    with suppress(ValueError):
        return printable_data(json.loads(text))
    return text


def printable_data(value: Any) -> Any:
    """Return a value of JSON or TOML with all its texts made safe for a terminal."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): printable_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(printable_data, value))
    return value


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SCALARS: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a finite number", lambda text: float(Fraction(text) if "/" in text else text)),
    bool: ("true or false", lambda text: _TRUTH[text.lower()]),
    str: ("text", str),
}
"""The words for a type in errors, and the reader of its text in options."""


class _Reader(NamedTuple):
    """The reader of one file or option.

    ``path`` in a method has the keys that lead to a value, such as ".optimizer.betas[0]".
    """

    form: Format
    where: str = ""  # "" for an option
    listing: str = ""

    def table(self, cls: Any, data: Any, path: str, given: Mapping[str, Any]) -> Any:
        """Make a dataclass or a named tuple."""
        if not isinstance(data, Mapping):
            raise self.wrong(data, "a table", path)
        hints, required = _fields(cls)
        allowed = hints.keys() - given.keys()
        unexpected = [key for key in data if key not in allowed]
        if unexpected and self.form.style != "json":
            place = f"{path.removeprefix('.')} of {self.where}" if path else self.where
            raise self.error(str(unknown(f"key in {place}", unexpected[0], allowed, self.listing)))
        missing = [name for name in required if name in allowed and name not in data]
        if missing:
            places = [f"{path}.{name}".lstrip(".") for name in missing]
            raise self.error(f"{self.where} lacks {', '.join(places)}.")
        values = {}
        for key in data:
            if key in allowed:
                values[key] = self.value(hints[key], data[key], f"{path}.{key}")
        return cls(**given, **values)

    def value(self, hint: Any, value: Any, path: str) -> Any:
        """Check and convert a value of a type, its parts first."""
        origin, style = get_origin(hint), self.form.style
        if hint is Any and style != "text":
            return value
        if hint in _SCALARS:
            return self.scalar(hint, value, path)
        if hint is Spec:
            return self.spec(value, path)
        if origin is Annotated:
            return self._annotated(hint, value, path)
        if origin is Literal:
            return self._choice(get_args(hint), value, path)
        if origin in (Union, types.UnionType):
            kinds = [kind for kind in get_args(hint) if kind is not types.NoneType]
            if style != "text" or len(kinds) == 1:
                return self._union(kinds, value, path, optional=types.NoneType in get_args(hint))
        if style == "text":
            stated = "no type" if hint is inspect.Parameter.empty else f"the type {hint!r}"
            types_of_options = "int, float, bool, str, Literal[...] or one of these | None"
            raise PluginError(f"{path} has {stated}; options are {types_of_options}.")
        if origin in (tuple, Sequence):
            return self._sequence(hint, value, path)
        if origin is Mapping:
            return self._mapping(hint, value, path)
        return self.table(hint, value, path, {})

    def _annotated(self, hint: Any, value: Any, path: str) -> Any:
        """Check a value of a type with ranges and rules."""
        if hint == Printed:
            return self._replace(form=self.form._replace(style="json")).scalar(float, value, path)
        if hint == Option:
            if not isinstance(value, str | int | float):
                raise self.wrong(value, "text, a number, true or false", path)
            return value if isinstance(value, str) else json.dumps(value)
        kind, *marks = get_args(hint)
        converted = self.value(kind, value, path)
        for mark in marks:
            if isinstance(mark, Range | Rule) and not mark.holds(converted):
                shown = converted if self.form.style == "text" else value
                raise self.wrong(shown, mark.wanted, path)
        return converted

    def _choice(self, choices: Sequence[Any], value: Any, path: str) -> Any:
        """Return the choice that a value names."""
        for choice in choices:
            if value == (format_value(choice) if self.form.style == "text" else choice):
                return choice
        names = [str(choice) or repr(choice) for choice in choices]
        raise self.wrong(value, f"one of {', '.join(names)}", path)

    def _union(self, kinds: Sequence[Any], value: Any, path: str, *, optional: bool) -> Any:
        """Return a value as the first type that allows it."""
        is_none = value.lower() == "none" if self.form.style == "text" else value is None
        if optional and is_none:
            return None
        for kind in kinds[:-1]:
            with suppress(self.form.error):
                return self.value(kind, value, path)
        # if no type allows the value, the last type raises the error
        return self.value(kinds[-1], value, path)

    def _sequence(self, hint: Any, value: Any, path: str) -> tuple[Any, ...]:
        """Check a list, of any length or as long as a tuple's types."""
        arguments = get_args(hint)
        has_length = get_origin(hint) is tuple and arguments[-1] is not Ellipsis
        length = len(arguments) if has_length else None
        if not isinstance(value, list | tuple) or length not in (None, len(value)):
            raise self.wrong(value, f"a list of {length}" if length else "a list", path)
        items = []
        for number, item in enumerate(value):
            items.append(self.value(arguments[0], item, f"{path}[{number}]"))
        return tuple(items)

    def _mapping(self, hint: Any, value: Any, path: str) -> dict[Any, Any]:
        """Check a table whose keys are not fixed."""
        if not isinstance(value, Mapping):
            raise self.wrong(value, "a table", path)
        of_key, of_item = get_args(hint)
        table = {}
        for key, item in value.items():
            table[self.value(of_key, key, path)] = self.value(of_item, item, f"{path}.{key}")
        return table

    def scalar(self, kind: Any, value: Any, path: str) -> Any:
        """Check and convert a number, a boolean or a text."""
        scalar, is_json = value, self.form.style == "json"
        takes_float = type(value) is int or (is_json and value in ("nan", "inf", "-inf"))
        with suppress(KeyError, ValueError, ZeroDivisionError, OverflowError):
            if self.form.style == "text":
                scalar = _SCALARS[kind][1](value)
            elif kind is float and takes_float:
                scalar = float(value)
        # a Spec is text too; True is no number
        is_kind = isinstance(scalar, str) if kind is str else type(scalar) is kind
        if not is_kind or (kind is float and not is_json and not math.isfinite(scalar)):
            wanted = "a number" if kind is float and is_json else _SCALARS[kind][0]
            raise self.wrong(value, wanted, path)
        if kind is int and not -(2**63) <= scalar < 2**63:
            raise self.wrong(value, "a whole number of at most 63 bits", path)
        return scalar

    def spec(self, value: Any, path: str) -> Spec:
        """Check and parse a spec."""
        try:
            return Spec(self.scalar(str, value, path))
        except SpecError:
            raise self.wrong(value, "a spec, name:key=value", path) from None

    def wrong(self, value: Any, wanted: str, path: str) -> JembenchError:
        """Return the error for a value that is not allowed."""
        place = f"In {self.where}, {path.removeprefix('.') or 'the whole'}" if self.where else path
        return self.error(f"{place} is {_SHORT.repr(value)}; it must be {wanted}.")

    def error(self, text: str) -> JembenchError:
        """Return an error of this kind of file."""
        return self.form.error(f"{text} {self.form.remedy}".rstrip())


@functools.cache
def _fields(cls: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the type hint of each field of a class, and the fields without a default."""
    hints, fields = get_type_hints(cls, include_extras=True), inspect.signature(cls).parameters
    required = [name for name, field in fields.items() if field.default is field.empty]
    return {name: hints[name] for name in fields}, required
