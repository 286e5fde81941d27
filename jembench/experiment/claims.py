"""Claims: what is said of a model's values, so that a store can be asked whether it holds. Imports no torch.

Those of papers are TOML files in ``claims/`` of every suite package, a file for each paper; those of an experiment
stand in its own file. The layout is described at the head of ``jem-iclr2020.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple, get_args

from jembench.catalog import packages, validation
from jembench.catalog.validation import Option
from jembench.errors import PluginError, SpecError

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
    """The source of a claim: a paper, or an experiment's file."""

    title: str
    cite: str  # authors, venue
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The claim that one value is higher, or lower, than another."""

    id: str  # "jem-iclr2020/calibrated"
    paper: Paper
    text: str
    where: str  # in the paper: "Table 1"; "": it is of an experiment
    metric: str = ""  # spec; "": nothing can measure it
    label: str = ""  # of the metric's values; "": its only one
    direction: Direction = "higher"
    model: str = ""  # a component's name, or a spec with options that the model must have
    than: float | str = ""  # another's, or a number
    than_metric: str = ""  # spec; "": the same
    than_label: str = ""  # of its values; "": ``label``
    alike: tuple[str, ...] = ()  # parts of the protocol that must be the same; (): all, or none of two metrics
    within: float = 0.0  # how far on the other side the value may lie
    each: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)  # option of the metrics -> values
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
    """The claims of one paper's file.

    Raises:
        PluginError: if the file is not of the layout; the message says where.
    """
    try:
        of_file = validation.read(_File, validation.parse(file.read_bytes(), str(file)), str(file))
        return [
            validation.read(Claim, in_fields(stem, table), f"claim {stem}/{table.get('id')}", paper=of_file.paper)
            for table in of_file.claim
        ]
    except SpecError as error:
        raise PluginError(
            f"The file of claims {file} cannot be used: {error} Correct it, or tell the author of its package."
        ) from error


class _File(NamedTuple):
    paper: Paper
    claim: tuple[Mapping[str, Any], ...]


def in_fields(stem: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A ``[[claim]]`` of a file in the form of :class:`Claim`, but for its paper.

    Args:
        stem: the name of the file, with which the claim's id begins.
        table: as the file has it.

    Raises:
        SpecError: if it does not say what is higher or lower than what, and how that is measured.
    """
    name = f"{stem}/{table.get('id')}"
    fields = dict(table) | ({"id": name} if "id" in table else {})
    directions = [direction for direction in get_args(Direction) if direction in fields]
    if len(directions) != ("unmeasured" not in fields):
        raise SpecError(f"{name} must have one of higher and lower, or else unmeasured.")
    for direction in directions:
        model = fields.pop(direction)
        fields |= {"direction": direction, "model": model, "than": fields.get("than", model)}
        if table.keys().isdisjoint({"than", "than_metric"}):
            raise SpecError(f"{name} has neither than nor than_metric: nothing to be {direction} than.")
        if missing := [key for key in ("metric", "measure") if key not in fields]:
            raise SpecError(f"{name} lacks {', '.join(missing)}. Add it to the file.")
    if isinstance(pairs := fields.get("recipes"), list):
        fields["recipes"] = [dict(zip(Recipes._fields, pair, strict=False)) for pair in pairs]
    return fields
