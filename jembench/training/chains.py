"""The sampler that a recipe names, made ready for training."""

from __future__ import annotations

from typing import Any

import torch

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe
from jembench.interfaces import DataSpec, Sampler, Split
from jembench.models.memory import check_memory


def make_sampler(model: Any, data: DataSpec, recipe: Recipe, train: Split) -> Sampler | None:
    """Return the recipe's sampler, or None for a model that is trained without chains.

    Raises:
        SpecError: if the model needs one and the recipe names none, or it does not fit into the memory.
    """
    if getattr(model, "chains", "none") == "none":
        return None
    if not recipe.chains.sampler:
        raise SpecError(
            f"The recipe {recipe.label} names no sampler, and a {type(model).__name__} is trained with chains. Choose "
            "another recipe, or name one: --set chains.sampler=pcd."
        )
    named = registry.resolve("samplers", recipe.chains.sampler)
    check_memory(lambda: named.make(data), f"The sampler {named}", torch.device("cpu"))
    sampler: Any = named.make(data)
    if hasattr(sampler, "inform"):
        sampler.inform(train)
    made: Sampler = sampler
    return made
