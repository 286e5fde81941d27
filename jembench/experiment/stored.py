"""Stored fits that plans name, as imports or as starts of training.

Imports no torch.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from jembench.catalog import discovery, trust
from jembench.errors import SpecError, Unavailable, unknown
from jembench.experiment import claims
from jembench.experiment.names import dataset_id
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Run, Suite
from jembench.store.fits import FitRecord
from jembench.store.outcome import FitKey
from jembench.store.records import Record
from jembench.store.store import Store


def imports(store: Store, name: str) -> list[FitRecord]:
    """Return the records of the fits that were imported under a name.

    Merged stores may have several fits of a name.
    """
    return [record for record in store.trained() if record.import_name == name]


def with_imports(suite: Suite, store: Store) -> Suite:
    """Replace names of imported fits in a suite by their models.

    Each model has the recipe and the seed of its fit.

    Raises:
        SpecError: if several fits share a name, or a record names code that the user did not name.
    """
    names = [name for run in suite.runs for name in run.models]
    names += [name for claim in suite.claims for name in claim.models]
    records: dict[str, FitRecord] = {}
    for name in dict.fromkeys(names):
        record = _imported(name, store)
        if record:
            records[name] = record
    runs = list[Run]()
    for run in suite.runs:
        runs += _blocks(run, records, store)
    fits = {
        name: claims.NamedFit(record.key.model, record.key.recipe)
        for name, record in records.items()
    }
    about = tuple(claim.about(fits) for claim in suite.claims)
    return dataclasses.replace(suite, runs=tuple(runs), claims=about)


def _imported(name: str, store: Store) -> FitRecord | None:
    """Return the record of the fit that was imported under a name.

    None: no import has the name.
    """
    if name in {component.name for component in discovery.components("models")}:
        return None
    records = imports(store, name)
    if len(records) > 1:
        fits = "; ".join(str(record.key) for record in records)
        raise SpecError(f"{name} means several imported fits: {fits}.")
    return records[0] if records else None


def _blocks(run: Run, records: Mapping[str, FitRecord], store: Store) -> list[Run]:
    """Return a block for each model of a block with imported fits."""
    if records.keys().isdisjoint(run.models):
        return [run]
    blocks = []
    for name in run.models:
        if name in records:
            blocks.append(_of_fit(run, records[name], store))
        else:
            blocks.append(dataclasses.replace(run, models=(name,)))
    return blocks


def _of_fit(run: Run, record: FitRecord, store: Store) -> Run:
    """Return a block with an imported fit as its only model."""
    where, fit = str(store.fit_folder(record.key)), record.key
    trust.refuse_code([fit.model, record.recipe], where)
    recipe = Record({"recipe": record.recipe}, where).read(Recipe, "recipe")
    return dataclasses.replace(
        run,
        imported=record.import_name,
        models=(fit.model,),
        seeds=(fit.seed,),
        recipe=PRETRAINED,
        settings=(*run.settings, *recipe.overrides),
    )


def plan_named(
    model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int, store: Store
) -> FitPlan:
    """Return the plan of a model, or of an imported fit by its name.

    Further arguments and errors are those of ``plan_fit``.
    """
    if not (record := _imported(model, store)):
        return started(plan_fit(model, dataset, recipe, settings, seed), (), store)
    run = _of_fit(Run(), record, store)
    fit = plan_fit(
        run.models[0], dataset, recipe or PRETRAINED, (*run.settings, *settings), run.seeds[0]
    )
    return dataclasses.replace(fit, imported=model)


def started(fit: FitPlan, planned: Iterable[tuple[Run, FitPlan]], store: Store) -> FitPlan:
    """Return a fit whose recipe names its start by a full id.

    So far, the recipe names the start by a name or an id. A model's name means the family of its
    fits on the same dataset, so that each seed starts from the fit of the same seed. Fits of the
    suite's earlier blocks come first, then stored fits that were trained from random weights. Any
    other text is resolved by :func:`find`.

    Args:
        fit: the fit to train.
        planned: the earlier fits of the suite, with their blocks.
        store: of trained fits.

    Raises:
        SpecError: if no fit or several match.
    """
    text, dataset = fit.recipe.start_from, fit.dataset.spec
    if not text:
        return fit
    records = store.trained()
    families = set[str]()
    for run, earlier in planned:
        is_named = text in (run.name, earlier.asked) and not earlier.is_pretrained
        if is_named and earlier.dataset.spec == dataset:
            families.add(earlier.key.family)
    if not families:  # the text may be a full id already, from an earlier plan
        for record in records:
            families |= {text} & {record.key.family, record.recipe.get("start_from")}
    if not families:
        own_id = dataset_id(dataset)
        for record in records:
            is_same = record.key.dataset == dataset or record.dataset_id == own_id
            if is_same and _is_named(record, text):
                families.add(record.key.family)
    if len(families) > 1:
        keys = [record.key for record in records if record.key.family in families]
        meant = "; ".join(f"{key.id} ({key})" for key in keys)
        raise SpecError(f"start_from={text} means several fits: {meant}. Give an id.")
    start = families.pop() if families else find(store, text).id
    return dataclasses.replace(fit, recipe=dataclasses.replace(fit.recipe, start_from=start))


def _is_named(record: FitRecord, text: str) -> bool:
    """Return whether a text names a model trained from random weights."""
    if record.import_name or record.recipe.get("start_from"):
        return False
    return text in (record.key.model, record.asked) and bool(record.key.family)


def find(store: Store, text: str) -> FitKey:
    """Return the trained model that a text names.

    A text is the name of an import, an id, the name of a folder, or the beginning of an id or a
    folder's name.

    Raises:
        SpecError: if no model or several match.
    """
    by_folder = {store.fit_folder(record.key).name: record for record in store.trained()}
    imported, exact, beginning = list[str](), list[str](), list[str]()
    for folder, record in by_folder.items():
        if record.import_name == text:
            imported.append(folder)
        if text in (folder, record.key.id):
            exact.append(folder)
        if folder.startswith(text) or record.key.id.startswith(text):
            beginning.append(folder)
    meant = imported or exact or beginning
    if not meant:
        listing = f"jembench store list --store {store.root}"
        raise unknown(f"trained model in {store.root}", text, by_folder, listing)
    if len(meant) > 1:
        raise SpecError(
            f"{text!r} means more than one trained model: {', '.join(meant)}. Give more of the "
            "name."
        )
    return by_folder[meant[0]].key


def start_of(fit: FitPlan, store: Store) -> FitRecord:
    """Return the record of the fit from which a training starts.

    Raises:
        Unavailable: if the store has no such fit.
    """
    for record in store.trained():
        if fit.starts_from(record.key):
            return record
    raise Unavailable(
        f"{fit} starts from the weights of the fit {fit.recipe.start_from}, and the store "
        f"{store.root} has no such fit with seed {fit.seed}. Train it first, add it by `jembench "
        "store merge` or `jembench fetch`, or name another."
    )


def check_stored(fits: Collection[FitPlan], store: Store) -> None:
    """Check that the store has all imported fits and starts of training.

    A fit to start from may also be among ``fits``.

    Raises:
        SpecError: if an imported fit is missing.
        Unavailable: if a fit to start from is missing.
    """
    for fit in fits:
        if store.is_trained(fit.key):
            continue
        if fit.recipe.source:
            raise SpecError(
                f"The store {store.root} has no imported {fit}, with the present code and "
                "options. Import its file again with `jembench import`, and leave out --set and "
                "datasets that it was not imported with."
            )
        if fit.recipe.start_from and not any(fit.starts_from(start.key) for start in fits):
            start_of(fit, store)
