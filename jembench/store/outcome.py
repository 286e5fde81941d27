"""What a cell, one fit x one metric, came to: the plain values that the store writes and the report reads.

As JSON, a number that is not finite is one of the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

from jembench.catalog import spec
from jembench.errors import SpecError
from jembench.interfaces import Stability, Value
from jembench.store.records import Fields

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
    arrays: str | None = ""  # SHA-256 of the file of its per-example values; "": it has none; None: not known


def to_json(cell: Cell) -> dict[str, Any]:
    """The cell as a JSON value."""
    record = {
        "id": cell.id,
        "fit": asdict(cell.fit),
        "metric": cell.metric,
        "outcome": _outcome_to_json(cell.outcome),
        "provenance": cell.provenance,
        "arrays": cell.arrays,
    }
    encoded: dict[str, Any] = encode(record)
    return encoded


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    values = {label: value._asdict() for label, value in outcome.values.items()}
    return {
        "status": outcome.status,
        "protocol": outcome.protocol,
        "values": values,
        "reason": outcome.reason,
        "traceback": outcome.traceback,
        "details": outcome.details,
        "seconds": outcome.seconds,
    }


def check(outcome: Outcome) -> None:
    """Whether an outcome could be read back once it is written.

    Raises:
        DamagedError: that says what is wrong.
        TypeError, ValueError: if it is no JSON.
    """
    record = encode(_outcome_to_json(outcome))
    json.dumps(record, allow_nan=False, ensure_ascii=False).encode()
    _outcome(Fields.of(record, "the whole", "what was measured"))


def encode(value: Any) -> Any:
    """``value`` with plain containers, and with strings for the floats that JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def from_json(record: Fields) -> Cell:
    """Read a cell back; keys that are not known are passed over.

    Raises:
        DamagedError: if a field is missing, or is not what a cell can have.
    """
    return Cell(
        id=record.name("id"),
        fit=fit_key_from_json(record.fields("fit")),
        metric=_spec(record, "metric"),
        outcome=_outcome(record.fields("outcome")),
        provenance=_provenance(record.fields("provenance")),
        arrays=record.text("arrays") if record.data.get("arrays") is not None else None,
    )


def fit_key_from_json(record: Fields) -> FitKey:
    """Read back ``asdict`` of a :class:`FitKey`.

    Raises:
        DamagedError: if a field is missing or of the wrong type.
    """
    return FitKey(
        model=_spec(record, "model"),
        dataset=_spec(record, "dataset"),
        recipe=record.line("recipe"),
        seed=record.integer("seed"),
        id=record.name("id"),
        family=record.text("family") if "family" in record.data else "",
    )


def _spec(record: Fields, key: str) -> str:
    text = record.line(key)
    if not _is_spec(text):
        raise record.wrong(key, "a spec, name:key=value")
    return text


@lru_cache(maxsize=10_000)
def _is_spec(text: str) -> bool:
    try:
        spec.parse(text)
    except SpecError:
        return False
    return True


def stability_from_json(record: Fields) -> Stability | None:
    """Read the field ``stability`` of a record; None where it is null or missing.

    Raises:
        DamagedError: if a part of it is missing or of the wrong type.
    """
    if record.data.get("stability") is None:
        return None
    fields = record.fields("stability")
    return Stability(
        criterion=fields.text("criterion"),
        iterations=fields.integer("iterations", least=1),
        diverged_at=None if fields.data.get("diverged_at") is None else fields.integer("diverged_at", least=0),
        reason=fields.text("reason"),
        remedies=tuple(fields.texts("remedies")),
        ended_with=fields.text("ended_with"),
    )


def _provenance(record: Fields) -> Mapping[str, Any]:
    """Free, but for what reports go by."""
    if record.data.get("limit") is not None:
        record.integer("limit", least=1)
    if "interventions" in record.data:
        record.texts("interventions")
    stability_from_json(record)
    for key in ("time", "asked_for"):
        if key in record.data:
            record.text(key)
    return record.data


def _outcome(record: Fields) -> Outcome:
    status = record.choice("status", get_args(Status))
    values = record.fields("values")
    if status == "ok" and not values.data:
        raise record.wrong("values", "what was measured, since status is ok")
    return Outcome(
        status=status,
        protocol=record.line("protocol"),
        values={_label(label, values): _value(values.fields(label)) for label in values.data},
        reason=record.text("reason"),
        traceback=record.text("traceback"),
        details=_details(record.fields("details")),
        seconds=record.number("seconds"),
    )


def _label(label: str, values: Fields) -> str:
    return Fields({"label": label}, values.path, values.where).line("label")


def _details(record: Fields) -> Mapping[str, Any]:
    """Free, but for what reports go by."""
    if "suspicious" in record.data:
        record.texts("suspicious")
    if "partial" in record.data:
        record.text("partial")
    return record.data


def _value(record: Fields) -> Value:
    low, high = record.optional_number("low"), record.optional_number("high")
    if low is not None and high is not None and low > high:
        raise record.wrong("low", f"no more than high, which is {high:g}")
    return Value(
        value=record.number("value"),
        low=low,
        high=high,
        n=record.integer("n", least=0),
        unit=record.line("unit"),
        better=record.choice("better", ("higher", "lower", "")),
    )
