"""What the names of models, datasets, metrics and recipes in a command mean of what a store holds. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from jembench.catalog import registry, spec
from jembench.catalog.discovery import Kind
from jembench.errors import SpecError, unknown
from jembench.experiment.plan import DisplayNames
from jembench.experiment.sweep import bare_name
from jembench.store.outcome import FitKey

T = TypeVar("T")

Names = Mapping[tuple[str, str], str]
"""Display names by the canonical spec of a model and the label of its recipe. They are no part of any identity."""

NO_NAMES: Names = MappingProxyType({})


class _Named(NamedTuple):
    """What can be named."""

    singular: str
    specs: Kind | None = None  # of these components; None: plain texts
    listed_by: str = ""  # a command that says more


_NAMED = {
    "models": _Named("model", "models", "jembench report"),
    "dataset": _Named("dataset", "datasets", "jembench report"),
    "metrics": _Named("metric", "metrics", "jembench list metrics"),
    "recipe": _Named("recipe"),
    "settings": _Named("change of a recipe"),
    "seeds": _Named("seed"),
    "columns": _Named("column"),
}
"""By the options of commands."""


def not_found(option: str, name: str, known: Iterable[str], where: str = "in the store") -> SpecError:
    """The error for a name that none of those known is meant by."""
    named = _NAMED[option]
    return unknown(f"{named.singular} {where}", name, set(known), named.listed_by)


def ranked(
    option: str,
    wanted: Sequence[str] | None,
    items: Sequence[T],
    of: Callable[[T], str],
    where: str = "in the store",
    apart: Callable[[T], object] = lambda item: None,
) -> Sequence[T]:
    """The items of what is wanted, in that order; of equal ones, in theirs. None: all.

    Args:
        option: what is named: ``models``, ``dataset``, ``metrics``, ``recipe``, ``seeds`` or ``columns``.
        wanted: specs or names.
        items: of a store.
        of: the name of an item.
        where: the items are, for errors.
        apart: in what items differ among which a bare name may mean different specs.

    Raises:
        SpecError: for a name that none of the items is of.
    """
    if wanted is None:
        return items
    known, specs = list(dict.fromkeys(map(of, items))), _NAMED[option].specs
    groups: dict[object, dict[str, None]] = {}
    for item in items:
        groups.setdefault(apart(item), {})[of(item)] = None
    ranks = dict[tuple[object, str], tuple[int, int]]()
    for number, text in enumerate(wanted):
        found = [
            (group, name)
            for group, names in groups.items()
            for name in (matching(specs, text, names) if specs else names.keys() & {text})
        ]
        if not found:
            raise not_found(option, text, map(bare_name, known) if option == "metrics" else known, where)
        for group, name in found:
            ranks.setdefault((group, name), (number, known.index(name)))
    kept = [(rank, item) for item in items if (rank := ranks.get((apart(item), of(item))))]
    return [item for _, item in sorted(kept, key=lambda one: one[0])]


def matching(kind: Kind, text: str, specs: Iterable[str]) -> list[str]:
    """The canonical specs that ``text`` means: the same spec, or all of that name if it has no options."""
    names = list(dict.fromkeys(specs))
    found = [name for name in names if name in (text, registry.canonical(kind, text))]
    bare = not spec.parse(text).arguments
    return found or [name for name in names if bare and bare_name(name) == bare_name(text)]


def display_names(names: DisplayNames, fits: Iterable[FitKey], *, strict_where: str = "") -> dict[tuple[str, str], str]:
    """The display names of trained models.

    Args:
        names: by specs, in full or the name alone where that means one on a dataset by a recipe, and recipes.
        fits: of a store.
        strict_where: where these fits are, to refuse a spec that none of them is meant by; empty: it is passed over.

    Raises:
        SpecError: for a spec that means more than one model.
    """
    found: dict[tuple[str, str], str] = {}
    trained: dict[tuple[str, str], dict[str, None]] = {}
    for fit in fits:
        trained.setdefault(trained_on(fit), {})[fit.model] = None
    for (text, recipe), name in names.items():
        meant = [
            (label, matching("models", text, models)) for (_, label), models in trained.items() if recipe in ("", label)
        ]
        if strict_where and not any(models for _, models in meant):
            raise not_found("models", text, [model for models in trained.values() for model in models], strict_where)
        for label, models in meant:
            if len(models) > 1:
                raise SpecError(
                    f"{name!r} is to be the name of {text}, which means {', '.join(models)}. Write the one meant."
                )
            found |= {(model, label): name for model in models}
    return found


def trained_on(fit: FitKey) -> tuple[str, str]:
    """Its dataset and recipe. A recipe has options for models: the same name may mean another spec with each."""
    return fit.dataset, fit.recipe


def check_apart(names: Names, fits: Iterable[FitKey]) -> None:
    """Whether all models on a dataset by a recipe have names of their own.

    Raises:
        SpecError: if two have the same.
    """
    by_name: dict[tuple[str, tuple[str, str]], dict[str, None]] = {}
    for fit in fits:
        name = names.get((fit.model, fit.recipe), fit.model)
        by_name.setdefault((name, trained_on(fit)), {})[fit.model] = None
    for (name, _), of_name in by_name.items():
        if len(of_name) > 1:
            raise SpecError(f"{name!r} would be the name of {' and of '.join(of_name)}. Give each model its own.")
