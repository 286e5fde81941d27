"""Display names of models and headings of columns. Imports no torch.

They are no part of any identity.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from jembench.catalog import registry
from jembench.catalog.discovery import Kind
from jembench.catalog.spec import Spec, format_value
from jembench.errors import SpecError, unknown
from jembench.experiment.sweep import bare_name
from jembench.store.outcome import Trained

Names = Mapping[tuple[str, str], str]
"""Display names by the canonical spec of a model and the label of its recipe; by "" and a text the
name of a recipe or a dataset, or the heading of a metric or a value.
"""

NO_NAMES: Names = MappingProxyType({})


def without_digest(name: str) -> str:
    """Return the name of an object of a running program without the digest of its content."""
    return re.sub(r"-[0-9a-f]{10}$", "", name)


def requested(model: str, arguments: Mapping[str, Any], of_recipe: Mapping[str, str]) -> str:
    """Return the spec of a model as it was requested: without the options that its recipe added.

    Args:
        model: the canonical spec.
        arguments: all its options, defaults included.
        of_recipe: the options of models that the recipe sets.
    """
    parsed = Spec(model)
    options = dict(parsed.options)
    for key in of_recipe.keys() & arguments.keys():
        value = options.pop(key, format_value(arguments[key]))
        if value != of_recipe[key]:  # the recipe was overridden
            options[key] = value
    return Spec.of(without_digest(parsed.name), options)


def recorded(model: str, identity: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """Return the spec of a model as it was requested, else the canonical one.

    The identity and the recipe in a file tell what was requested.

    Args:
        model: the canonical spec.
        identity: of the fit.
        recipe: every field.
    """
    with suppress(AttributeError, KeyError, TypeError):
        return requested(model, identity["model"]["arguments"], recipe["model"])
    return model


def display_names(
    given: Mapping[str, str],
    shown: Mapping[Trained, str],
    of_suite: Names = NO_NAMES,
    columns: Collection[str] = (),
    also: Collection[str] = (),
) -> Names:
    """Return the display names of fits, and the headings of columns.

    The name of a fit on a dataset by a recipe is its own.

    A model has the name that is given, or that of the suite, or else that of its import or its
    requested spec, if that is unambiguous.

    Args:
        given: display names by specs or other names of models, and headings by metrics or labels.
        shown: the names of imports or the requested specs of all fits that are shown.
        of_suite: the names that a suite gives.
        columns: the metrics and labels that can be headed.
        also: texts of ``given`` that may name nothing that is shown.

    Raises:
        SpecError: for a text that names neither a model nor a column, or a name of several models
            on a dataset.
    """
    taken, names = (
        Counter((name, *fit[1:]) for fit, name in shown.items()),
        dict[tuple[str, str], str](),
    )
    for (model, data, recipe), name in shown.items():
        names |= {(model, recipe): name} if name != model and taken[name, data, recipe] == 1 else {}
    usual = names = {**names, **of_suite}
    for text, name in given.items() if shown else ():
        keys = {("", text)} & {("", column) for column in columns}
        for on in () if keys else {fit[1:] for fit in shown}:
            known = {(model, on[1]): model for model, *others in shown if (*others,) == on}
            known |= {key: usual[key] for key in known.keys() & usual.keys()}
            found = matching(None, text, known.values()) or matching(
                "models", text, (model for model, _ in known)
            )
            keys |= {key for key, called in known.items() if {key[0], called} & {*found}}
        if not keys and text not in also:
            texts = {*(model for model, _, _ in shown), *usual.values(), *columns}
            raise unknown("model or column among these results", text, texts, "")
        names = {**names, **dict.fromkeys(keys, name)}
    owners: dict[Trained, str] = {}
    for model, data, recipe in shown:
        name = names.get((model, recipe), model)
        if (other := owners.setdefault(Trained(name, data, recipe), model)) != model:
            raise SpecError(
                f"{name!r} would be the name of {other} and of {model}. Give each model its own."
            )
    return names


def matching(kind: Kind | None, text: str, known: Iterable[str]) -> list[str]:
    """Return the known texts that a text stands for.

    They are itself, all matches of a pattern (``jem*``), or all specs of a name.

    Of models, a spec with options stands for all that have these and others, if there is none
    without others.

    Args:
        kind: of the components whose canonical specs are known; None: they are no specs.
        text: a spec, a name or a pattern as of :mod:`fnmatch`.
        known: to be chosen from.
    """
    names = list(dict.fromkeys(known))
    if text in names:
        return [text]
    if kind is None or set(text) & set("*?["):
        return [name for name in names if fnmatchcase(name, text)]
    if (canonical := registry.canonical(kind, text)) in names:
        return [canonical]
    stated = Spec(text).options.items()
    alike = [
        name
        for name in names
        if bare_name(name) == bare_name(text) and (kind == "models" or not stated)
    ]
    return [name for name in alike if stated <= Spec(name).options.items()]
