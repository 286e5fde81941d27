"""The checks of what a suite package brings, all of it TOML files: suites, recipes and published numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from jembench.catalog import packages, registry
from jembench.errors import JembenchError, Unavailable, unknown
from jembench.experiment import recipe as recipes
from jembench.experiment import suite as suites
from jembench.experiment.plan import Plan, make_plan
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Suite
from jembench.report import references
from jembench.running.outlook import look_ahead
from jembench.testing.asking import promises, require
from jembench.testing.checks import Check, CheckFailed, DoesNotApply, Promise


def suite_checks(name: str) -> list[Check]:
    """All checks of the suite of that name."""
    return _checks(SUITE, name, suites.names(), "suite")


def recipe_checks(name: str) -> list[Check]:
    """All checks of the recipe of that name."""
    return _checks(RECIPE, name, recipes.names(), "recipe")


def reference_checks(name: str) -> list[Check]:
    """All checks of the file of published numbers of that name."""
    return _checks(REFERENCE, name, packages.files("reference"), "reference")


def _checks(promised: Sequence[Promise], name: str, known: Collection[str], kind: str) -> list[Check]:
    if name not in known:
        raise unknown(kind, name, known, f"jembench list {kind}s")
    return [Check(promise.name, promise.promise, name, _bind(promise.check, name)) for promise in promised]


def _bind(check: Callable[[str], None], name: str) -> Callable[[], None]:
    return lambda: check(name)


@contextmanager
def _told() -> Iterator[None]:
    """What a user of the file would be told is why the check fails.

    Raises:
        CheckFailed: for what is wrong with the file.
        DoesNotApply: for what is not at hand here.
    """
    try:
        yield
    except Unavailable as missing:
        raise DoesNotApply(str(missing)) from missing
    except JembenchError as error:
        raise CheckFailed(str(error)) from error


@contextmanager
def _given(check: str) -> Iterator[None]:
    """What is wrong already is the business of another check.

    Raises:
        DoesNotApply: for what fails there.
    """
    try:
        yield
    except JembenchError as error:
        raise DoesNotApply(f"See the check {check}.") from error


# --- suites -----------------------------------------------------------------------------------------------------------


def can_be_read(name: str) -> None:
    """Its file says all that a suite must, and nothing that a suite does not know."""
    with _told():
        suites.load(name)


def title(name: str) -> None:
    """It has a title, which its tables are headed by."""
    require(bool(_suite(name).title.strip()), 'The title is empty. Say in a line what is compared: title = "...".')


def names_what_exists(name: str) -> None:
    """Every model, dataset, metric and recipe that it names exists, and has the options that it is given."""
    suite = _suite(name)
    with _told():
        make_plan(suite)


def published_numbers(name: str) -> None:
    """Every table of published numbers that it names exists."""
    named = _suite(name).references
    if not named:
        raise DoesNotApply("It names no published numbers.")
    with _told():
        references.load(named)


def can_begin(name: str) -> None:
    """Every model can be made for its datasets and trained by its recipes."""
    plan = _plan(name)
    with _told():
        look_ahead(plan)


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


SUITE = promises(can_be_read, title, names_what_exists, published_numbers, can_begin, no_metric_in_vain)
"""What every suite promises."""


# --- recipes ----------------------------------------------------------------------------------------------------------


def recipe_can_be_read(name: str) -> None:
    """Its file says all that a recipe must, and nothing that a recipe does not know."""
    with _told():
        recipes.load(name)


def recipe_title(name: str) -> None:
    """It has a title, which `jembench list recipes` shows."""
    require(bool(_recipe(name).title.strip()), 'The title is empty. Say in a line what it is for: title = "...".')


def sampler_exists(name: str) -> None:
    """The sampler that it names exists, and has the options that it is given."""
    sampler = _recipe(name).chains.sampler
    if not sampler:
        raise DoesNotApply("It names no sampler, being for models that are trained without chains.")
    with _told():
        registry.resolve("samplers", sampler)


def made_for_what_exists(name: str) -> None:
    """The models and datasets that it says it is made for exist."""
    recipe = _recipe(name)
    if not recipe.models and not recipe.default_for:
        raise DoesNotApply("It is used only where it is asked for by name.")
    with _told():
        for model in recipe.models:
            registry.load(registry.find("models", model))
        for dataset in recipe.default_for:
            registry.load(registry.find("datasets", dataset))


def the_only_default(name: str) -> None:
    """No other recipe says that it is made for the same models and datasets."""
    recipe = _recipe(name)
    with _told():
        for model in recipe.models:
            for dataset in recipe.default_for or ("",):
                recipes.made_for(model, dataset)
        for dataset in () if recipe.models else recipe.default_for:
            recipes.default_for(dataset)


def _recipe(name: str) -> Recipe:
    with _given("recipe-can-be-read"):
        return recipes.load(name)


RECIPE = promises(recipe_can_be_read, recipe_title, sampler_exists, made_for_what_exists, the_only_default)
"""What every recipe promises."""


# --- published numbers ------------------------------------------------------------------------------------------------


def reference_can_be_read(name: str) -> None:
    """Its file has the layout of published numbers."""
    with _told():
        references.read(name, packages.files("reference")[name])


REFERENCE = promises(reference_can_be_read)
"""What every file of published numbers promises."""
