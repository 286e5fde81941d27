"""The claims of papers, from the TOML files in ``claims/`` of every suite package.

A file is one paper. The layout is described at the head of ``jem-iclr2020.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from jembench.catalog import packages
from jembench.report.references import from_toml, only

ANY = "*"
Direction = Literal["higher", "lower"]


class Recipes(NamedTuple):
    """The recipe of a claim's model and that of what it is compared with; ``*`` stands for the same text in both."""

    own: str = ANY
    other: str = ANY

    def other_of(self, label: str) -> str | None:
        """The recipe that belongs to one of ours; None if ours is not meant."""
        head, star, tail = self.own.partition(ANY)
        if not star:
            return self.other if label == head else None
        if len(label) < len(head) + len(tail) or not (label.startswith(head) and label.endswith(tail)):
            return None
        return self.other.replace(ANY, label[len(head) : len(label) - len(tail)])


class Paper(NamedTuple):
    """The source of a claim."""

    title: str
    cite: str  # authors, venue
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The claim that one value is higher, or lower, than another."""

    id: str  # "jem-iclr2020/calibrated"
    paper: Paper
    text: str
    where: str  # in the paper: "Table 1"
    metric: str = ""  # spec; "": nothing can measure it
    label: str = ""  # of the metric's values; "": its only one
    direction: Direction = "higher"
    model: str = ""  # a component's name, or a spec with options that the model must have
    than: str | float = ""  # another's, or a number
    than_metric: str = ""  # spec; "": the same
    than_label: str = ""  # of its values; "": ``label``
    alike: tuple[str, ...] = ()  # parts of the protocol that must be the same; (): all, or none of two metrics
    within: float = 0.0  # how far on the other side the value may lie
    each: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # option of the metrics -> values
    free: tuple[str, ...] = ()  # options of the metrics that may be anything, the same under both
    recipes: tuple[Recipes, ...] = (Recipes(),)
    measure: tuple[str, ...] = ()  # commands
    unmeasured: str = ""  # why nothing can measure it
    not_on_digits: str = ""  # why digits cannot judge it, or not all of ``each``

    @property
    def margin(self) -> float:
        """The difference at which it starts to hold is minus this."""
        return self.within if self.direction == "higher" else -self.within

    @property
    def models(self) -> list[str]:
        """The components that it is about."""
        return [self.model] if isinstance(self.than, float) or self.than == self.model else [self.model, self.than]


def load() -> list[Claim]:
    """Every claim of every paper.

    Raises:
        PluginError: for a file that is not of the layout.
    """
    return [claim for stem, file in sorted(packages.files("claims").items()) for claim in read(stem, file)]


def read(stem: str, file: Traversable) -> list[Claim]:
    """The claims of one file.

    Raises:
        PluginError: if the file is not of the layout; the message says where.
    """
    return from_toml(file, "file of claims", lambda data: _claims(stem, data))


def _claims(stem: str, data: Mapping[str, Any]) -> list[Claim]:
    only(data, {"paper", "claim"}, "the file, which")
    only(data["paper"], Paper._fields, "paper, which")
    paper = Paper(*(data["paper"][name] for name in Paper._fields))
    return [_claim(stem, claim, paper) for claim in data["claim"]]


_OF_EVERY_CLAIM = {"id", "text", "where"}
_DERIVED = {"paper", "direction", "model", "unmeasured"}  # fields of a claim that are no keys of the file
_KEYS = {field.name for field in fields(Claim)} - _DERIVED


def _claim(stem: str, claim: Mapping[str, Any], paper: Paper) -> Claim:
    name = f"{stem}/{claim['id']}"
    if "unmeasured" in claim:
        only(claim, {*_OF_EVERY_CLAIM, "unmeasured"}, f"{claim['id']}, which")
        return Claim(**{**claim, "id": name, "paper": paper})
    direction = _direction(claim)
    only(claim, {*_KEYS, direction}, f"{claim['id']}, which")
    if "than" not in claim and "than_metric" not in claim:
        raise ValueError(f"{claim['id']} has neither than nor than_metric: nothing to be {direction} than")
    for needed in ("text", "where", "metric", "measure"):
        if needed not in claim:
            raise KeyError(needed)
    model, given = claim[direction], {key: _value(value) for key, value in claim.items() if key != direction}
    recipes = tuple(Recipes(*pair) for pair in claim.get("recipes", [[ANY, ANY]]))
    of_claim = {"id": name, "paper": paper, "direction": direction, "model": model, "recipes": recipes}
    return Claim(**{"than": model, **given, **of_claim})


def _value(value: Any) -> Any:
    """A value of a claim as its field holds it."""
    if isinstance(value, Mapping):
        return {option: tuple(map(str, values)) for option, values in value.items()}
    if isinstance(value, list):
        return tuple(value)
    return float(value) if isinstance(value, int) else value


def _direction(claim: Mapping[str, Any]) -> Direction:
    if ("higher" in claim) == ("lower" in claim):
        raise ValueError(f"{claim['id']} must have one of higher and lower")
    return "higher" if "higher" in claim else "lower"
