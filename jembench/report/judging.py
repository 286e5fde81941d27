"""Test the claims of papers on the models of a store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, registry, spec
from jembench.catalog.spec import Spec
from jembench.experiment import recipe_files as recipes_known
from jembench.experiment.claims import ANY, Claim, Recipes
from jembench.experiment.sweep import bare_name, with_options
from jembench.report.comparison import (
    RESAMPLES,
    Difference,
    Read,
    Side,
    adjusted,
    common_seeds,
    conclusion,
    contrast,
    described,
    not_comparable,
    sides,
)
from jembench.report.pair import Pair
from jembench.report.protocols import parsed
from jembench.report.record import Subject, subjects
from jembench.report.selection import store_option
from jembench.store.outcome import Cell


class Finding(NamedTuple):
    """The verdict on one claim for one value, dataset and recipe."""

    claim: Claim
    row: Difference  # without dataset and recipes: not measured
    each: tuple[str, ...] = ()  # the values of the claim's ``each``


Test = Callable[[Side, Side | float, float], Difference]
"""Tests the difference of two values, with a margin."""


def judge(
    claims: Sequence[Claim],
    cells: Iterable[Cell],
    read: Read,
    *,
    store: Path = Path("runs"),
    resamples: int = RESAMPLES,
) -> list[Finding]:
    """Judge every claim for each dataset, recipe and value in the store, or say why it has none.

    Args:
        claims: in the order of the findings.
        cells: of one store, all evaluated on as many images.
        read: gives a cell's per-example values.
        store: its folder, for commands.
        resamples: of the bootstrap.
    """
    models = subjects(cells)

    def test(a: Side, b: Side | float, margin: float) -> Difference:
        return contrast(a, b, read, margin=margin, resamples=resamples)

    found = [finding for claim in claims for finding in _of_claim(claim, claims, models, test, store)]
    rows = adjusted(finding.row for finding in found)
    return [
        finding._replace(row=replace(row, verdict=_verdict(row, finding.claim)))
        for finding, row in zip(found, rows, strict=True)
    ]


def _verdict(row: Difference, claim: Claim) -> str:
    if row.p is None or row.difference is None:
        return row.verdict
    above = row.difference + claim.margin > 0
    return conclusion(row, *(("held", "for") if above == (claim.direction == "higher") else ("against",) * 2))


def _of_claim(
    claim: Claim, claims: Sequence[Claim], models: Sequence[Subject], test: Test, store: Path
) -> list[Finding]:
    if claim.unmeasured:
        return [_not_measured(claim, claim.unmeasured)]
    found = [
        finding
        for pair in _pairs(claim, claims, models)
        for question in _questions(claim, pair.a)
        if (finding := _answer(claim, *question, pair, test))
    ]
    missing = set(itertools.product(*claim.each.values())) - {finding.each for finding in found}
    if not missing:
        return found
    reason = _remedy(claim, store, partly=bool(found))
    each = tuple(sorted(", ".join(values) for values in missing)) if found else ()
    return [*found, _not_measured(claim, reason, each)]


def _not_measured(claim: Claim, reason: str, each: tuple[str, ...] = ()) -> Finding:
    than = None if isinstance(claim.than, float) else claim.than
    row = Difference(metric=claim.metric, model_a=claim.model, model_b=than, verdict="not measured", reason=reason)
    return Finding(claim, row, each)


def _remedy(claim: Claim, store: Path, *, partly: bool) -> str:
    """Why nothing was measured, as far as it can be known without the store, or the commands that do it.

    ``partly``: of some values, of what digits can judge.
    """
    installed = {component.name for component in discovery.components("models")}
    absent = [model for model in map(bare_name, claim.models) if model not in installed]
    if absent:
        return f"no model {' or '.join(absent)} is installed"
    elsewhere = " --dataset cifar10" if partly and claim.not_on_digits else ""
    commands = " and ".join(f"`{command}{elsewhere}{store_option(store)}`" for command in claim.measure)
    never = claim.not_on_digits and (partly or all("--dataset" in command for command in claim.measure))
    return f"not by digits, {claim.not_on_digits}: {commands}" if never else commands


# --- which models -----------------------------------------------------------------------------------------------------


def _pairs(claim: Claim, claims: Sequence[Claim], known: Sequence[Subject]) -> list[Pair]:
    """The models that a claim is about: on each dataset those with the fewest changed options and recipes."""
    found = [(pair, _changes(pair, claim)) for pair in _candidates(claim, _reserved(claim, claims), known)]
    fewest: dict[str, int] = {}
    for pair, changes in found:
        fewest[pair.a.dataset] = min(changes, fewest.get(pair.a.dataset, changes))
    return [pair for pair, changes in found if changes == fewest[pair.a.dataset]]


def _changes(pair: Pair, claim: Claim) -> int:
    """How many options of models and fields of recipes differ from what the claim names."""
    other = claim.model if isinstance(claim.than, float) else claim.than
    sides = ((pair.a, claim.model), (pair.b, other))
    return sum(subject.recipe.count("+") + len(_further(subject.model, meant) or ()) for subject, meant in sides)


def _further(model: str, meant: str) -> tuple[tuple[str, str], ...] | None:
    """The options that a model has beside those that a claim names; None if it is another model."""
    own, named = spec.parse(model), spec.parse(meant)
    if bare_name(model) != bare_name(meant) or not set(named.arguments) <= set(own.arguments):
        return None
    return tuple(argument for argument in own.arguments if argument not in named.arguments)


def _reserved(claim: Claim, claims: Sequence[Claim]) -> set[Recipes]:
    """The recipes that other claims of its paper name: they ask another question."""
    return {
        recipes for other in claims if other.paper == claim.paper for recipes in other.recipes if recipes.own != ANY
    }


def _candidates(claim: Claim, reserved: set[Recipes], known: Sequence[Subject]) -> Iterator[Pair]:
    for recipes, a in itertools.product(claim.recipes, known):
        recipe = recipes.other_of(a.recipe)
        theirs = recipes.own == ANY and any(other.other_of(a.recipe) is not None for other in reserved)
        options = _further(a.model, claim.model)
        if options is None or recipe is None or theirs:
            continue
        if isinstance(claim.than, float):
            yield Pair(a, a)
            continue
        for b in known:
            belongs = b.recipe == recipe or (recipes.own == ANY and (_has_its_own(a) or _has_its_own(b)))
            others = _further(b.model, claim.than)
            alike = others == options or a.recipe != b.recipe  # whose models may differ in their options as well
            if b.dataset == a.dataset and belongs and others is not None and alike:
                yield Pair(a, b)


def _has_its_own(subject: Subject) -> bool:
    """Whether it was trained by a recipe that is made for its model: no other model is trained by the same."""
    made_for_it = recipes_known.made_for(bare_name(subject.model), bare_name(subject.dataset))
    return subject.recipe.partition("+")[0] == made_for_it


# --- one value --------------------------------------------------------------------------------------------------------


def _questions(claim: Claim, subject: Subject) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Both metrics with their options, and the values of the claim's ``each`` among these."""
    for values in itertools.product(*claim.each.values()):
        options = dict(zip(claim.each, values, strict=True))
        for free in _free_options(claim, subject):
            both = (claim.metric, claim.than_metric or claim.metric)
            metric, than = (registry.canonical("metrics", with_options(text, {**options, **free})) for text in both)
            yield metric, than, values


