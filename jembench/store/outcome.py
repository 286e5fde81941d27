"""The outcome of a cell: one fit measured by one metric.

The store writes these plain values, and the report reads them.

In JSON, a number that is not finite is one of the strings "nan", "inf" and "-inf".
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from jembench.catalog.spec import Spec
from jembench.catalog.validation import Range, Rule
from jembench.errors import DamagedError, printable
from jembench.interfaces import Value
from jembench.interfaces.evaluation import Stability
from jembench.store.records import REMEDY, Record

Status = Literal["ok", "na", "failed"]
Evaluated = Literal["test", "validation"]
"""The part of a dataset that metrics are computed on."""


def _is_line(text: str) -> bool:
    return text.isprintable() or ("\n" not in text and printable(text) == text)


_LONGEST = 128  # characters of an id: file systems allow names of 255 bytes


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and _is_line(text) and not set(text) & set("/\\*?[]")


def _is_sound(value: Value) -> bool:
    ordered = value.low is None or value.high is None or not value.low > value.high
    return ordered and value.n >= 0 and _is_line(value.unit)


Line = Annotated[str, Rule("one line of text", _is_line)]
PlainSpec = Annotated[Spec, Rule("a spec, name:key=value", _is_line)]
Id = Annotated[str, Rule("a part of a file's name", _is_name)]
SoundValue = Annotated[
    Value, Rule("a value with n >= 0, low <= high and a unit of one line", _is_sound)
]


class Trained(NamedTuple):
    """A model, a dataset and a recipe; the fits differ in their seeds."""

    model: Spec  #: canonical
    dataset: Spec  #: canonical
    recipe: str  #: its name and what was overridden


@dataclass(frozen=True, kw_only=True, slots=True)
class FitKey:
    """The trained model that a cell is about."""

    model: PlainSpec  #: canonical
    dataset: PlainSpec  #: canonical
    recipe: Line  #: its name and what was overridden: "digits+iterations=50"
    seed: int
    id: Id  #: hash
    family: str = ""  #: hash of everything but the seed

    @property
    def names(self) -> Trained:
        """Model, dataset and recipe, which the fits of all seeds share."""
        return Trained(self.model, self.dataset, self.recipe)

    def called(self, model: str) -> str:
        """Return the fit in words, with a display name of its model."""
        return f"{model} on {self.dataset}, recipe {self.recipe}, seed {self.seed}"

    def __str__(self) -> str:
        return self.called(self.model)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A cell's values ("ok"), its reason ("na") or its error ("failed")."""

    status: Status
    protocol: Line = ""
    values: Mapping[Line, SoundValue] = field(default_factory=dict)
    reason: str = ""  #: why not applicable, or the last line of the error
    traceback: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON
    seconds: float = 0.0

    @property
    def is_settled(self) -> bool:
        """True if the cell need not be computed again.

        The cell has values, or its model cannot have any.

        Outcomes that failed, that wait for something to be installed, or that had no time for all
        images are not settled.
        """
        return (self.status == "ok" and "partial" not in self.details) or bool(
            self.details.get("settled")
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """An outcome with its fit, its metric and its provenance."""

    id: Id
    fit: FitKey
    metric: PlainSpec  #: canonical
    outcome: Outcome
    provenance: Mapping[str, Any] = field(default_factory=dict)  #: JSON
    arrays: str = ""  #: SHA-256 of the file of its per-example values; "": it has none

    @property
    def name(self) -> str:
        """The text in the names of the cell's files."""
        return f"{self.metric}-{self.fit.model}-{self.fit.dataset}-s{self.fit.seed}"

    @property
    def limit(self) -> int | None:
        """The number of test images that were evaluated; None: all."""
        return self.provenance.get("limit")

    @property
    def split(self) -> Evaluated:
        """The part of the dataset that was evaluated."""
        split: Evaluated = self.provenance.get("split", "test")
        return split

    @property
    def images(self) -> str:
        """The images that were evaluated, in words; "": all test images."""
        if self.limit:
            return f"{self.limit:,} {self.split} images"
        return "" if self.split == "test" else f"{self.split} images"

    @property
    def time(self) -> str:
        """The time of the measurement, UTC; "": unknown."""
        return str(self.provenance.get("time", ""))


class _Provenance(NamedTuple):
    """The fields of a provenance that reports read.

    A provenance may have any further fields.
    """

    limit: Annotated[int, Range(least=1)] | None = None
    split: Evaluated = "test"
    interventions: tuple[str, ...] = ()
    stability: Stability | None = None
    outputs: tuple[str, ...] = ()  # remarks on the outputs of the model
    time: str = ""


class _Details(NamedTuple):
    """The fields of an outcome's details that reports read.

    Details may have any further fields.
    """

    suspicious: tuple[str, ...] = ()
    partial: str = ""
    chance: float | None = None  # the value of a model that guesses
    undefined: Mapping[str, str] = {}  # label -> why it has no value


def check(outcome: Outcome) -> None:
    """Check that an outcome can be read back once it is written.

    Raises:
        DamagedError: if it cannot; the message says what is wrong.
        TypeError, ValueError: if the outcome cannot be written as JSON.
    """
    record = Record({"outcome": encode(outcome)}, "the measurement")
    json.dumps(record.data, allow_nan=False, ensure_ascii=False).encode()
    _check_contents(record, record.read(Outcome, "outcome"))


def _check_contents(record: Record, outcome: Outcome) -> None:
    """Check an outcome's values and the details that reports read."""
    if outcome.status == "ok" and not outcome.values:
        raise DamagedError(
            f"In {record.where}, outcome.values is {{}}; it must be non-empty, as the status is "
            f"ok. {REMEDY}"
        )
    record.read(_Details, "outcome", "details")


def encode(value: Any) -> Any:
    """Return a value with plain containers.

    Floats that are not finite become strings.
    """
    if dataclasses.is_dataclass(value):
        return {part.name: encode(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Value | Stability):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def from_json(record: Record) -> Cell:
    """Read a cell; unknown keys are ignored.

    Raises:
        DamagedError: if a field is missing, or has a value that no cell can have.
    """
    cell = record.read(Cell)
    _check_contents(record, cell.outcome)
    record.read(_Provenance, "provenance")
    return cell
