"""Changes of a recipe by ``--set`` that have no effect on the training. Imports no torch.

They are refused: the training would be the same, under another id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe
from jembench.experiment.sweep import bare_name

_INERT: Mapping[str, tuple[Callable[[Recipe], bool], str, str]] = MappingProxyType(
    {
        "optimizer.betas": (lambda it: _optimizer(it) == "sgd", "sgd has momentum", "optimizer.momentum"),
        "optimizer.momentum": (lambda it: _optimizer(it) == "adam", "adam has betas", "optimizer.betas"),
        "optimizer.adaptive": (lambda it: not it.optimizer.sharpness, "sharpness is 0", "optimizer.sharpness too"),
        "schedule.decay": (lambda it: not it.schedule.decay_epochs, "no epoch is set", "schedule.decay_epochs too"),
        "schedule.decay_epochs": (lambda it: it.schedule.decay == 1, "the factor is 1", "schedule.decay too"),
        "data.stratified": (lambda it: not it.data.validation, "no image is held out", "data.validation too"),
        "data.epoch": (lambda it: it.data.shared, "both terms have the same batch", "data.shared=false too"),
    }
)
"""Of a field: whether it has no effect in a recipe, the reason, and what to set."""


def check(recipe: Recipe) -> None:
    """Check that every override of a recipe has an effect, as far as this is known without the dataset.

    Raises:
        SpecError: if one has none.
    """
    for override in recipe.overrides:
        is_inert, reason, instead = _INERT.get(override.partition("=")[0], (None, "", ""))
        if is_inert and is_inert(recipe):
            raise _refusal(override, recipe, reason, instead)


def iterations(recipe: Recipe, per_epoch: int) -> int:
    """Return the number of iterations of a training: those of its epochs, and at least ``least_iterations``.

    Args:
        recipe: of the training.
        per_epoch: the number of iterations in an epoch, which depends on the dataset.

    Raises:
        SpecError: if one of the two fields is overridden, and the other one determines the number.
    """
    of_epochs, least = max(1, round(recipe.epochs * per_epoch)), recipe.least_iterations
    reason = f"{recipe.epochs:g} epochs are {of_epochs:,} iterations here, and least_iterations is {least:,}"
    for override in recipe.overrides if per_epoch else ():
        field = override.partition("=")[0]
        if field == "epochs" and of_epochs <= least:
            enough = f"least_iterations=0 too, or more than {least / per_epoch:g} epochs"
            raise _refusal(override, recipe, reason, enough)
        if field == "least_iterations" and 0 < least <= of_epochs:
            raise _refusal(override, recipe, reason, f"least_iterations=0, or more than {of_epochs:,}")
    return max(of_epochs, least)


def _refusal(override: str, recipe: Recipe, reason: str, instead: str) -> SpecError:
    return SpecError(f"{override} has no effect on the training by recipe {recipe.name}: {reason}. Set {instead}.")


def _optimizer(recipe: Recipe) -> str:
    return bare_name(recipe.optimizer.name)
