"""How a model to be trained differs from trained ones of the same model, dataset, recipe and seed names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jembench.catalog.spec import format_value
from jembench.experiment.plan import FitPlan
from jembench.store.store import FitRecord, Store


def differences(fits: Iterable[FitPlan], store: Store) -> list[str]:
    """One sentence for each way in which models that are to be trained differ from trained ones of the same names.

    Seeds that differ in the same way share a sentence.
    """
    planned = {fit.key: fit for fit in fits if not fit.model.pretrained}
    found: dict[tuple[str, str], list[int]] = {}
    for key, records in store.namesakes(planned).items():
        if records and key.id not in {record.key.id for record in records}:
            nearest = min((_between(record, planned[key]) for record in records), key=len)
            what = f"A trained {key.model} of this recipe ({key.recipe}, on {key.dataset}) exists"
            found.setdefault((what, "; ".join(nearest)), []).append(key.seed)
    return [f"{what}; it differs in: {which}. {_seeds(seeds)} trained again." for (what, which), seeds in found.items()]


def _seeds(seeds: list[int]) -> str:
    return f"Seed {seeds[0]} is" if len(seeds) == 1 else f"Seeds {', '.join(map(str, seeds))} are"


def _between(record: FitRecord, fit: FitPlan) -> list[str]:
    """What differs between a trained model and one to be trained, in words."""
    if not record.identity:
        return ["unknown settings, because it was trained by an earlier version of jembench"]
    old, new = record.identity, json.loads(json.dumps(fit.identity))
    found = [*_of_component(old.get("model"), new["model"]), *_of_component(old.get("dataset"), new["dataset"])]
    before, after = (dict(identity.get("recipe") or {}) for identity in (old, new))
    samplers = []
    for recipe in (before, after):
        recipe["chains"] = dict(recipe.get("chains") or {})
        samplers.append(recipe["chains"].pop("sampler", None))
    found += [*_of_component(*samplers), *_of_recipe(before, after)]
    return list(dict.fromkeys(found)) or ["nothing that was recorded"]


def _of_component(old: Any, new: Any) -> Iterator[str]:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or old.get("name") != new.get("name"):
        if old != new:
            yield f"{_shown(old)} -> {_shown(new)}"
        return
    name = new["name"]
    if old.get("distribution") != new.get("distribution"):
        yield f"the distribution of {name}: {_shown(old.get('distribution'))} -> {_shown(new.get('distribution'))}"
    for target, _, _ in _changed(old.get("code"), new.get("code")):
        yield f"code of {target.partition(':')[0].partition('.')[0]}"
    for option, before, after in _changed(old.get("arguments"), new.get("arguments")):
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _of_component(before, after)
        elif _is_digest(before) and _is_digest(after):
            yield f"content of {name} (the files of its option {option})"
        else:
            yield f"option {option} of {name}: {_shown(before)} -> {_shown(after)}"


def _of_recipe(old: Any, new: Any, table: str = "") -> Iterator[str]:
    for key, before, after in _changed(old, new):
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _of_recipe(before, after, f"{table}{key}.")
        else:
            yield f"recipe field {table}{key}: {_shown(before)} -> {_shown(after)}"


def _changed(old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The keys whose values differ; one that is missing has the value ``_MISSING``."""
    one, other = (value if isinstance(value, Mapping) else {} for value in (old, new))
    for key in sorted(one.keys() | other.keys()):
        before, after = one.get(key, _MISSING), other.get(key, _MISSING)
        if before != after:
            yield key, before, after


_MISSING = object()


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "not set"
    if isinstance(value, Mapping):
        return str(value.get("name", "another"))
    return format_value(value) if isinstance(value, str | int | float | None) else json.dumps(value)
