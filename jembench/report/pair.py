"""The two models of a store that a comparison means. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jembench.errors import SpecError
from jembench.report.names import ranked
from jembench.report.record import Subject


class Pair(NamedTuple):
    """Two models on one dataset."""

    a: Subject
    b: Subject

    @property
    def names(self) -> tuple[str, str]:
        """Return the two models' names or, where these are the same, their recipes."""
        if self.a.name != self.b.name:
            return self.a.name, self.b.name
        return self.a.recipe, self.b.recipe


def find_pair(
    known: Sequence[Subject],
    a: str,
    b: str,
    *,
    dataset: str | None = None,
    recipe: str | None = None,
    recipe_b: str | None = None,
) -> Pair:
    """Find two models on the same dataset and, if no recipe is given, trained by the same recipe where there is one.

    Args:
        known: what the store has.
        a: a model's spec, in full or its name alone where that means one.
        b: the same.
        dataset: the spec or the name of one; None: whatever there is.
        recipe: its label; None: whatever there is.
        recipe_b: that of ``b``, where it is another.

    Raises:
        SpecError: if the store has no such model or pair, or more than one.
    """
    known = ranked("dataset", [dataset] if dataset else None, known, lambda subject: subject.dataset)
    ours = _meant(known, a, recipe)
    theirs = _meant(known, b, recipe_b or recipe)
    pairs = [Pair(one, other) for one in ours for other in theirs if one.dataset == other.dataset]
    distinct = [pair for pair in pairs if pair.a.names != pair.b.names]
    if pairs and not distinct:
        raise SpecError(f"Both models are {pairs[0].a}. Name two, or two recipes of one with --recipe and --recipe-b.")
    alike = [pair for pair in distinct if pair.a.recipe == pair.b.recipe]
    candidates = distinct if recipe_b or not alike else alike
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        found = "; ".join(dict.fromkeys(map(str, (*ours, *theirs))))
        raise SpecError(
            f"{a} and {b} were not measured on the same dataset: {found}. `jembench run` with "
            "--dataset measures the one that is missing."
        )
    raise SpecError(
        f"More than one comparison is meant by {a} and {b}: "
        f"{'; '.join(f'({number}) {pair.a}, with {pair.b}' for number, pair in enumerate(candidates, 1))}. "
        "Say which with --dataset, --recipe and --recipe-b, or with a model's spec in full."
    )


def _meant(known: Sequence[Subject], model: str, recipe: str | None) -> Sequence[Subject]:
    """Find the one model that is meant, by that recipe or by each."""
    found = ranked("models", [model], known, lambda subject: subject.model)
    models = list(dict.fromkeys(subject.model for subject in found))
    if len(models) > 1:
        raise SpecError(f"The store has more than one model {model}: {', '.join(models)}. Write the one that you mean.")
    recipes = [recipe] if recipe else None
    return ranked("recipe", recipes, found, lambda subject: subject.recipe, f"of {models[0]} in the store")
