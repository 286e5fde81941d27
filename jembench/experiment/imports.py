"""Imported fits of a store, found by the names of ``jembench import``. Imports no torch."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from jembench.catalog import discovery, trust
from jembench.errors import SpecError
from jembench.experiment import claims
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit
from jembench.experiment.recipe import Recipe
from jembench.experiment.starts import check_starts, started
from jembench.experiment.suite import Run, Suite
from jembench.store.fits import FitRecord
from jembench.store.records import Record
from jembench.store.store import Store


def imports(store: Store, name: str) -> list[FitRecord]:
    """Return the records of the fits that were imported under a name; merged stores may have several."""
    return [record for record in store.trained() if record.import_name == name]


def with_imports(suite: Suite, store: Store) -> Suite:
    """Replace names of imported fits in a suite by their models, each with the recipe and the seed of its fit.

    Raises:
        SpecError: if several fits have a name, or a record names code that the user did not.
    """
    named = [
        *(name for run in suite.runs for name in run.models),
        *(name for one in suite.claims for name in one.models),
    ]
    found = {name: record for name in dict.fromkeys(named) if (record := _imported(name, store))}
    runs = [new for run in suite.runs for new in _blocks(run, found, store)]
    fits = {name: claims.Fit(record.key.model, record.key.recipe) for name, record in found.items()}
    return dataclasses.replace(suite, runs=tuple(runs), claims=tuple(one.about(fits) for one in suite.claims))


def _imported(name: str, store: Store) -> FitRecord | None:
    """Return the record of the fit that was imported under a name; None: it is the spec of another model."""
    records = [] if name in {component.name for component in discovery.components("models")} else imports(store, name)
    if len(records) > 1:
        raise SpecError(f"{name} means several imported fits: {'; '.join(str(record.key) for record in records)}.")
    return records[0] if records else None


def _blocks(run: Run, found: Mapping[str, FitRecord], store: Store) -> list[Run]:
    """Return a block for each model of a block that has imported fits."""
    if found.keys().isdisjoint(run.models):
        return [run]
    blocks = [dataclasses.replace(run, models=(name,)) for name in run.models]
    return [_of_fit(block, found[name], store) if (name := block.models[0]) in found else block for block in blocks]


def _of_fit(run: Run, record: FitRecord, store: Store) -> Run:
    """Return a block with an imported fit as its only model."""
    where, (model, seed) = str(store.fit_folder(record.key)), (record.key.model, record.key.seed)
    trust.refuse_code([model, record.recipe], where)
    settings = (*run.settings, *Record({"recipe": record.recipe}, where).read(Recipe, "recipe").overrides)
    of_fit = dataclasses.replace(run, imported=record.import_name, models=(model,), seeds=(seed,))
    return dataclasses.replace(of_fit, recipe=PRETRAINED, settings=settings)


def plan_named(
    model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int, store: Store
) -> FitPlan:
    """Return the plan of a model, or of an imported fit by its name; other arguments and errors as for ``plan_fit``."""
    if not (record := _imported(model, store)):
        return started(plan_fit(model, dataset, recipe, settings, seed), (), store)
    run = _of_fit(Run(), record, store)
    fit = plan_fit(run.models[0], dataset, recipe or PRETRAINED, (*run.settings, *settings), run.seeds[0])
    return dataclasses.replace(fit, imported=model)


def check_imports(fits: Collection[FitPlan], store: Store) -> None:
    """Check that the store has the imported ones of some fits, and those that others start from.

    Raises:
        SpecError: if an imported fit is missing.
        Unavailable: if a fit is missing from which another one starts.
    """
    check_starts(fits, store)
    for fit in fits:
        if fit.recipe.source and not store.is_trained(fit.key):
            raise SpecError(
                f"The store {store.root} has no imported {fit}, with the present code and options. Import its file "
                "again with `jembench import`, and leave out --set and datasets that it was not imported with."
            )
