"""Claims: statements that one model's value is higher or lower than another's.

The results of a store judge them.

Claims of papers are TOML files in ``claims/`` of suite packages, a file per paper; claims of an
experiment are in its own file. The layout is described at the head of ``jem-iclr2020.toml``.
Imports no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from jembench.catalog import packages, validation
from jembench.catalog.spec import Spec
from jembench.errors import PluginError, SpecError

Direction = Literal["higher", "lower"]


class NamedFit(NamedTuple):
    """A model, and the recipe of its training."""

    model: str  # canonical spec, or the name of an import
    recipe: str = ""  # label; "": any, the same on both sides of a claim


class Paper(NamedTuple):
    """The source of a claim: a paper, or an experiment's file."""

    title: str
    cite: str  # authors, venue
    url: str
    apart: tuple[str, ...] = ()  # recipes that count only in claims that name them
    # of its protocol; verdicts by other recipes have a mark; (): of an experiment
    recipes: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()  # of its protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim that a value is higher or lower than another, or within a threshold."""

    id: str  # "jem-iclr2020/calibrated"
    paper: Paper
    text: str
    where: str  # in the paper: "Table 1"; "": of an experiment
    metric: tuple[Spec, ...] = ()  # each judged separately; (): the claim cannot be measured
    label: str = ""  # of the metric's value; "": its only value
    direction: Direction = "higher"
    # with the higher or lower value; (): all, of a threshold
    fits: tuple[NamedFit, ...] = ()
    than: tuple[NamedFit, ...] = ()  # compared with each of ``fits``; (): the same fits
    number: float | None = None  # the other value, instead of ``than``
    than_metric: tuple[Spec, ...] = ()  # compared with each ``metric``; (): the same metrics
    than_label: str = ""  # of the value of ``than_metric``; "": ``label``
    # parts of the protocol that must be the same; (): all, or none if there are two metrics
    alike: tuple[str, ...] = ()
    within: float = 0.0  # tolerance of the claim
    # what decides on a threshold: the end of the value's 95 % interval, or the value; "": a test
    by: Literal["interval", "value", ""] = ""
    free: tuple[str, ...] = ()  # options of the metrics: any value that both sides share
    measure: tuple[str, ...] = ()  # commands that measure the claim
    unmeasured: str = ""  # the reason why it cannot be measured
    not_on_digits: str = ""  # the reason why digits cannot judge it, or not all of ``metric``

    @property
    def margin(self) -> float:
        """The negative of the difference from which on the claim holds."""
        return self.within if self.direction == "higher" else -self.within

    @property
    def models(self) -> list[str]:
        """The specs of the models of the claim."""
        return list(dict.fromkeys(fit.model for fit in (*self.fits, *self.than)))

    def about(self, models: Mapping[str, NamedFit]) -> Claim:
        """Return the claim with imported fits in place of their names."""
        fits = tuple(models.get(fit.model, fit) for fit in self.fits)
        than = tuple(models.get(fit.model, fit) for fit in self.than)
        return dataclasses.replace(self, fits=fits, than=than)


def load() -> list[Claim]:
    """Return all claims of all papers.

    Raises:
        PluginError: if a file does not have the layout.
    """
    claims = list[Claim]()
    for stem, file in sorted(packages.files("claims").items()):
        claims += read(stem, file)
    return claims


def read(stem: str, file: Traversable) -> list[Claim]:
    """Return the claims of one paper's file.

    Raises:
        PluginError: if the file does not have the layout; the message names the place.
    """
    try:
        of_file = validation.read(_File, validation.parse(file.read_bytes(), str(file)), str(file))
        return [of_table(stem, table, of_file.paper) for table in of_file.claim]
    except SpecError as error:
        raise PluginError(
            f"The file of claims {file} cannot be used: {error} Correct it, or tell the author of "
            "its package."
        ) from error


class _File(NamedTuple):
    paper: Paper
    claim: tuple[Mapping[str, Any], ...]


def of_table(stem: str, table: Mapping[str, Any], paper: Paper) -> Claim:
    """Return the claim of a ``[[claim]]``.

    Args:
        stem: the name of the file, the first part of the claim's id.
        table: the content of the file's table.
        paper: the source of the claim.

    Raises:
        SpecError: if a value, the other value or the metric is missing.
    """
    if not table.keys().isdisjoint(_THRESHOLDS):
        return _threshold(stem, table, paper)
    name, fields = f"{stem}/{table.get('id')}", dict(table)
    directions = [direction for direction in ("higher", "lower") if direction in table]
    if len(directions) != ("unmeasured" not in table):
        raise SpecError(f"{name} must have one of higher and lower, or else unmeasured.")
    for direction in directions:
        if table.keys().isdisjoint({"than", "than_metric"}):
            raise SpecError(
                f"{name} has neither than nor than_metric: nothing to be {direction} than."
            )
        if missing := [key for key in ("metric", "measure") if key not in table]:
            raise SpecError(f"{name} lacks {', '.join(missing)}. Add it to the file.")
        fields |= {"direction": direction, "fits": _fits(fields.pop(direction))}
    if isinstance(table.get("than"), int | float):
        fields["number"] = fields.pop("than")
    elif "than" in table:
        fields["than"] = _fits(table["than"])
    for key in ("metric", "than_metric"):
        if isinstance(table.get(key), str):
            fields[key] = [fields[key]]
    if "id" in table:
        fields["id"] = name
    for key, beside, written in (
        ("fits", "than", directions[0] if directions else ""),
        ("metric", "than_metric", "metric"),
    ):
        if beside in fields and len(fields[key]) != len(fields[beside]):
            raise SpecError(
                f"{name} must name as many of {beside} as of {written}: the first goes with the "
                "first."
            )
    return validation.read(Claim, fields, f"claim {name}", paper=paper)


_THRESHOLDS: Mapping[str, Direction] = {"at_least": "higher", "at_most": "lower"}
"""The keys of thresholds, and the sides on which values pass."""


def _threshold(stem: str, table: Mapping[str, Any], paper: Paper) -> Claim:
    """Return the claim that a value is at least, or at most, a number."""
    metric = table.get("metric")
    stated = [key for key in table if key in {*_THRESHOLDS, "higher", "lower", "than"}]
    if len(stated) > 1 or not isinstance(metric, str):
        raise SpecError(
            f"A claim of {stem} has {', '.join(stated)} and the metric {metric!r}. A threshold is "
            "one of at_least and at_most, of one metric."
        )
    (key,) = stated
    number = validation.check_value(table[key], float, f"{key} of a claim of {stem}")
    words = f"{table.get('label', metric)} {key.replace('_', ' ')} {number:g}"
    fields = {"id": words.replace(" ", "-"), "text": words, "by": "interval", **table}
    fields |= {"id": f"{stem}/{fields['id']}", "metric": [metric], "number": number}
    fields |= {"direction": _THRESHOLDS[key], "fits": _fits(fields.pop("models", []))}
    del fields[key]
    return validation.read(Claim, fields, f"claim {fields['id']}", paper=paper)


def _fits(written: Any) -> Any:
    """Return the fields of fits from a spec, specs, or [spec, recipe] pairs."""
    fits = []
    for fit in written if isinstance(written, list) else [written]:
        pair = fit if isinstance(fit, list) else [fit]
        fits.append(dict(zip(NamedFit._fields, pair, strict=False)))
    return fits
