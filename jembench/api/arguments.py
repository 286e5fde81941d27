"""The conversion of arguments of the API to those of plans and reports.

They are lists, specs, settings and a selection.
"""

import functools
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, cast

from jembench.api.live import dataset_spec, model_spec
from jembench.catalog.spec import format_value, split_list
from jembench.catalog.validation import Filled, Range, Rule, check_value
from jembench.errors import SpecError
from jembench.experiment import suite as suites
from jembench.experiment.recipe import AtLeast1, Positive, Seed
from jembench.report.select import Selection

Settings = Mapping[str, str | int | float | bool | None]
"""Fields of the recipe (``epochs``, ``"optimizer.learning_rate"``) or options of metrics
(``"ece.bins"``).
"""


_DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu|hpu|xla|meta)(:\d+)?").fullmatch

VALUES: Mapping[str, Any] = {
    **dict.fromkeys(
        ("executor", "sampler", "budget", "recipe_b", "license", "format", "name"), Filled
    ),
    **dict.fromkeys(("progress", "skip_missing", "chains", "private"), bool),
    "device": Annotated[str, Rule("auto, cpu, cuda, cuda:1 ... or mps", _DEVICE)],
    "limit": AtLeast1,
    "max_hours": Positive,
    "seed": Seed,
    "resamples": Annotated[int, Range(least=1, most=10**6)],
    "n": Annotated[int, Range(least=1, most=10**6)],
    "steps": AtLeast1,
    "names": Mapping[str, Filled],
}
"""The types and ranges of arguments, the same in every function of the API."""

MOST_SEEDS = 10_000

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Check the arguments of a function of the API by their names, before anything is done.

    The function raises SpecError for a value of another type or out of range.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        bound = signature.bind(*positional, **named)
        for name, given in bound.arguments.items():
            if (hint := VALUES.get(name)) is None:
                continue
            if signature.parameters[name].default is None:
                hint = hint | None
            bound.arguments[name] = check_value(given, hint, name)
        return function(*bound.args, **bound.kwargs)

    return cast("Function", call)


def texts(given: Any, what: str, spec: Callable[[Any], str] | None = None) -> list[str] | None:
    """Return one value or several as a list of specs, names or labels; None stays None.

    A text is split at commas between specs.

    Args:
        given: the value or the values.
        what: the name of the argument, for errors.
        spec: gives the spec of a value that may be an object; None: values are texts.

    Raises:
        SpecError: if a value is no text, and may be no object.
    """
    if given is None:
        return None
    several = (
        split_list(given)
        if isinstance(given, str)
        else given
        if isinstance(given, list | tuple)
        else [given]
    )
    if spec:
        return [spec(value) for value in several]
    for value in several:
        if not isinstance(value, str):
            raise SpecError(
                f"{what} is given as {type(value).__name__}; it must be a text, or a list of texts."
            )
    return list(several)


def some_texts(given: Any, what: str, spec: Callable[[Any], str] | None = None) -> list[str] | None:
    """Return values as :func:`texts` does, at least one of them.

    Raises:
        SpecError: if there is none; otherwise as for :func:`texts`.
    """
    found = texts(given, what, spec)
    if found == []:
        raise SpecError(
            f"{what} is {given!r:.80}, which names nothing. Leave it out for the default."
        )
    return found


def one_text(given: Any, what: str) -> str | None:
    """Return a name, a label or the path of a file as text; None stays None.

    Raises:
        SpecError: if it is neither.
    """
    if given is None:
        return None
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
    if not isinstance(text, str) or not text.strip() or "\0" in text or len(text) > 4096:
        raise SpecError(
            f"{what} is {given!r:.80}; it must be a name or the path of a file or folder."
        )
    return text