def _free_options(claim: Claim, subject: Subject) -> list[dict[str, str]]:
    """Every combination of the options that a claim leaves free, as the model was measured under them."""
    found: list[dict[str, str]] = [{}]
    for metric in dict.fromkeys(cell.metric for cell in subject.cells) if claim.free else ():
        parsed = spec.parse(metric)
        options = {key: value for key, value in parsed.arguments if key in claim.free}
        if parsed.name == spec.parse(claim.metric).name and options not in found:
            found.append(options)
    return found


def _answer(
    claim: Claim, metric: str, than_metric: str, each: tuple[str, ...], pair: Pair, test: Test
) -> Finding | None:
    a = _side(pair.a, metric, claim.label)
    number = claim.than if isinstance(claim.than, float) else None
    b = _side(pair.b, than_metric, claim.than_label or claim.label) if number is None else number
    if a is None or b is None or not common_seeds(a, b):
        return None
    row = described(a, b)
    protocols = row.protocols
    if claim.than_metric or claim.alike:
        protocols = tuple(dict.fromkeys(_parts(protocol, claim.alike) for protocol in protocols))
    differ = len(protocols) > 1 and isinstance(b, Side)
    return Finding(claim, not_comparable(row, protocols) if differ else test(a, b, claim.margin), each)


def _side(subject: Subject, metric: str, label: str) -> Side | None:
    """What was measured; None if nothing was, or if it is not clear which of several values is meant."""
    found = [side for side in sides(subject).values() if side.metric == metric and label in ("", side.label)]
    return found[0] if len(found) == 1 else None


def _parts(protocol: str, names: Sequence[str]) -> str:
    """The parts of a protocol with these names, whatever the metric."""
    found = parsed(protocol)
    return str(Spec("parts", tuple(part for part in found.arguments if part[0] in names))) if found else protocol
