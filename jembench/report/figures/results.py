"""What a figure is drawn from: a cell's outcome with its arrays, and what it is called in titles and file names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from numpy.typing import NDArray

from jembench.catalog import spec
from jembench.catalog.spec import slug, stable_hash
from jembench.errors import SpecError
from jembench.experiment import recipe_files as recipes
from jembench.experiment.plan import PRETRAINED
from jembench.experiment.sweep import bare_name
from jembench.interfaces import Value
from jembench.report.figures.planned import Drawing, Planned
from jembench.report.names import NO_NAMES, Names
from jembench.store.outcome import Cell, FitKey

_LONGEST = 80  # letters, for people; file systems allow more

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Result:
    """A cell that has values, and the arrays that its figures need."""

    cell: Cell
    arrays: Arrays
    names: Names = field(default_factory=dict)

    @property
    def fit(self) -> FitKey:
        """The trained model."""
        return self.cell.fit

    @property
    def limit(self) -> int | None:
        """How many of the test images were evaluated; None: all."""
        limit: int | None = self.cell.provenance.get("limit")
        return limit

    @property
    def place(self) -> tuple[object, ...]:
        """What models that are compared in one figure share: the dataset, the seed and the images."""
        return self.fit.dataset, self.fit.seed, self.limit

    def protocol_without(self, free: Collection[str]) -> tuple[tuple[str, str], ...]:
        """The parts of the protocol that must be the same in a figure in which the free ones differ."""
        return tuple(sorted((key, value) for key, value in self.protocol.items() if key not in free))

    @property
    def values(self) -> Mapping[str, Value]:
        """What was measured."""
        return self.cell.outcome.values

    @cached_property
    def options(self) -> Mapping[str, str]:
        """The options of the metric that are not at their defaults."""
        return dict(spec.parse(self.cell.metric).arguments)

    @property
    def model(self) -> str:
        """The model, with its recipe where that is not the usual one of the dataset."""
        return model_of(self.fit, self.names)

    @property
    def title(self) -> str:
        """The trained model, in full."""
        return title_of(self.fit, self.names)

    def figure(self, name: str, draw: Callable[..., Drawing], *arguments: Any, without: Sequence[str] = ()) -> Planned:
        """A figure of this result alone, named after the options of the metric as well."""
        return figure_of([self], self.named(name, without), draw, *arguments)

    def named(self, figure: str, without: Sequence[str] = ()) -> str:
        """The figure's name with the options of the metric: ``reliability-bins=15``."""
        kept = [f"{key}={value}" for key, value in self.options.items() if key not in without]
        return "-".join((figure, *kept))

    @cached_property
    def protocol(self) -> Mapping[str, str]:
        """The parts of the protocol's id; none, if a plugin's id is no spec."""
        try:
            return dict(spec.parse(self.cell.outcome.protocol).arguments)
        except SpecError:
            return {}


def figure_of(results: Sequence[Result], name: str, draw: Callable[..., Drawing], *arguments: Any) -> Planned:
    """A figure that shows these results on one dataset and no others, to be drawn from the arguments."""
    fits = [result.cell.fit for result in results]
    return Planned(stem(name, fits, results[0].limit), partial(draw, *arguments))


Plan = Callable[[list[Result]], Iterator[Planned]]
"""The figures of a metric's results. The entry-point group ``jembench.figures`` names it by the metric."""

Shapes = Mapping[str, str]
"""Arrays by patterns such as ``distance*``; a shape has a letter for each axis, ``N C H W``.

The same letter is the same length throughout.
"""


def needs(shapes: Shapes, optional: Shapes | None = None) -> Callable[[Plan], Plan]:
    """State the arrays that figures need of each result, and those that they show where they are there."""

    def stated(plan: Plan) -> Plan:
        vars(plan).update(shapes=shapes, optional=optional or {})
        return plan

    return stated


# --- names ------------------------------------------------------------------------------------------------------------


def model_of(fit: FitKey, names: Names = NO_NAMES) -> str:
    """The model under its display name.

    Its recipe is added where the name does not say it: where the model has one name for all recipes, and this is not
    the usual one of the dataset, and where another recipe of the model has the same name and others have another.
    """
    _, *recipe = _parts(fit)
    name = names.get((fit.model, fit.recipe))
    of_recipes = [other for (model, _), other in names.items() if model == fit.model]
    model = name or fit.model
    if name and set(of_recipes) != {name}:
        return model if of_recipes.count(name) == 1 else f"{model} ({fit.recipe})"
    return f"{model} ({recipe[0]})" if recipe else model


def identity(fit: FitKey) -> tuple[object, ...]:
    """What a person tells trained models apart by."""
    return fit.dataset, fit.model, fit.recipe, fit.seed


def title_of(fit: FitKey, names: Names = NO_NAMES) -> str:
    """The trained model, in full."""
    return f"{model_of(fit, names)} on {fit.dataset}, seed {fit.seed}"


def stem(figure: str, fits: Sequence[FitKey], limit: int | None = None) -> str:
    """The name, without ending, of a figure of models that were trained on one dataset: ``auroc-digits-jem-glow-s0``.

    The seed is in it if all have the same one. A name from which letters had to be left out has a hash of what it
    stands for, so that no two figures share one.
    """
    parts = [figure, fits[0].dataset, *dict.fromkeys(part for fit in fits for part in _parts(fit))]
    seeds = {fit.seed for fit in fits}
    ending = [f"s{seed}" for seed in seeds if len(seeds) == 1] + ([] if limit is None else [f"limit{limit}"])
    slugs = [slug(part, _LONGEST) for part in parts]
    readable = "-".join(slugs)
    if len(readable) > _LONGEST or slugs != [part.replace(":", "-", 1).replace(",", "-") for part in parts]:
        readable = f"{readable[:_LONGEST].rstrip('-')}-{stable_hash(parts)[:6]}"
    return "-".join((readable, *ending))


def _parts(fit: FitKey) -> list[str]:
    dataset = bare_name(fit.dataset)
    usual = recipes.usual_for(bare_name(fit.model), dataset)
    return [fit.model] if fit.recipe in (*usual, PRETRAINED) else [fit.model, fit.recipe]
