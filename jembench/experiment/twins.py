"""Differences between planned fits and a store's fits of the same names."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from jembench.catalog.spec import format_value
from jembench.errors import StoreError
from jembench.experiment.plan import FitPlan
from jembench.store.fits import FitRecord
from jembench.store.store import Store


def differences(fits: Iterable[FitPlan], store: Store) -> list[str]:
    """Return sentences about planned trainings for which a store has similar fits.

    Similar are trained fits of the same model, dataset, recipe and seed, and imported fits of the
    same model and dataset. Seeds with the same differences share a sentence.
    """
    planned = [fit for fit in fits if not fit.is_pretrained]
    twins = defaultdict[tuple[object, ...], list[FitRecord]](list)
    imports: dict[tuple[str, ...], str] = {}
    with suppress(StoreError):  # if there can be no store, writing raises the error
        for record in store.trained() if planned else ():
            twins[*record.key.names, record.key.seed].append(record)
            if record.import_name:
                imports[record.key.names[:2]] = record.import_name
    sentences = []
    seeds_of: dict[tuple[str, str], list[int]] = {}
    for fit in planned:
        key, records = fit.key, twins[*fit.key.names, fit.seed]
        if records and key.id not in {record.key.id for record in records}:
            nearest = min((between(record, fit) for record in records), key=len)
            what = f"A trained {fit.asked} of this recipe ({key.recipe}, on {key.dataset}) exists"
            seeds_of.setdefault((what, "; ".join(nearest)), []).append(key.seed)
        name = imports.get(key.names[:2])
        if name and not records:
            sentences.append(
                f"{fit.asked} on {key.dataset} is trained here. The store also has weights of it "
                f"that were imported; --models {name}, or models = [{name!r}] in a file, measures "
                "those."
            )
    for (what, which), seeds in seeds_of.items():
        again = f"Seed {seeds[0]} is"
        if len(seeds) > 1:
            again = f"Seeds {', '.join(map(str, seeds))} are"
        sentences.append(f"{what}; it differs in: {which}. {again} trained again.")
    return list(dict.fromkeys(sentences))


def between(record: FitRecord, fit: FitPlan) -> list[str]:
    """Describe how a trained fit and a planned one differ."""
    return changes(record.identity, fit.identity) or ["nothing that was recorded"]


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe how two fits' identities differ; ``old`` is from a file."""
    new = json.loads(json.dumps(new))
    return [change for part in new for change in _changes(old.get(part), new[part], part)]


def _changes(old: Any, new: Any, path: str) -> Iterator[str]:
    """Yield the differences of two values of an identity, by their keys.

    An example is ``model.net: small-2 -> auto``.
    """
    if old == new:
        return
    if path.endswith(".code"):
        yield f"the code of the {path.split('.')[-2]}"
    elif _is_digest(old) and _is_digest(new):
        yield f"the content of the files of {path}"
    elif (
        isinstance(old, Mapping) and isinstance(new, Mapping) and old.get("name") == new.get("name")
    ):
        for key in sorted(old.keys() | new.keys()):
            yield from _changes(
                old.get(key), new.get(key), path if key == "arguments" else f"{path}.{key}"
            )
    else:
        yield f"{path}: {_shown(old)} -> {_shown(new)}"


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name", "another"))
    return format_value(value) if isinstance(value, str | int | float | None) else json.dumps(value)