def model_specs(given: Any, names: Mapping[str, str]) -> tuple[list[str] | None, Mapping[str, str]]:
    """Return models as specs, and the display names by specs.

    Names include those of a mapping ``{"Mine": model}``.

    Raises:
        SpecError: if there is no model, a name is no text, or a mapping has a model twice.
    """
    if not isinstance(given, Mapping):
        return some_texts(given, "models", model_spec), names
    check_value(list(given), Sequence[Filled], "names of models")
    specs = {name: model_spec(model) for name, model in given.items()}
    named = {spec: name for name, spec in specs.items()}
    if len(named) < len(specs):
        raise SpecError(
            f"models has one model under several of the names {', '.join(specs)}. Give each its "
            "own."
        )
    return some_texts(list(named), "models"), {**named, **names}


def seed_numbers(given: str | int | Iterable[str | int]) -> list[int]:
    """Return one seed or several, numbers or texts, as a list.

    Raises:
        SpecError: if a value is no seed; PyTorch's have 64 bits, which hold 18 digits.
    """
    if isinstance(given, bytes | Mapping):
        raise SpecError(
            f"seeds is given as {type(given).__name__}; it must be whole numbers: 0,1,2."
        )
    several: Iterable[Any] = [given]
    if isinstance(given, str):
        several = split_list(given)
    elif isinstance(given, Iterable) and getattr(given, "ndim", 1) > 0:
        several = given
    seeds = [str(seed) for seed in itertools.islice(several, MOST_SEEDS + 1)]
    if len(seeds) > MOST_SEEDS:
        raise SpecError(f"seeds has more than {MOST_SEEDS:,} numbers. Give fewer.")
    if not seeds or not all(seed.isdecimal() and len(seed) <= 18 for seed in seeds):
        text = ",".join(seeds)[:80]
        raise SpecError(
            f"seeds is {text!r}; it must be whole numbers from 0 on, of 18 digits at most: 0,1,2."
        )
    return list(map(int, seeds))


def setting_texts(settings: Settings | None) -> list[str]:
    """Return settings in the form of the command line, such as ``epochs=5``."""
    if not isinstance(settings, Mapping | None):
        raise SpecError(
            f'settings is {settings!r:.80}; it must be a mapping of recipe fields: {{"epochs": 5}}.'
        )
    for key, value in (settings or {}).items():
        check_value(key, str, "A key of settings")
        check_value(value, str | int | float | bool | None, f"settings[{key!r}]")
    return [f"{key}={format_value(value)}" for key, value in (settings or {}).items()]


@checked
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
    """Return the selection of a store's results.

    None means all; several are a list, or a text with commas.

    Args:
        suite: the name of a suite, to show only its metrics; or the file of an experiment, whose
            models, data, recipes, seeds and names are the defaults of the arguments below.
        models: specs or modules, in the order of the tables, or a mapping of display names to
            these; a bare name selects that spec, or else all models of the name, and ``jem*`` those
            that the pattern matches.
        dataset: specs or datasets, as models.
        recipe: labels as tables show them, or patterns: ``digits+epochs=5``, ``digits*``.
        seeds: of the trained models.
        metrics: specs, names or patterns, in the order of the columns.
        columns: labels of values or patterns, in the order of the columns.
        names: display names by specs of models, and headings of columns by metrics or labels.
        limit: show results on this number of test images; None: that of the suite, or else all; if
            all results of the store share another number, that.

    Example:
        >>> selection("hybrid", models="jem,baseline", columns=["accuracy", "ece"]).models
        ['jem', 'baseline']
    """
    suite = one_text(suite, "suite")
    chosen, (specs, names) = suites.load(suite) if suite else None, model_specs(models, names)
    return Selection(
        suite=chosen,
        file=suite if suite and chosen and chosen.text else "",
        models=specs,
        dataset=some_texts(dataset, "dataset", dataset_spec),
        recipe=some_texts(recipe, "recipe"),
        seeds=None if seeds is None else seed_numbers(seeds),
        metrics=some_texts(metrics, "metrics"),
        columns=some_texts(columns, "columns"),
        names=names,
        limit=chosen.limit if chosen and limit is None else limit,
    )
