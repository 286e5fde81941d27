"""Fits of a store that plans name, by their import or as a start.

Imports no torch.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from jembench.catalog import discovery, trust
from jembench.errors import SpecError, Unavailable, unknown
from jembench.experiment import claims
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Run, Suite
from jembench.store.fits import FitRecord
from jembench.store.outcome import FitKey
from jembench.store.records import Record
from jembench.store.store import Store


def imports(store: Store, name: str) -> list[FitRecord]:
    """Return the records of the fits that were imported under a name.

    Merged stores may have several.
    """
    return [record for record in store.trained() if record.import_name == name]


def with_imports(suite: Suite, store: Store) -> Suite:
    """Replace names of imported fits in a suite by their models.

    Each has the recipe and the seed of its fit.

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
    return dataclasses.replace(
        suite, runs=tuple(runs), claims=tuple(one.about(fits) for one in suite.claims)
    )


def _imported(name: str, store: Store) -> FitRecord | None:
    """Return the record of the fit that was imported under a name.

    None: the text is the spec of another model.
    """
    records = (
        []
        if name in {component.name for component in discovery.components("models")}
        else imports(store, name)
    )
    if len(records) > 1:
        raise SpecError(
            f"{name} means several imported fits: "
            f"{'; '.join(str(record.key) for record in records)}."
        )
    return records[0] if records else None


def _blocks(run: Run, found: Mapping[str, FitRecord], store: Store) -> list[Run]:
    """Return a block for each model of a block that has imported fits."""
    if found.keys().isdisjoint(run.models):
        return [run]
    blocks = [dataclasses.replace(run, models=(name,)) for name in run.models]
    return [
        _of_fit(block, found[name], store) if (name := block.models[0]) in found else block
        for block in blocks
    ]


def _of_fit(run: Run, record: FitRecord, store: Store) -> Run:
    """Return a block with an imported fit as its only model."""
    where, (model, seed) = str(store.fit_folder(record.key)), (record.key.model, record.key.seed)
    trust.refuse_code([model, record.recipe], where)
    settings = (
        *run.settings,
        *Record({"recipe": record.recipe}, where).read(Recipe, "recipe").overrides,
    )
    of_fit = dataclasses.replace(run, imported=record.import_name, models=(model,), seeds=(seed,))
    return dataclasses.replace(of_fit, recipe=PRETRAINED, settings=settings)


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
    """Return a fit with the start of its recipe, a name or an id, replaced by a full id.

    The name of a model means the family of its fits on the same dataset, so that each seed starts
    from the fit of the same seed. The fits of a suite's earlier blocks come first; then those of
    the store that were trained from random weights. Every other text is that of :func:`find`.

    Args:
        fit: to be trained.
        planned: the earlier fits of the suite, with their blocks.
        store: of trained fits.

    Raises:
        SpecError: if no fit or several match.
    """
    text, data = fit.recipe.start_from, str(fit.dataset)
    if not text:
        return fit
    records = store.trained()
    of_suite = [
        other
        for run, other in planned
        if text in (run.name, other.asked) and not other.is_pretrained
    ]
    found = (
        {other.key.family for other in of_suite if str(other.dataset) == data}
        or {text}
        & {
            start
            for record in records
            for start in (record.key.family, record.recipe.get("start_from"))
        }
        or {
            record.key.family
            for record in records
            if record.key.dataset == data and _is_named(record, text)
        }
    )
    if len(found) > 1:
        meant = "; ".join(
            f"{record.key.id} ({record.key})" for record in records if record.key.family in found
        )
        raise SpecError(f"start_from={text} means several fits: {meant}. Give an id.")
    start = found.pop() if found else find(store, text).id
    return dataclasses.replace(fit, recipe=dataclasses.replace(fit.recipe, start_from=start))


def _is_named(record: FitRecord, text: str) -> bool:
    """Return whether a text names a model that was trained from random weights."""
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
    records = store.trained()
    names = {store.fit_folder(record.key).name: record.key for record in records}
    found = [record.key for record in records if record.import_name == text]
    found = found or [key for name, key in names.items() if text in (name, key.id)]
    found = found or [
        key for name, key in names.items() if name.startswith(text) or key.id.startswith(text)
    ]
    if not found:
        raise unknown(
            f"trained model in {store.root}",
            text,
            names,
            f"jembench store list --store {store.root}",
        )
    if len(found) > 1:
        which = ", ".join(name for name, key in names.items() if key in found)
        raise SpecError(
            f"{text!r} means more than one trained model: {which}. Give more of the name."
        )
    return found[0]


def start_of(fit: FitPlan, store: Store) -> FitRecord:
    """Return the record of the fit from whose weights the training of another one starts.

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
    """Check that the store has all imported fits, and all fits to start from.

    A fit to start from may be among ``fits`` in place of the store.

    Raises:
        SpecError: if an imported fit is missing.
        Unavailable: if a fit is missing from which another one starts.
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
        if fit.recipe.start_from and not any(fit.starts_from(other.key) for other in fits):
            start_of(fit, store)
