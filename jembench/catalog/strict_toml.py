"""TOML, read strictly: an unknown key, a missing one or a value of the wrong type is an error that names it."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from jembench.errors import SpecError, unknown

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Where a number must lie. It stands beside the number's type: ``Annotated[float, Range(above=0)]``."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return self.least <= number <= self.most and self.above < number < self.below

    def __str__(self) -> str:
        limits = {"at least": self.least, "greater than": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {limit:,.12g}" for words, limit in limits.items() if math.isfinite(limit))


def parse(content: bytes, where: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        SpecError: naming ``where``, if it is none.
    """
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also of too many digits or brackets
        raise SpecError(f"{where} is not valid TOML: {error}. Mend the file.") from error


def read(cls: type[T], fields: Mapping[str, Any], where: str, listing: str = "", **given: Any) -> T:
    """Make a dataclass of parsed TOML, checking names and types all the way down.

    Args:
        cls: the dataclass.
        fields: what the file says.
        where: the file, for errors.
        listing: the command that says what each key means, if there is one.
        given: fields that are not the file's to set.

    Raises:
        SpecError: naming ``where``, the key and what it must be.
    """
    hints = get_type_hints(cls, include_extras=True)
    known = {field.name: field for field in dataclasses.fields(cls) if field.name not in given}  # type: ignore[arg-type]
    for key in fields:
        if key not in known:
            raise unknown(f"key in {where}", key, known, listing)
    missing = [
        name
        for name, field in known.items()
        if name not in fields and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise SpecError(f"{where} lacks {', '.join(missing)}. Add it to the file.")
    return cls(
        **given, **{key: _value(hints[key], value, f"{key} of {where}", listing) for key, value in fields.items()}
    )


def _option(value: Any, where: str) -> str:
    """An option of a spec, as the text that stands there."""
    if isinstance(value, Mapping | list):
        raise SpecError(f"{where} is {value!r}; it must be text, a number, true or false.")
    return value if isinstance(value, str) else json.dumps(value)


def _value(hint: Any, value: Any, where: str, listing: str) -> Any:
    if get_origin(hint) is Annotated:
        inner, limits = get_args(hint)
        number = _value(inner, value, where, listing)
        if number not in limits:
            raise SpecError(f"{where} is {json.dumps(number)}; it must be {limits}.")
        return number
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise SpecError(f"{where} is {value!r}; it must be a table.")
        return read(typing.cast(type, hint), value, where, listing)
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise SpecError(f"{where} is {value!r}; it must be a table.")
        return {key: _option(item, f"{key} of {where}") for key, item in value.items()}
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise SpecError(f"{where} is {value!r}; it must be a list.")
        return tuple(_value(get_args(hint)[0], item, where, listing) for item in value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise SpecError(f"{where} is {value!r}; it must be one of {', '.join(get_args(hint))}.")
        return value
    number = float(value) if hint is float and type(value) is int else value
    if type(number) is not hint or (hint is float and not math.isfinite(number)):
        names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
        raise SpecError(f"{where} is {value!r}; it must be {names[hint]}.")
    return number
