"""The sampler that a recipe names, made ready for training."""

from __future__ import annotations

from typing import Any

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe
from jembench.interfaces import DataSpec, NeedsTrainingData, Sampler, Shardable, Split
from jembench.training.processes import ProcessGroup


def make_sampler(model: Any, data: DataSpec, recipe: Recipe, train: Split) -> Sampler | None:
    """The recipe's sampler, or None for a model that is trained without chains.

    Raises:
        SpecError: if the model needs one and the recipe names none.
    """
    if getattr(model, "chains", "none") == "none":
        return None
    if not recipe.chains.sampler:
        raise SpecError(
            f"The recipe {recipe.label} names no sampler, and a {type(model).__name__} is trained with chains. Choose "
            "another recipe, or name one: --set chains.sampler=pcd."
        )
    sampler: Sampler = registry.resolve("samplers", recipe.chains.sampler).make(data)
    if isinstance(sampler, NeedsTrainingData):
        sampler.inform(train)
    return sampler


def share(sampler: Sampler | None, recipe: Recipe, group: ProcessGroup) -> None:
    """Leave each process of the group its part of the chains.

    Raises:
        SpecError: if they cannot be shared out.
    """
    if group.size == 1 or sampler is None or not sampler.state_dict():
        return
    if not isinstance(sampler, Shardable):
        raise SpecError(
            f"The sampler {recipe.chains.sampler} cannot share its chains out among processes "
            "(jembench.interfaces.Shardable). Train with one process, or choose another sampler."
        )
    sampler.share(group.rank, group.size)
