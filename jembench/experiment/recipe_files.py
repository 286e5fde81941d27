"""The files of recipes, and which recipe is the default of a model and a dataset. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources.abc import Traversable
from typing import Any

from jembench.catalog import packages, registry, spec
from jembench.catalog.validation import parse, read, read_untyped
from jembench.errors import JembenchError, Remark, SpecError
from jembench.experiment.recipe import Recipe


def names() -> list[str]:
    """The names of all recipes that are installed."""
    return sorted(packages.files("recipes"))


def title_of(name: str) -> str:
    """What a recipe is, in a line; "" for one that is not installed or cannot be read."""
    with suppress(JembenchError):
        return load(name).title if name in names() else ""
    return ""


def load(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that TOML file.

    Args:
        name: ``paper``, or the path of a file whose name ends in ``.toml``.
        overrides: ``key=value``, such as ``epochs=5`` or ``optimizer.learning_rate=1e-3``.

    Raises:
        SpecError: for an unknown recipe or key, or a value that does not fit.
    """
    return _loaded(packages.source("recipe", name, "recipes"), tuple(overrides))


@functools.lru_cache(maxsize=1000)
def _loaded(source: packages.Source, overrides: tuple[str, ...]) -> Recipe:
    fields = parse(source.content, source.where)
    if not overrides:
        return _recipe(source.name, fields)
    original = _loaded(source, ())
    for override in overrides:
        _override(fields, override, source.name)
    recipe = _recipe(source.name, fields)
    before = original.settings | {"processes": recipe.processes}  # part of the identity, and of no name
    return dataclasses.replace(recipe, overrides=_differences(before, recipe.settings))


def _recipe(name: str, fields: Mapping[str, Any]) -> Recipe:
    recipe = read(Recipe, fields, f"recipe {name}", "jembench list recipes", name=name, overrides=())
    _check(recipe)
    return recipe


def _check(recipe: Recipe) -> None:
    """What no field can say by itself."""
    where = f"In recipe {recipe.name}"
    try:
        _ = recipe.components
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from error
    if len(recipe.optimizer.betas) != 2:
        raise SpecError(f"{where}, optimizer.betas is {list(recipe.optimizer.betas)}; it must be two numbers.")
    if recipe.data.shared and recipe.data.labelled:
        raise SpecError(
            f"{where}, data.shared trains p(x) on the very images of p(y|x), which data.labelled would make others. "
            "Leave one of them out."
        )
    if recipe.checkpoint_every % recipe.log_every:
        raise SpecError(
            f"{where}, checkpoint_every is {recipe.checkpoint_every} and log_every {recipe.log_every}: the first must "
            "be a multiple of the second."
        )


def _override(fields: dict[str, Any], override: str, recipe: str) -> None:
    path, separator, text = override.partition("=")
    if not separator:
        raise SpecError(f"{override!r} does not say what to set. Write --set key=value, for example --set epochs=5.")
    *tables, key = path.strip().split(".")
    table = fields
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise SpecError(f"In recipe {recipe}, {name!r} is not a table, so {path!r} cannot be set.")
    table[key] = read_untyped(text)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], table: str = "") -> tuple[str, ...]:
    """What was changed, written in one way however it was asked for, so that one recipe has one label."""
    found: list[str] = []
    for key, value in after.items():
        if isinstance(value, Mapping):
            found += _differences(before[key], value, f"{key}.")
        elif value != before.get(key):
            found.append(f"{table}{key}={_written(value)}")
    return tuple(found)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return value if isinstance(value, str) else json.dumps(value).removesuffix(".0")


# --- which recipe is the default --------------------------------------------------------------------------------------

_ANY_MODEL = _ANY_DATASET = ""

Candidates = list[tuple[str, int]]
"""Recipes, and the training images up to which they are the default; 0: any number."""


def for_model(model: str, dataset: str) -> str:
    """The recipe that a model is trained by on a dataset by default, both given by their specs.

    Raises:
        SpecError: if more than one recipe says that it is.
    """
    return made_for(model, dataset) or default_for(dataset)


def default_for(dataset: str) -> str:
    """The recipe that models without one of their own are trained with on a dataset, given by its spec or its name.

    Raises:
        SpecError: if more than one recipe says that it is.
    """
    name = spec.parse(dataset).name
    return _only(_candidates()[_ANY_MODEL, name], dataset, name) or "paper"


def made_for(model: str, dataset: str) -> str | None:
    """The recipe that is made for a model, both given by their specs or names; None: there is none of its own.

    One that is made for the model on this dataset comes before one that is made for it on any.

    Raises:
        SpecError: if more than one recipe says that it is.
    """
    known, name, data = _candidates(), spec.parse(model).name, spec.parse(dataset).name
    return _only(known[name, data], dataset, f"{name} on {data}") or _only(known[name, _ANY_DATASET], dataset, name)


def usual_for(model: str, dataset: str) -> list[str]:
    """The recipes that a model may have by default on datasets of that name, however many images they have."""
    known = _candidates()
    named = known[model, dataset] or known[model, _ANY_DATASET] or known[_ANY_MODEL, dataset]
    return [name for name, _ in named] or ["paper"]


@functools.lru_cache(maxsize=100)
def training_images(dataset: str) -> int | None:
    """The number of training images of a dataset, given by its spec, where it is known without reading them.

    It is looked up once, until ``cache_clear``.
    """
    with suppress(JembenchError), warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)
        resolved = registry.resolve("datasets", dataset)
        found: int | None = getattr(resolved.factory(**resolved.bound.arguments), "train_size", None)
        return found
    return None


def _candidates() -> Mapping[tuple[str, str], Candidates]:
    """The recipes that say that they are the default, by model and dataset."""
    return _candidates_of(tuple(sorted(packages.files("recipes").items())))


@functools.lru_cache(maxsize=10)
def _candidates_of(files: tuple[tuple[str, Traversable], ...]) -> Mapping[tuple[str, str], Candidates]:
    found: defaultdict[tuple[str, str], Candidates] = defaultdict(list)
    for name, file in files:
        fields = parse(file.read_bytes(), str(file))
        models, datasets = _texts(fields.get("models")), _texts(fields.get("default_for"))
        most = fields.get("most_images")
        for model in models or [_ANY_MODEL]:
            for dataset in datasets or ([_ANY_DATASET] if models else []):
                found[model, dataset].append((name, most if isinstance(most, int) else 0))
    return found


def _texts(value: Any) -> list[str]:
    """The texts in a list. A value that is none is an error when the recipe is loaded."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _only(candidates: Candidates, dataset: str, of: str) -> str | None:
    """The recipe for the fewest images that the dataset does not exceed, else the one for any number."""
    limits = {most for _, most in candidates}
    if limits - {0}:
        count = training_images(dataset)
        limits = {most for most in limits if not most or (count is not None and count <= most)}
    limit = min(limits, key=lambda most: most or math.inf, default=0)
    names = [name for name, most in candidates if most == limit]
    if len(names) > 1:
        raise SpecError(f"{' and '.join(names)} are both the default recipe of {of}. Choose one with --recipe.")
    return names[0] if names else None
