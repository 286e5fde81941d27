"""The checks of what a suite package brings, all of it TOML files: suites, recipes and published numbers."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from jembench.catalog import discovery, packages, registry
from jembench.errors import unknown
from jembench.experiment import recipe_files as recipes
from jembench.experiment import suite_files as suites
from jembench.experiment.plan import Plan
from jembench.experiment.planning import make_plan
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Suite
from jembench.report import references
from jembench.running.outlook import Outlook, look_ahead
from jembench.testing.checks import PROMISES, Check, given, only_if, promise, require


class File:
    """A suite, a recipe or a file of published numbers under test. Nothing that is read of it can be changed."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def suite(self) -> Suite:
        """The suite; skips the check if it cannot be read."""
        with given("can-be-read"):
            return suites.load(self.name)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the suite; skips the check if there is none."""
        with given("names-what-exists"):
            return make_plan(self.suite)

    @cached_property
    def outlook(self) -> Outlook:
        """What is known of the plan before it is carried out."""
        return look_ahead(self.plan)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe; skips the check if it cannot be read."""
        with given("recipe-can-be-read"):
            return recipes.load(self.name)


def checks(kind: str, name: str) -> list[Check]:
    """All checks of the suite, the recipe or the file of published numbers of that name."""
    known: dict[str, Collection[str]] = {
        "suites": suites.names(),
        "recipes": recipes.names(),
        "references": packages.files("reference"),
    }
    if name not in known[kind]:
        raise unknown(kind.removesuffix("s"), name, known[kind], f"jembench list {kind}")
    file = File(name)
    return [promise.check_of(kind, name, lambda: file) for promise in PROMISES[kind]]


# --- suites -----------------------------------------------------------------------------------------------------------


@promise("suites")
def can_be_read(file: File) -> None:
    """Its file says all that a suite must, and nothing that a suite does not know."""
    suites.load(file.name)


@promise("suites")
def title(file: File) -> None:
    """It has a title, which its tables are headed by."""
    require(bool(file.suite.title.strip()), 'The title is empty. Say in a line what is compared: title = "...".')


@promise("suites")
def names_what_exists(file: File) -> None:
    """Every model, dataset, metric and recipe that it names exists, and has the options that it is given."""
    make_plan(file.suite)


@promise("suites")
def published_numbers(file: File) -> None:
    """Every table of published numbers that it names exists."""
    named = file.suite.references
    only_if(bool(named), "It names no published numbers.")
    references.load(named)


@promise("suites")
def can_begin(file: File) -> None:
    """Every model can be made for its datasets and trained by its recipes."""
    _ = file.outlook


@promise("suites")
def no_metric_in_vain(file: File) -> None:
    """Every metric can be computed for one of the models at least."""
    with given("can-begin"):
        fits = file.outlook.fits
    reasons: dict[str, list[str]] = {}
    for cell in file.plan.cells:
        metric = str(cell.metric)
        reasons.setdefault(metric, []).append(fits[cell.fit.key.id].impossible.get(metric, ""))
    for metric, found in reasons.items():
        require(
            not all(found),
            f"{metric} is N/A for every model: {found[0].rstrip('.')}. Leave it out, or add a model that it is for.",
        )


# --- recipes ----------------------------------------------------------------------------------------------------------


@promise("recipes")
def recipe_can_be_read(file: File) -> None:
    """Its file says all that a recipe must, and nothing that a recipe does not know."""
    recipes.load(file.name)


@promise("recipes")
def recipe_title(file: File) -> None:
    """It has a title, which `jembench list recipes` shows."""
    require(bool(file.recipe.title.strip()), 'The title is empty. Say in a line what it is for: title = "...".')


@promise("recipes")
def sampler_exists(file: File) -> None:
    """The sampler that it names exists, and has the options that it is given."""
    sampler = file.recipe.chains.sampler
    only_if(bool(sampler), "It names no sampler, being for models that are trained without chains.")
    registry.resolve("samplers", sampler)


@promise("recipes")
def made_for_what_exists(file: File) -> None:
    """The models and datasets that it says it is made for exist."""
    recipe = file.recipe
    only_if(bool(recipe.models or recipe.default_for), "It is used only where it is asked for by name.")
    for model in recipe.models:
        discovery.load(discovery.find("models", model))
    for dataset in recipe.default_for:
        discovery.load(discovery.find("datasets", dataset))


@promise("recipes")
def the_only_default(file: File) -> None:
    """No other recipe says that it is made for the same models and datasets."""
    recipe = file.recipe
    for model in recipe.models:
        for dataset in recipe.default_for or ("any",):
            recipes.made_for(model, dataset)
    for dataset in () if recipe.models else recipe.default_for:
        recipes.default_for(dataset)


# --- published numbers ------------------------------------------------------------------------------------------------


@promise("references")
def reference_can_be_read(file: File) -> None:
    """Its file has the layout of published numbers."""
    references.read(file.name, packages.files("reference")[file.name])
