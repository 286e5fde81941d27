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
) -> Sequence[T]:
    """The items of what is wanted, in that order; of equal ones, in theirs. None: all.

    Args:
        option: what is named: ``models``, ``dataset``, ``metrics``, ``recipe``, ``seeds`` or ``columns``.
        wanted: specs or names.
        items: of a store.
        of: the name of an item.
        where: the items are, for errors.

    Raises:
        SpecError: for a name that none of the items is of.
    """
    if wanted is None:
        return items
    known, ranks, specs = list(dict.fromkeys(map(of, items))), dict[str, int](), _NAMED[option].specs
    for text in wanted:
        found = matching(specs, text, known) if specs else [name for name in known if name == text]
        if not found:
            raise not_found(option, text, map(bare_name, known) if option == "metrics" else known, where)
        ranks |= {name: len(ranks) + place for place, name in enumerate(found) if name not in ranks}
    return sorted((item for item in items if of(item) in ranks), key=lambda item: ranks[of(item)])


def matching(kind: Kind, text: str, specs: Iterable[str]) -> list[str]:
    """The canonical specs that ``text`` means: the same spec, or all of that name if it has no options."""
    names = list(dict.fromkeys(specs))
    found = [name for name in names if name in (text, registry.canonical(kind, text))]
    bare = not spec.parse(text).arguments
    return found or [name for name in names if bare and bare_name(name) == bare_name(text)]


def display_names(names: DisplayNames, fits: Iterable[FitKey], *, strict: bool = False) -> dict[tuple[str, str], str]:
    """The display names of trained models.

    Args:
        names: by specs, in full or the name alone where that means one, and recipes.
        fits: of a store.
        strict: whether to refuse a spec that none of them is meant by.

    Raises:
        SpecError: for a spec that means more than one model.
    """
    found: dict[tuple[str, str], str] = {}
    known = list(dict.fromkeys((fit.model, fit.recipe) for fit in fits))
    for (text, recipe), name in names.items():
        trained = [pair for pair in known if recipe in ("", pair[1])]
        meant = matching("models", text, [model for model, _ in trained])
        if not meant and strict:
            raise not_found("models", text, [model for model, _ in known])
        if len(meant) > 1:
            raise SpecError(
                f"{name!r} is to be the name of {text}, which means {', '.join(meant)}. Write the one meant."
            )
        found |= {pair: name for pair in trained if pair[0] in meant}
    return found


def check_apart(names: Names, fits: Iterable[FitKey]) -> None:
    """Whether all models have names of their own.

    Raises:
        SpecError: if two have the same.
    """
    by_name: dict[str, dict[str, None]] = {}
    for fit in fits:
        by_name.setdefault(names.get((fit.model, fit.recipe), fit.model), {})[fit.model] = None
    for name, of_name in by_name.items():
        if len(of_name) > 1:
            raise SpecError(f"{name!r} would be the name of {' and of '.join(of_name)}. Give each model its own.")
