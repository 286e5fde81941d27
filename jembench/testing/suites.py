"""The checks of what a suite package brings, all of it TOML files: suites, recipes and published numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from jembench.catalog import discovery, packages, registry
from jembench.errors import JembenchError, Unavailable, unknown
from jembench.experiment import recipe as recipes
from jembench.experiment import suite as suites
from jembench.experiment.plan import Plan, make_plan
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Suite
from jembench.report import references
from jembench.running.outlook import look_ahead
from jembench.testing.checks import PROMISES, Check, CheckFailed, DoesNotApply, only_if, promise, require


def checks(kind: str, name: str) -> list[Check]:
    """All checks of the suite, the recipe or the file of published numbers of that name."""
    known: dict[str, Collection[str]] = {
        "suites": suites.names(),
        "recipes": recipes.names(),
        "references": packages.files("reference"),
    }
    if name not in known[kind]:
        raise unknown(kind.removesuffix("s"), name, known[kind], f"jembench list {kind}")
    return [promise.check_of(kind, name, lambda: name) for promise in PROMISES[kind]]


@contextmanager
def _reported() -> Iterator[None]:
    """Fail the check with the message that users would see, or skip it if files are missing."""
    try:
        yield
    except Unavailable as missing:
        raise DoesNotApply(str(missing)) from missing
    except JembenchError as error:
        raise CheckFailed(str(error)) from error


@contextmanager
def _given(check: str) -> Iterator[None]:
    """Skip the check for errors that another check reports."""
    try:
        yield
    except JembenchError as error:
        raise DoesNotApply(f"See the check {check}.") from error


# --- suites -----------------------------------------------------------------------------------------------------------


@promise("suites")
def can_be_read(name: str) -> None:
    """Its file says all that a suite must, and nothing that a suite does not know."""
    with _reported():
        suites.load(name)


@promise("suites")
def title(name: str) -> None:
    """It has a title, which its tables are headed by."""
    require(bool(_suite(name).title.strip()), 'The title is empty. Say in a line what is compared: title = "...".')


@promise("suites")
def names_what_exists(name: str) -> None:
    """Every model, dataset, metric and recipe that it names exists, and has the options that it is given."""
    suite = _suite(name)
    with _reported():
        make_plan(suite)


@promise("suites")
def published_numbers(name: str) -> None:
    """Every table of published numbers that it names exists."""
    named = _suite(name).references
    only_if(bool(named), "It names no published numbers.")
    with _reported():
        references.load(named)


@promise("suites")
def can_begin(name: str) -> None:
    """Every model can be made for its datasets and trained by its recipes."""
    plan = _plan(name)
    with _reported():
        look_ahead(plan)


@promise("suites")
def no_metric_in_vain(name: str) -> None:
    """Every metric can be computed for one of the models at least."""
    plan = _plan(name)
    with _given("can-begin"):
        fits = look_ahead(plan).fits.values()
        reasons = {cell: reason for fit in fits for cell, reason in fit.impossible.items()}
    possible = {str(cell.metric) for cell in plan.cells if cell.id not in reasons}
    for cell in plan.cells:
        require(
            str(cell.metric) in possible,
            f"{cell.metric} is N/A for every model: {reasons.get(cell.id, '').rstrip('.')}. Leave it out, or add a "
            "model that it is for.",
        )


def _suite(name: str) -> Suite:
    with _given("can-be-read"):
        return suites.load(name)


def _plan(name: str) -> Plan:
    suite = _suite(name)
    with _given("names-what-exists"):
        return make_plan(suite)


# --- recipes ----------------------------------------------------------------------------------------------------------


@promise("recipes")
def recipe_can_be_read(name: str) -> None:
    """Its file says all that a recipe must, and nothing that a recipe does not know."""
    with _reported():
        recipes.load(name)


@promise("recipes")
def recipe_title(name: str) -> None:
    """It has a title, which `jembench list recipes` shows."""
    require(bool(_recipe(name).title.strip()), 'The title is empty. Say in a line what it is for: title = "...".')


@promise("recipes")
def sampler_exists(name: str) -> None:
    """The sampler that it names exists, and has the options that it is given."""
    sampler = _recipe(name).chains.sampler
    only_if(bool(sampler), "It names no sampler, being for models that are trained without chains.")
    with _reported():
        registry.resolve("samplers", sampler)


@promise("recipes")
def made_for_what_exists(name: str) -> None:
    """The models and datasets that it says it is made for exist."""
    recipe = _recipe(name)
    only_if(bool(recipe.models or recipe.default_for), "It is used only where it is asked for by name.")
    with _reported():
        for model in recipe.models:
            discovery.load(discovery.find("models", model))
        for dataset in recipe.default_for:
            discovery.load(discovery.find("datasets", dataset))


@promise("recipes")
def the_only_default(name: str) -> None:
    """No other recipe says that it is made for the same models and datasets."""
    recipe = _recipe(name)
    with _reported():
        for model in recipe.models:
            for dataset in recipe.default_for or ("",):
                recipes.made_for(model, dataset)
        for dataset in () if recipe.models else recipe.default_for:
            recipes.default_for(dataset)


def _recipe(name: str) -> Recipe:
    with _given("recipe-can-be-read"):
        return recipes.load(name)


# --- published numbers ------------------------------------------------------------------------------------------------


@promise("references")
def reference_can_be_read(name: str) -> None:
    """Its file has the layout of published numbers."""
    with _reported():
        references.read(name, packages.files("reference")[name])
