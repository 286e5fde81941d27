"""Display names of models and headings of columns. Imports no torch.

Names and headings are no part of any identity.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from jembench.catalog import registry
from jembench.catalog.discovery import Kind
from jembench.catalog.spec import Spec
from jembench.errors import JembenchError, SpecError, unknown
from jembench.store.outcome import Trained


@dataclass(frozen=True, kw_only=True)
class DisplayNames:
    """Display names of models, recipes and datasets, and headings of columns."""

    models: Mapping[tuple[str, str], str] = field(default_factory=dict)  # by spec and recipe
    recipes: Mapping[str, str] = field(default_factory=dict)  # by label
    datasets: Mapping[str, str] = field(default_factory=dict)  # by spec
    headings: Mapping[str, str] = field(default_factory=dict)  # by metric or label of a value

    def model(self, spec: str, recipe: str) -> str:
        """Return the display name of a model trained by a recipe."""
        return self.models.get((spec, recipe), spec)


NO_NAMES = DisplayNames()


def display_names(
    stated: Mapping[str, str],
    shown: Mapping[Trained, str],
    of_suite: DisplayNames = NO_NAMES,
    columns: Collection[str] = (),
    also: Collection[str] = (),
) -> DisplayNames:
    """Return the display names of fits, and the headings of columns.

    A model has the stated name, or the suite's name, or else the name by which it was asked for, if
    that name is unambiguous.

    Args:
        stated: display names by specs or other names of models, and headings by metrics or labels.
        shown: all fits that are shown, with the name of the import or the spec that was asked for.
        of_suite: the names that a suite gives.
        columns: the metrics and labels that can have headings.
        also: texts of ``stated`` that may name nothing that is shown.

    Raises:
        SpecError: if a text names neither a model nor a column, or several models on a dataset
            would have one name.
    """
    usual = {**_as_asked(shown), **of_suite.models}
    models, headings = dict(usual), dict(of_suite.headings)
    for text, name in stated.items() if shown else ():
        if text in columns:
            headings[text] = name
            continue
        called = _called(text, shown, usual)
        if not called and text not in also:
            specs = {fit.model for fit in shown}
            texts = {*specs, *usual.values(), *columns}
            raise unknown("model or column among these results", text, texts, "")
        models |= dict.fromkeys(called, name)
    names = replace(of_suite, models=models, headings=headings)
    _refuse_one_name_of_two(names, shown)
    return names


def _as_asked(shown: Mapping[Trained, str]) -> dict[tuple[str, str], str]:
    """Return the unambiguous names by which models were asked for.

    Such a name means only one model of a dataset and a recipe.
    """
    uses = Counter((name, fit.dataset, fit.recipe) for fit, name in shown.items())
    names: dict[tuple[str, str], str] = {}
    for fit, name in shown.items():
        if name != fit.model and uses[name, fit.dataset, fit.recipe] == 1:
            names[fit.model, fit.recipe] = name
    return names


def _called(
    text: str, shown: Iterable[Trained], usual: Mapping[tuple[str, str], str]
) -> set[tuple[str, str]]:
    """Return the models and recipes that a text means, on any dataset."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for model, dataset, recipe in shown:
        names = groups.setdefault((dataset, recipe), {})
        names[model] = usual.get((model, recipe), model)
    called = set()
    for (_, recipe), names in groups.items():
        # a display name comes before a spec
        meant = matching(None, text, names.values()) or matching("models", text, names)
        called |= {(model, recipe) for model, name in names.items() if {model, name} & {*meant}}
    return called


def _refuse_one_name_of_two(names: DisplayNames, shown: Iterable[Trained]) -> None:
    """Refuse a name that two models of one dataset and recipe would share."""
    owners: dict[tuple[str, str, str], str] = {}
    for model, dataset, recipe in shown:
        name = names.model(model, recipe)
        owner = owners.setdefault((name, dataset, recipe), model)
        if owner != model:
            raise SpecError(
                f"{name!r} would be the name of {owner} and of {model}. Give each model its own."
            )


def dataset_id(text: str) -> str:
    """Return the hash of a dataset's identity; "": it cannot be read here.

    The hash does not depend on the place of the files.
    """
    with suppress(JembenchError):
        return registry.resolve("datasets", text).id
    return ""


def matching(kind: Kind | None, text: str, known: Iterable[str]) -> list[str]:
    """Return the known texts that a text stands for.

    A text stands for itself, a pattern (``jem*``) for all matches, a name for all its specs.

    A model's spec that is not known itself stands for all known specs that have its options and
    further ones.

    Args:
        kind: of the components whose canonical specs are ``known``; None: texts are no specs.
        text: a spec, a name or a pattern of :mod:`fnmatch`.
        known: the texts to choose from.
    """
    names = list(dict.fromkeys(known))
    if text in names:
        return [text]
    if kind is None or set(text) & set("*?["):
        return [name for name in names if fnmatchcase(name, text)]
    canonical = registry.canonical(kind, text)
    if canonical in names:
        return [canonical]
    asked = Spec(text)
    if asked.options and kind != "models":
        return []
    specs = map(Spec, names)
    return [
        spec
        for spec in specs
        if spec.bare == asked.bare and asked.options.items() <= spec.options.items()
    ]
