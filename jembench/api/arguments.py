"""The conversion of arguments of the API to those of plans and reports: lists, specs, settings, a selection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jembench.api.live import dataset_spec, model_spec
from jembench.catalog.spec import format_value, split_list
from jembench.errors import SpecError
from jembench.experiment import suite as suites
from jembench.report.select import Selection

Settings = Mapping[str, str | int | float | bool | None]
"""Fields of the recipe (``epochs``, ``"optimizer.learning_rate"``) or options of metrics (``"ece.bins"``)."""


def texts(given: Any, spec: Callable[[Any], str] = str) -> list[str] | None:
    """Return one value or several as a list of specs, names or labels; None stays None.

    A text is split at commas between specs.
    """
    if given is None:
        return None
    several = split_list(given) if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    return [spec(one) for one in several]


def model_specs(given: Any, names: Mapping[str, str]) -> tuple[list[str] | None, Mapping[str, str]]:
    """Return models as specs, and the display names by specs, with those of a mapping ``{"Mine": model}``.

    Raises:
        SpecError: if a mapping has a model twice.
    """
    if not isinstance(given, Mapping):
        return texts(given, model_spec), names
    specs = {name: model_spec(model) for name, model in given.items()}
    named = {spec: name for name, spec in specs.items()}
    if len(named) < len(specs):
        raise SpecError(f"models has one model under several of the names {', '.join(specs)}. Give each its own.")
    return list(named), {**named, **names}


def seed_numbers(given: str | int | Iterable[str | int]) -> list[int]:
    """Return one seed or several, numbers or texts, as a list.

    Raises:
        SpecError: if a value is no seed; PyTorch's have 64 bits, which hold 18 digits.
    """
    given = split_list(given) if isinstance(given, str) else given
    seeds = [str(given)] if isinstance(given, int) else list(map(str, given))
    if not seeds or not all(seed.isdecimal() and len(seed) <= 18 for seed in seeds):
        text = ",".join(seeds)[:80]
        raise SpecError(f"seeds is {text!r}; it must be whole numbers from 0 on, of 18 digits at most: 0,1,2.")
    return list(map(int, seeds))


def setting_texts(settings: Settings | None) -> list[str]:
    """Return settings in the form of the command line, such as ``epochs=5``."""
    if not isinstance(settings, Mapping | None):
        raise SpecError(f'settings is {settings!r}; it must be a mapping of recipe fields: {{"epochs": 5}}.')
    return [f"{key}={format_value(value)}" for key, value in (settings or {}).items()]


def selection(
    suite: str | None = None,
    *,
    models: Any = None,
    dataset: Any = None,
    recipe: str | Sequence[str] | None = None,
    seeds: str | int | Iterable[int] | None = None,
    metrics: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
) -> Selection:
    """Return the selection of a store's results. None means all; several are a list, or a text with commas.

    Args:
        suite: the name of a suite, to show only its metrics; or the file of an experiment, whose models, data, recipes,
            seeds and names are the defaults of the arguments below.
        models: specs or modules, in the order of the tables, or a mapping of display names to these; a bare name
            selects that spec, or else all models of the name, and ``jem*`` those that the pattern matches.
        dataset: specs or datasets, as models.
        recipe: labels as tables show them, or patterns: ``digits+epochs=5``, ``digits*``.
        seeds: of the trained models.
        metrics: specs, names or patterns, in the order of the columns.
        columns: labels of values or patterns, in the order of the columns.
        names: display names by specs of models, and headings of columns by metrics or labels.
        limit: show results on this number of test images; None: that of the suite, or else all; if all
            results of the store share another number, that.

    Example:
        >>> selection("hybrid", models="jem,baseline", columns=["accuracy", "ece"]).models
        ['jem', 'baseline']
    """
    chosen, (specs, names) = suites.load(suite) if suite else None, model_specs(models, names)
    return Selection(
        suite=chosen,
        file=suite if suite and chosen and chosen.text else "",
        models=specs,
        dataset=texts(dataset, dataset_spec),
        recipe=texts(recipe),
        seeds=None if seeds is None else seed_numbers(seeds),
        metrics=texts(metrics),
        columns=texts(columns),
        names=names,
        limit=chosen.limit if chosen and limit is None else limit,
    )
