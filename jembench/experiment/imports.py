"""Imported fits of a store, found by the names of ``jembench import``. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jembench.catalog import discovery, trust
from jembench.errors import SpecError
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Run
from jembench.store.fits import FitRecord
from jembench.store.records import Record
from jembench.store.store import Store


def imports(store: Store, name: str) -> list[FitRecord]:
    """Return the records of the fits that were imported under a name; merged stores may have several."""
    return [record for record in store.trained() if record.status == "imported" and _name(record) == name]


def with_imports(models: Iterable[str], store: Store) -> list[str | Run]:
    """Replace names of imported fits by their models, each with the recipe, the seed and the name of its fit.

    Raises:
        SpecError: if several fits have a name, or a record names code that the user did not.
    """
    known = {component.name for component in discovery.components("models")}
    found: list[str | Run] = []
    for name in models:
        records = [] if name in known or ":" in name else imports(store, name)
        if len(records) > 1:
            raise SpecError(f"{name} means several imported fits: {'; '.join(str(record.key) for record in records)}.")
        for record in records:
            model, where = record.key.model, str(store.fit_folder(record.key))
            trust.refuse_code([model, record.recipe], where)
            settings = Record({"recipe": record.recipe}, where).read(Recipe, "recipe").overrides
            seeds = (record.key.seed,)
            found.append(Run(models=(model,), name=name, recipe=PRETRAINED, settings=settings, seeds=seeds))
        if not records:
            found.append(name)
    return found


def plan_named(
    model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int, store: Store
) -> FitPlan:
    """Return the plan of a model, or of an imported fit by its name; other arguments and errors as for ``plan_fit``."""
    (found,) = with_imports([model], store)
    if isinstance(found, str):
        return plan_fit(found, dataset, recipe, settings, seed)
    return plan_fit(found.models[0], dataset, recipe or PRETRAINED, (*found.settings, *settings), found.seeds[0])


def check_imports(fits: Iterable[FitPlan], store: Store) -> None:
    """Check that the store has the imported ones of some fits, which cannot be trained.

    Raises:
        SpecError: if an imported fit is missing.
    """
    for fit in fits:
        if fit.recipe.source and not store.is_trained(fit.key):
            raise SpecError(
                f"The store {store.root} has no imported {fit}, with the present code and options. Import its file "
                "again with `jembench import`, and leave out --set and datasets that it was not imported with."
            )


def _name(record: FitRecord) -> object:
    source = record.provenance.get("imported")
    return source.get("name") if isinstance(source, dict) else None
