"""The conversion of the API's arguments.

They become lists, specs, settings and selections.
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
from jembench.errors import SpecError, unknown
from jembench.experiment import suite as suites
from jembench.experiment.recipe import AtLeast1, Positive, Seed
from jembench.report.select import Selection
from jembench.store.outcome import Evaluated

Settings = Mapping[str, str | int | float | bool | None]
"""Fields of the recipe (``epochs``, ``"optimizer.learning_rate"``) or options of metrics
(``"ece.bins"``).
"""


Loss = Annotated[float, Range(least=0)]
"""A loss that passes a check, in the unit of tables."""

_DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu|hpu|xla|meta)(:\d+)?").fullmatch

VALUES: Mapping[str, Any] = {
    **dict.fromkeys(
        ("executor", "sampler", "budget", "recipe_b", "license", "format", "name"), Filled
    ),
    **dict.fromkeys(("progress", "skip_missing", "chains", "private", "strict"), bool),
    "device": Annotated[str, Rule("auto, cpu, cuda, cuda:1 ... or mps", _DEVICE)],
    "limit": AtLeast1,
    "split": Evaluated,
    "max_hours": Positive,
    "on_window": Annotated[Any, Rule("a function", callable)],
    "seed": Seed,
    "resamples": Annotated[int, Range(least=1, most=10**6)],
    "n": Annotated[int, Range(least=1, most=10**6)],
    "steps": AtLeast1,
    "names": Mapping[str, Filled],
    "tolerance": Mapping[str, Loss],
}
"""The types and ranges of arguments, the same in every function of the API."""

MOST_SEEDS = 10_000

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Check an API function's arguments by name, before each call.

    An unknown name, and a value of another type or out of range, raise SpecError.
    """
    signature = inspect.signature(function)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    parameters = signature.parameters.keys() - {"self"}

    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        for name in named.keys() - parameters:
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                raise unknown(f"argument of {function.__name__}()", name, parameters, "")
        bound = signature.bind(*positional, **named)
        for name, value in bound.arguments.items():
            hint = VALUES.get(name)
            if hint is None:
                continue
            if signature.parameters[name].default is None:
                hint = hint | None
            bound.arguments[name] = check_value(value, hint, name)
        return function(*bound.args, **bound.kwargs)

    return cast("Function", call)


def texts(values: Any, what: str, spec: Callable[[Any], str] | None = None) -> list[str] | None:
    """Return one value or several as a list; None stays None.

    Values are specs, names or labels. A text is split at commas between specs.

    Args:
        values: one value or several.
        what: the name of the argument, for errors.
        spec: a function from a text or object to a spec; None: values must be texts.

    Raises:
        SpecError: if a value is neither a text nor an object that ``spec`` accepts.
    """
    if values is None:
        return None
    if isinstance(values, str):
        values = split_list(values)
    elif not isinstance(values, list | tuple):
        values = [values]
    if spec:
        return list(map(spec, values))
    for value in values:
        if not isinstance(value, str):
            raise SpecError(
                f"{what} is given as {type(value).__name__}; it must be a text, or a list of texts."
            )
    return list(values)


def some_texts(
    values: Any, what: str, spec: Callable[[Any], str] | None = None
) -> list[str] | None:
    """Return values as :func:`texts` does, at least one.

    Raises:
        SpecError: if there is no value; otherwise as for :func:`texts`.
    """
    listed = texts(values, what, spec)
    if listed == []:
        raise SpecError(
            f"{what} is {values!r:.80}, which names nothing. Leave it out for the default."
        )
    return listed


def one_text(value: Any, what: str) -> str | None:
    """Return a name, a label or a path as text, or None.

    Raises:
        SpecError: if the value is something else.
    """
    if value is None:
        return None
    text = value
    if isinstance(value, os.PathLike):
        text = os.fspath(value)  # may be bytes
    if not isinstance(text, str) or not text.strip() or "\0" in text or len(text) > 4096:
        raise SpecError(
            f"{what} is {value!r:.80}; it must be a name or the path of a file or folder."
        )
    return text


