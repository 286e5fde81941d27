"""Overrides of a recipe without an effect on training. Imports no torch.

Such overrides are refused: the training would be the same, under another id.
"""

from collections.abc import Mapping

from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe


def check(recipe: Recipe) -> None:
    """Check that every override of a recipe has an effect.

    Effects that depend on the dataset are not checked.

    Raises:
        SpecError: if an override has no effect.
    """
    optimizer, schedule, data = Spec(recipe.optimizer.name).bare, recipe.schedule, recipe.data
    inert = {
        "optimizer.betas": (optimizer == "sgd", "sgd has momentum. Set optimizer.momentum"),
        "optimizer.momentum": (optimizer == "adam", "adam has betas. Set optimizer.betas"),
        "optimizer.adaptive": (
            not recipe.optimizer.sharpness,
            "sharpness is 0. Set optimizer.sharpness too",
        ),
        "schedule.decay": (
            not schedule.decay_epochs,
            "no epoch is set. Set schedule.decay_epochs too",
        ),
        "schedule.decay_epochs": (schedule.decay == 1, "the factor is 1. Set schedule.decay too"),
        "data.stratified": (not data.validation, "no image is held out. Set data.validation too"),
        "data.epoch": (data.shared, "both terms have the same batch. Set data.shared=false too"),
        "data.outlier_batch": (not data.outliers, "no outliers are drawn. Set data.outliers too"),
    }
    _refuse(recipe, inert)


def iterations(recipe: Recipe, per_epoch: int) -> int:
    """Return the number of iterations of a training.

    The number follows from the epochs, and is at least ``least_iterations``.

    Args:
        recipe: of the training.
        per_epoch: the number of iterations in an epoch, which depends on the dataset.

    Raises:
        SpecError: if one of the two fields is overridden, and the other one determines the number.
    """
    of_epochs, least = max(1, round(recipe.epochs * per_epoch)), recipe.least_iterations
    both = (
        f"epochs={recipe.epochs:g} gives {of_epochs:,} iterations here, and least_iterations is "
        f"{least:,}"
    )
    # per_epoch is 0 if no batch can be filled, which training refuses
    enough = least / per_epoch if per_epoch else 0
    inert = {
        "epochs": (
            of_epochs <= least and enough > 0,
            f"{both}. Set least_iterations=0 too, or epochs over {enough:.4g}",
        ),
        "least_iterations": (
            0 < least <= of_epochs,
            f"{both}. Set least_iterations=0, or over {of_epochs:,}",
        ),
    }
    _refuse(recipe, inert)
    return max(of_epochs, least)


def _refuse(recipe: Recipe, inert: Mapping[str, tuple[bool, str]]) -> None:
    """Refuse an override of a field that has no effect.

    ``inert`` says for each field whether its override has no effect, and why.
    """
    for override in recipe.overrides:
        is_inert, why = inert.get(override.partition("=")[0], (False, ""))
        if is_inert:
            raise SpecError(
                f"{override} has no effect on the training by recipe {recipe.name}: {why}."
            )
