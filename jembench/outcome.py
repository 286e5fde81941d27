"""What a cell, one fit x one metric, came to: the plain values that the store writes and the report reads.

As JSON, a number that is not finite is one of the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from jembench.errors import StoreError
from jembench.interfaces import Value

SCHEMA = 1
"""The version of the JSON below. A reader refuses a newer one."""

Status = Literal["ok", "na", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FitKey:
    """Which trained model a cell is about."""

    model: str  # canonical spec
    dataset: str  # canonical spec
    recipe: str  # its name and what was overridden: "digits+iterations=50"
    seed: int
    id: str  # hash
    family: str = ""  # hash of all but the seed; "": of an earlier version


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Values; or why there cannot be any ("na"); or what went wrong ("failed")."""

    status: Status
    protocol: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    reason: str = ""  # why not applicable, or the last line of the error
    traceback: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON
    seconds: float = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether it need not be computed again: it has values, or is N/A for what its model is.

        One that failed, that waits for something to be installed, or that had no time for all images is tried again.
        """
        return (self.status == "ok" and "partial" not in self.details) or bool(self.details.get("settled"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One outcome and where it comes from."""

    id: str
    fit: FitKey
    metric: str  # canonical spec
    outcome: Outcome
    provenance: Mapping[str, Any] = field(default_factory=dict)  # JSON


def to_json(cell: Cell) -> dict[str, Any]:
    """The cell as a JSON value, the schema version included."""
    values = {label: value._asdict() for label, value in cell.outcome.values.items()}
    outcome = {
        "status": cell.outcome.status,
        "protocol": cell.outcome.protocol,
        "values": values,
        "reason": cell.outcome.reason,
        "traceback": cell.outcome.traceback,
        "details": cell.outcome.details,
        "seconds": cell.outcome.seconds,
    }
    record = {
        "schema": SCHEMA,
        "id": cell.id,
        "fit": asdict(cell.fit),
        "metric": cell.metric,
        "outcome": outcome,
        "provenance": cell.provenance,
    }
    encoded: dict[str, Any] = encode(record)
    return encoded


def encode(value: Any) -> Any:
    """``value`` with plain containers, and with strings for the floats that JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def from_json(data: Any, where: str = "the record") -> Cell:
    """Read a cell back; keys that are not known are passed over.

    Args:
        data: what :func:`to_json` gave.
        where: the file's name, for the error.

    Raises:
        StoreError: if a field is missing or of the wrong type, or the schema is newer than :data:`SCHEMA`.
    """
    record = _Record.of(data, "the whole", where)
    schema = record.integer("schema")
    if schema > SCHEMA:
        raise StoreError(
            f"{where} was written by a newer jembench (schema {schema}, this one reads up to {SCHEMA}). "
            "Update jembench, or choose another folder with --store."
        )
    return Cell(
        id=record.text("id"),
        fit=_fit_key(record.record("fit")),
        metric=record.text("metric"),
        outcome=_outcome(record.record("outcome")),
        provenance=record.mapping("provenance"),
    )


def fit_key_from_json(data: Any, where: str = "the record") -> FitKey:
    """Read back ``asdict`` of a :class:`FitKey`.

    Raises:
        StoreError: if a field is missing or of the wrong type.
    """
    return _fit_key(_Record.of(data, "the whole", where))


def _fit_key(record: _Record) -> FitKey:
    return FitKey(
        model=record.text("model"),
        dataset=record.text("dataset"),
        recipe=record.text("recipe"),
        seed=record.integer("seed"),
        id=record.text("id"),
        family=record.text("family") if "family" in record.data else "",
    )


def _outcome(record: _Record) -> Outcome:
    values = record.record("values")
    return Outcome(
        status=record.choice("status", get_args(Status)),
        protocol=record.text("protocol"),
        values={label: _value(values.record(label)) for label in values.data},
        reason=record.text("reason"),
        traceback=record.text("traceback"),
        details=record.mapping("details"),
        seconds=record.number("seconds"),
    )


def _value(record: _Record) -> Value:
    return Value(
        value=record.number("value"),
        low=record.optional_number("low"),
        high=record.optional_number("high"),
        n=record.integer("n"),
        unit=record.text("unit"),
        better=record.choice("better", ("higher", "lower", "")),
    )


class _Record(NamedTuple):
    """A JSON object whose fields are checked as they are read."""

    data: Mapping[str, Any]
    path: str  # "outcome.values.accuracy"
    where: str  # the file

    @classmethod
    def of(cls, data: Any, path: str, where: str) -> _Record:
        if not isinstance(data, Mapping):
            raise _wrong(path, where, "an object", data)
        return cls(data, path, where)

    def _field(self, key: str) -> str:
        return key if self.path == "the whole" else f"{self.path}.{key}"

    def _get(self, key: str) -> Any:
        if key not in self.data:
            raise StoreError(f"{self.where} lacks the field {self._field(key)}. {_REMEDY}")
        return self.data[key]

    def _typed(self, key: str, kind: type, wanted: str) -> Any:
        value = self._get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _wrong(self._field(key), self.where, wanted, value)
        return value

    def text(self, key: str) -> str:
        text: str = self._typed(key, str, "a string")
        return text

    def integer(self, key: str) -> int:
        integer: int = self._typed(key, int, "a whole number")
        return integer

    def mapping(self, key: str) -> Mapping[str, Any]:
        mapping: Mapping[str, Any] = self._typed(key, dict, "an object")
        return mapping

    def record(self, key: str) -> _Record:
        return _Record.of(self._get(key), self._field(key), self.where)

    def number(self, key: str) -> float:
        value = self._get(key)
        if value in ("nan", "inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
            return float(value)
        raise _wrong(self._field(key), self.where, "a number", value)

    def optional_number(self, key: str) -> float | None:
        return None if self._get(key) is None else self.number(key)

    def choice(self, key: str, choices: tuple[Any, ...]) -> Any:
        value = self._get(key)
        if value not in choices:
            raise _wrong(self._field(key), self.where, "one of " + ", ".join(map(repr, choices)), value)
        return value


_REMEDY = "Remove the file and run the same command again; only what it held is done anew."


def _wrong(path: str, where: str, wanted: str, value: Any) -> StoreError:
    shown = repr(value)[:80]
    return StoreError(f"In {where}, {path} is {shown} and must be {wanted}. {_REMEDY}")