def model_specs(
    models: Any, names: Mapping[str, str]
) -> tuple[list[str] | None, Mapping[str, str]]:
    """Return models as specs, and display names by specs.

    The names include the keys of a mapping ``{"Mine": model}``.

    Raises:
        SpecError: if there is no model, a name is no text, or a mapping has a model twice.
    """
    if not isinstance(models, Mapping):
        return some_texts(models, "models", model_spec), names
    check_value(list(models), Sequence[Filled], "names of models")
    named = {model_spec(model): name for name, model in models.items()}
    if len(named) < len(models):
        raise SpecError(
            f"models has one model under several of the names {', '.join(models)}. Give each "
            "model one name."
        )
    return some_texts(list(named), "models"), {**named, **names}


def seed_numbers(seeds: str | int | Iterable[str | int] | None) -> list[int] | None:
    """Return one seed or several as whole numbers; None stays None.

    Raises:
        SpecError: if a value is no whole number from 0 on, of 18 digits at most (64 bits).
    """
    if seeds is None:
        return None
    if isinstance(seeds, bytes | Mapping):
        raise SpecError(
            f"seeds is given as {type(seeds).__name__}; it must be whole numbers: 0,1,2."
        )
    listed: Iterable[Any] = [seeds]
    if isinstance(seeds, str):
        listed = split_list(seeds)
    elif isinstance(seeds, Iterable) and getattr(seeds, "ndim", 1) > 0:
        listed = seeds
    numbers = list(map(str, itertools.islice(listed, MOST_SEEDS + 1)))
    if len(numbers) > MOST_SEEDS:
        raise SpecError(f"seeds has more than {MOST_SEEDS:,} numbers. Give fewer.")
    if not numbers or not all(map(_is_seed, numbers)):
        text = ",".join(numbers)[:80]
        raise SpecError(
            f"seeds is {text!r}; it must be whole numbers from 0 on, of 18 digits at most: 0,1,2."
        )
    return list(map(int, numbers))


def _is_seed(text: str) -> bool:
    return text.isdecimal() and len(text) <= 18


def setting_texts(settings: Settings | None) -> list[str]:
    """Return settings in the form of the command line, such as ``epochs=5``."""
    if not isinstance(settings, Mapping | None):
        raise SpecError(
            f'settings is {settings!r:.80}; it must be a mapping of recipe fields: {{"epochs": 5}}.'
        )
    changes = []
    for key, value in (settings or {}).items():
        check_value(key, str, "A key of settings")
        check_value(value, str | int | float | bool | None, f"settings[{key!r}]")
        changes.append(f"{key}={format_value(value)}")
    return changes


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
    split: Evaluated = "test",
) -> Selection:
    """Return the selection of a store's results.

    None selects all; several values are a list, or a text with commas.

    Args:
        suite: the name of a suite, to show only its metrics; or the file of an experiment, whose
            models, data, recipes, seeds and names are the defaults of the arguments below.
        models: specs or modules, in the order of the tables, or a mapping from display names to
            them; a bare name selects that spec, or else all models of that name; ``jem*`` is a
            pattern.
        dataset: specs or datasets, selected as models are.
        recipe: labels as tables show them, or patterns: ``digits+epochs=5``, ``digits*``.
        seeds: of the trained models.
        metrics: specs, names or patterns, in the order of the columns.
        columns: labels of values or patterns, in the order of the columns.
        names: display names by specs of models, and headings of columns by metrics or labels.
        limit: show results on this number of test images; None: the suite's number, else the number
            that all results share, else all.
        split: show results on ``test`` images or on ``validation`` images.

    Example:
        >>> selection("hybrid", models="jem,baseline", columns=["accuracy", "ece"]).models
        ['jem', 'baseline']
    """
    file = one_text(suite, "suite") or ""
    chosen = None
    if file:
        chosen = suites.load(file)
        limit = limit or chosen.limit
        if not chosen.text:  # the name of an installed suite
            file = ""
    specs, names = model_specs(models, names)
    return Selection(
        suite=chosen,
        file=file,
        models=specs,
        dataset=some_texts(dataset, "dataset", dataset_spec),
        recipe=some_texts(recipe, "recipe"),
        seeds=seed_numbers(seeds),
        metrics=some_texts(metrics, "metrics"),
        columns=some_texts(columns, "columns"),
        names=names,
        limit=limit,
        split=split,
    )
