"""Fits whose training starts from the weights of another fit, and the names of trained fits. Imports no torch."""

import dataclasses
from collections.abc import Collection, Iterable

from jembench.errors import SpecError, Unavailable, unknown
from jembench.experiment.names import recorded
from jembench.experiment.plan import FitPlan
from jembench.experiment.suite import Run
from jembench.store.fits import FitRecord
from jembench.store.outcome import FitKey
from jembench.store.store import Store


def started(fit: FitPlan, planned: Iterable[tuple[Run, FitPlan]], store: Store) -> FitPlan:
    """Return a fit with the start of its recipe, a name or an id, replaced by a full id.

    The name of a model means the family of its fits on the same dataset, so that each seed starts from the fit of the
    same seed. The fits of a suite's earlier blocks come first; then those of the store that were trained from random
    weights. Every other text is that of :func:`find`.

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
    of_suite = [other for run, other in planned if text in (run.name, other.requested) and not other.is_pretrained]
    found = (
        {other.key.family for other in of_suite if str(other.dataset) == data}
        or {text} & {start for record in records for start in (record.key.family, record.recipe.get("start_from"))}
        or {record.key.family for record in records if record.key.dataset == data and _is_named(record, text)}
    )
    if len(found) > 1:
        meant = "; ".join(f"{record.key.id} ({record.key})" for record in records if record.key.family in found)
        raise SpecError(f"start_from={text} means several fits: {meant}. Give an id.")
    start = found.pop() if found else find(store, text).id
    return dataclasses.replace(fit, recipe=dataclasses.replace(fit.recipe, start_from=start))


def _is_named(record: FitRecord, text: str) -> bool:
    """Return whether a text is the name of the model of a fit that was trained from random weights."""
    key, names = record.key, {record.key.model, recorded(record.key.model, record.identity, record.recipe)}
    return text in names and bool(key.family) and not record.import_name and not record.recipe.get("start_from")


def find(store: Store, text: str) -> FitKey:
    """Return the trained model of a text: the name of an import, an id, the name of a folder, or the beginning of both.

    Raises:
        SpecError: if no model or several match.
    """
    records = store.trained()
    names = {store.fit_folder(record.key).name: record.key for record in records}
    found = [record.key for record in records if record.import_name == text]
    found = found or [key for name, key in names.items() if text in (name, key.id)]
    found = found or [key for name, key in names.items() if name.startswith(text) or key.id.startswith(text)]
    if not found:
        raise unknown(f"trained model in {store.root}", text, names, f"jembench store list --store {store.root}")
    if len(found) > 1:
        which = ", ".join(name for name, key in names.items() if key in found)
        raise SpecError(f"{text!r} means more than one trained model: {which}. Give more of the name.")
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
        f"{fit} starts from the weights of the fit {fit.recipe.start_from}, and the store {store.root} has no such fit "
        f"with seed {fit.seed}. Train it first, add it by `jembench store merge` or `jembench fetch`, or name another."
    )


def check_starts(fits: Collection[FitPlan], store: Store) -> None:
    """Check that the fits from which others start are among them or in the store.

    Raises:
        Unavailable: if one is missing.
    """
    for fit in fits:
        is_ready = not fit.recipe.start_from or fit.is_pretrained or store.is_trained(fit.key)
        if not is_ready and not any(fit.starts_from(other.key) for other in fits):
            start_of(fit, store)
