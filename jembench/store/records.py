"""Records: JSON files with a digest of their own text, and objects whose fields are checked as they are read.

The digest is the last line of a record. It is the SHA-256 of all the text before it, so that any edit is seen. Records
of schema 1 were written without one. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from jembench import files
from jembench.errors import DamagedError, StoreError, printable

SCHEMA = 2
"""The version of all records. A reader refuses a newer one."""

LARGEST = 64 * 2**20
"""The size in bytes above which a file is not taken for a record."""

REMEDY = "Remove the file and run the same command again; only its content is computed again."

_DIGEST = ',\n  "digest": "'


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a record, atomically, with its schema and its digest. Numbers that are not finite are a bug of the caller.

    Raises:
        StoreError: if it cannot be written.
    """
    text = json.dumps({"schema": SCHEMA, **fields}, indent=2, allow_nan=False, ensure_ascii=False)
    text = text.removesuffix("\n}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    files.write_bytes(path, f'{text}{_DIGEST}{digest}"\n}}\n'.encode())


def read(path: Path) -> Fields:
    """Read a record. It is what was written, unless its schema is 1.

    Raises:
        FileNotFoundError: if there is no such file, which may be normal: the caller decides.
        DamagedError: if the file cannot be read, or is not what was written.
        StoreError: if it was written by a newer version.
    """
    try:
        text = files.read_bytes(path, LARGEST)
        record = _DECODER.decode(text.decode())
        if b"\\u" in text:
            json.dumps(record, ensure_ascii=False).encode()  # an escape may be half a character, which no text holds
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(str(path)) from error
    except OSError as error:
        raise DamagedError(
            f"Cannot read {path}: {error.strerror}. Make it a file that you may read, or choose another folder with "
            "--store."
        ) from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not valid JSON ({error}): it was cut short or edited. {REMEDY}") from error
    fields = Fields.of(record, "the whole", str(path))
    schema = fields.integer("schema", least=1) if "schema" in record else 1
    if schema > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer jembench (schema {schema}, this one reads up to {SCHEMA}). "
            "Update jembench, or choose another folder with --store."
        )
    if schema > 1 or "digest" in record:
        _check(text, fields)
    return fields if text.isascii() and b"\\" not in text else fields._replace(data=_printable(record))


def _printable(value: Any) -> Any:
    """A JSON value with all its texts made safe for a terminal."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def _check(text: bytes, record: Fields) -> None:
    written, _, end = text.rpartition(_DIGEST.encode())
    digest = record.text("digest")
    if digest != hashlib.sha256(written).hexdigest() or end != f'{digest}"\n}}\n'.encode():
        raise DamagedError(f"{record.where} is damaged or was edited: its text does not match its digest. {REMEDY}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_no_constant)


class Fields(NamedTuple):
    """A JSON object whose fields are checked as they are read. Every method raises DamagedError for a wrong one."""

    data: Mapping[str, Any]
    path: str  # "outcome.values.accuracy"
    where: str  # the file

    @classmethod
    def of(cls, data: Any, path: str, where: str) -> Fields:
        """The fields of ``data``."""
        if not isinstance(data, Mapping):
            raise _wrong(path, where, "an object", data)
        return cls(data, path, where)

    @property
    def is_sealed(self) -> bool:
        """Whether the record carries a digest."""
        return "digest" in self.data

    def _path_of(self, key: str) -> str:
        return key if self.path == "the whole" else f"{self.path}.{key}"

    def _get(self, key: str) -> Any:
        if key not in self.data:
            raise DamagedError(f"{self.where} lacks the field {self._path_of(key)}. {REMEDY}")
        return self.data[key]

    def wrong(self, key: str, wanted: str) -> DamagedError:
        """The error for a field that is not what it must be."""
        return _wrong(self._path_of(key), self.where, wanted, self.data[key])

    def text(self, key: str) -> str:
        """A string."""
        value = self._get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def line(self, key: str) -> str:
        """A string that stands in one line of a table."""
        text = self.text(key)
        if "\n" in text or printable(text) != text:
            raise self.wrong(key, "one line of text")
        return text

    def name(self, key: str) -> str:
        """A string that can be a part of a file's name."""
        text = self.line(key)
        if not text or set(text) & set("/\\*?[]"):
            raise self.wrong(key, "a part of a file's name")
        return text

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        return [Fields({key: item}, self.path, self.where).text(key) for item in self._list(key)]

    def integer(self, key: str, least: int = -(2**63)) -> int:
        """A whole number of 64 bits."""
        value = self._get(key)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise self.wrong(key, "a whole number")
        if value < least:
            raise self.wrong(key, f"a whole number of at least {least}")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object, as it is."""
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return value

    def fields(self, key: str) -> Fields:
        """An object, to be checked further."""
        return Fields.of(self._get(key), self._path_of(key), self.where)

    def number(self, key: str) -> float:
        """A number; one that is not finite is a string in JSON."""
        value = self._get(key)
        if value in ("nan", "inf", "-inf") or type(value) is float or (type(value) is int and abs(value) < 2**63):
            return float(value)
        raise self.wrong(key, "a number")

    def numbers(self, key: str) -> list[float]:
        """A list of numbers."""
        return [Fields({key: item}, self.path, self.where).number(key) for item in self._list(key)]

    def objects(self, key: str) -> list[Fields]:
        """A list of objects, to be checked further."""
        return [Fields.of(item, f"{self._path_of(key)}[{i}]", self.where) for i, item in enumerate(self._list(key))]

    def _list(self, key: str) -> list[Any]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def optional_number(self, key: str) -> float | None:
        """A number or null."""
        return None if self._get(key) is None else self.number(key)

    def choice(self, key: str, choices: tuple[Any, ...]) -> Any:
        """One of some values."""
        value = self._get(key)
        if value not in choices:
            raise self.wrong(key, "one of " + ", ".join(map(repr, choices)))
        return value


def _wrong(path: str, where: str, wanted: str, value: Any) -> DamagedError:
    return DamagedError(f"In {where}, {path} is {reprlib.repr(value)} and must be {wanted}. {REMEDY}")
