"""The files of recipes, and which recipe is the default of a model and a dataset. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from jembench.catalog import packages, registry
from jembench.catalog.validation import parse, read, read_untyped
from jembench.errors import JembenchError, Remark, SpecError
from jembench.experiment.recipe import Recipe
from jembench.experiment.sweep import bare_name


def names() -> list[str]:
    """Return the names of all recipes that are installed."""
    return sorted(packages.files("recipes"))


def title_of(name: str) -> str:
    """Return the title of a recipe; "" for one that is not installed or cannot be read."""
    with suppress(JembenchError):
        return load(name).title if name in names() else ""
    return ""


def load(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe of that name, or in that TOML file.

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
    for override in overrides:
        _override(fields, override, source.name)
    recipe = read(Recipe, fields, f"recipe {source.name}", "jembench list recipes", name=source.name, overrides=())
    _check(recipe)
    if not overrides:
        return recipe
    before = _loaded(source, ()).settings | {"processes": recipe.processes}  # part of the identity, and of no name
    return dataclasses.replace(recipe, overrides=_differences(before, recipe.settings))


def _check(recipe: Recipe) -> None:
    """Check the relations between fields."""
    where = f"In recipe {recipe.name}"
    try:
        _ = recipe.components
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from error
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
    """Return the changes, each in one canonical form, so that one recipe has one label."""
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

_FOLDER, _SMALL, _MOST_IMAGES = "imagefolder", "small-images", 5000
"""The dataset whose default goes by its size: the recipe up to that many training images."""

_NOTHING_STATED: Mapping[str, str] = MappingProxyType({})


def default(model: str, dataset: str, stated: Mapping[str, str] = _NOTHING_STATED) -> str:
    """Return the name of the recipe that a model is trained by on a dataset where none is given.

    It is the first that is installed under the name MODEL-DATASET or MODEL; else what is stated for the dataset; else
    the one of the dataset's name, or ``paper``.

    Args:
        model: its spec.
        dataset: its spec.
        stated: recipes by the names of datasets, or "default", for models that no recipe is named after.
    """
    name, data, installed = bare_name(model), bare_name(dataset), packages.files("recipes")
    for own in (f"{name}-{data}", name):
        if own in installed:
            return own
    if recipe := stated.get(data) or stated.get("default"):
        return recipe
    if data == _FOLDER:
        images = training_images(dataset)
        return "paper" if images is None or images > _MOST_IMAGES else _SMALL
    return data if data in installed else "paper"


@functools.lru_cache(maxsize=100)
def training_images(dataset: str) -> int | None:
    """Return the number of training images of a dataset, given by its spec, where it is known without reading them.

    It is looked up once, until ``cache_clear``.
    """
    with suppress(JembenchError), warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)
        resolved = registry.resolve("datasets", dataset)
        found: int | None = getattr(resolved.factory(**resolved.bound.arguments), "train_size", None)
        return found
    return None
