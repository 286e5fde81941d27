"""Recipes: how a model is trained, as data; their files, and which one is the default. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from jembench.catalog import discovery, packages, registry, spec
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.validation import Option, Range, parse, read, read_untyped
from jembench.errors import JembenchError, Remark, SpecError
from jembench.experiment import schedules
from jembench.experiment.sweep import bare_name

Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
Decay = Annotated[float, Range(least=0, below=1)]
Count = Annotated[int, Range(least=0)]
AtLeast1 = Annotated[int, Range(least=1)]

Remedy = Literal["seed", "steps", "rate", "energy_l2"]
"""What is tried against divergence; see :mod:`jembench.training.guard`."""

GuardMode = Literal["off", "watch", "repair"]
"""off: no checks. watch: the first divergence is recorded, and training goes on. repair: the ladder is applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimiser, with its constants."""

    name: str  # spec: adam, sgd, another registered optimiser, or an import path such as torch.optim:AdamW
    learning_rate: Positive
    betas: tuple[Decay, Decay] = (0.9, 0.999)  # adam
    momentum: Decay = 0.0  # sgd
    weight_decay: NotNegative = 0.0
    sharpness: NotNegative = 0.0  # rho of sharpness-aware minimisation, 0: none
    adaptive: bool = True  # its neighbourhood is measured relative to each weight (ASAM)
    average: Decay = 0.0  # decay of the moving average of the weights that becomes the model; 0: the weights themselves


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The learning rate over time: linear warm-up, a factor at each milestone, and half a cosine over all of it.

    Iteration i of W of the warm-up has i / W of the rate, the first one 0, and a milestone within the warm-up, its end
    included, has no effect: as in the code of JEM, JEM++ and SADA-JEM.
    """

    warmup_iterations: Count = 0
    decay: NotNegative = 1.0
    decay_epochs: tuple[NotNegative, ...] = ()
    linear_from: Share = 1.0  # the share of the training after which the rate falls linearly to 0; 1: it never does
    cosine: bool = False  # from 1 at the first iteration to 0 after the last

    name: str = ""  # spec of a further schedule: a registered one, or an import path

    def make(self) -> schedules.Schedule:
        """Return the product of all of them.

        Raises:
            SpecError: for a name or an option that does not exist.
        """
        parts = [
            schedules.warmup(iterations=self.warmup_iterations),
            schedules.milestones(self.decay, self.decay_epochs, warmup=self.warmup_iterations),
            schedules.linear(start=self.linear_from),
            *([schedules.cosine()] if self.cosine else []),
            *([registry.resolve("schedules", self.name).make()] if self.name else []),
        ]
        return schedules.product(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingData:
    """The processing of the training images."""

    noise: NotNegative  # standard deviation of Gaussian noise, on [-1, 1]
    validation: Count  # images held out of the training split
    stratified: bool = False  # the held-out images: the same share of each class
    pad: Count = 0  # reflected pixels, of which a random crop keeps the size
    flip: bool = False
    augmentation: str = ""  # spec of a further augmentation: a registered one, or an import path
    augment_marginal: bool = True  # whether all of these are for the p(x) batch too
    labelled: Count = 0  # images whose labels are used, the same share of each class; 0: all
    labelled_batch: Count = 0  # images of the p(y|x) batch; 0: batch_size
    shared: bool = False  # both terms are trained on the images of the p(y|x) batch; batch_size then counts chains
    epoch: Literal["marginal", "labelled"] = "marginal"  # one pass over the images of p(x), or of p(y|x)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """The model's own samples during training."""

    sampler: str = ""  # spec; none in recipes of models that are trained without chains
    mode: Literal["eval", "train"] = "eval"  # the model's mode while sampling
    conditional: bool = False  # negatives for E(x) from chains on E(x, y), y drawn uniformly and thrown away


@dataclass(frozen=True, kw_only=True, slots=True)
class Compute:
    """Execution of the network in sampling and in training. Nothing of it changes a result but for rounding."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    layout: Literal["auto", "contiguous", "channels_last"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """The reaction to divergence: see :mod:`jembench.training.guard`.

    Only a repair changes the training, so only the ladder of one is part of the identity.
    """

    mode: GuardMode = "repair"
    ladder: tuple[Remedy, ...] = ("seed", "steps", "rate", "energy_l2", *("rate",) * 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The training of a model, as data.

    The learning rate of a model that needs no chains, and its whole budget, are the same as those of one that does.
    """

    name: str
    title: str
    epochs: Annotated[float, Range(above=0, most=1e6)]
    batch_size: AtLeast1
    log_every: AtLeast1  # iterations between two looks at the losses: the only time the host waits for the device
    checkpoint_every: AtLeast1  # iterations between two validations and checkpoints; a multiple of log_every
    optimizer: Optimizer
    data: TrainingData
    chains: Chains = Chains()
    schedule: Schedule = Schedule()
    energy_l2: NotNegative = 0.0  # weight of the mean squared energies of data and samples, against divergence
    compute: Compute = Compute()
    guard: Guard = Guard()
    model: Mapping[str, Option] = field(default_factory=dict)  # options of the model where its spec leaves them out
    least_iterations: Count = 0  # however few images an epoch has
    processes: AtLeast1 = 1  # that train together, each with other noise
    source: str = ""  # of imported weights: the first 12 digits of the SHA-256 of their file; "": trained here
    overrides: tuple[str, ...] = ()  # what --set made different from the file, "epochs=5"

    @property
    def label(self) -> str:
        """The name and what was overridden."""
        return "+".join((self.name, *self.overrides))

    @property
    def components(self) -> list[Component]:
        """The optimiser, schedule and augmentation that its specs name; samplers are resolved by the plan.

        Raises:
            SpecError: if one does not exist, or is an import path that the user did not name.
        """
        named: dict[Kind, str] = {
            "optimizers": self.optimizer.name,
            "schedules": self.schedule.name,
            "augmentations": self.data.augmentation,
        }
        return [discovery.find(kind, spec.parse(text).name) for kind, text in named.items() if text]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that can be set to change the trained model."""
        incidental = ("name", "title", "overrides")
        return {key: value for key, value in dataclasses.asdict(self).items() if key not in incidental}

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that make the trained model what it is; of the guard, the ladder of a repair alone."""
        ladder = self.guard.ladder if self.guard.mode == "repair" else ()
        return self.settings | {"guard": {"ladder": ladder}}


def check_shares(recipe: Recipe, processes: int) -> None:
    """Check that the recipe's batches, those of all processes together, can be divided evenly.

    Raises:
        SpecError: if a batch is no multiple of the number of processes.
    """
    sizes = {"batch_size": recipe.batch_size, "data.labelled_batch": recipe.data.labelled_batch}
    for name, size in sizes.items():
        if size % processes:
            raise SpecError(
                f"{name} of recipe {recipe.label} is {size}, which cannot be shared out evenly among {processes} "
                f"processes. Choose another number of them, or set a multiple: --set {name}=..."
            )


# --- files ------------------------------------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the names of all recipes that are installed."""
    return sorted(packages.files("recipes"))


def load(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe of that name, or in that TOML file.

    Args:
        name: ``paper``, or the path of a file whose name ends in ``.toml``.
        overrides: ``key=value``, such as ``epochs=5`` or ``optimizer.learning_rate=1e-3``.

    Raises:
        SpecError: for an unknown recipe or key, or a value that does not fit.
    """
    return _loaded(packages.source("recipe", name, "recipes"), tuple(overrides))


@functools.lru_cache(maxsize=1000)
def _loaded(source: packages.Source, overrides: tuple[str, ...]) -> Recipe:
    fields = parse(source.content, source.where)
    for override in overrides:
        _override(fields, override, source.name)
    recipe = read(Recipe, fields, f"recipe {source.name}", "jembench list recipes", name=source.name, overrides=())
    _check(recipe)
    if not overrides:
        return recipe
    before = _loaded(source, ()).settings | {"processes": recipe.processes}  # part of the identity, and of no name
    return dataclasses.replace(recipe, overrides=_differences(before, recipe.settings))


def _check(recipe: Recipe) -> None:
    """Check the relations between fields."""
    where = f"In recipe {recipe.name}"
    _ = recipe.components  # each must exist
    if recipe.data.shared and recipe.data.labelled:
        raise SpecError(
            f"{where}, data.shared trains p(x) on the very images of p(y|x), which data.labelled would make others. "
            "Leave one of them out."
        )
    if recipe.checkpoint_every % recipe.log_every:
        raise SpecError(
            f"{where}, checkpoint_every is {recipe.checkpoint_every} and log_every {recipe.log_every}: the first must "
            "be a multiple of the second."
        )


def _override(fields: dict[str, Any], override: str, recipe: str) -> None:
    path, separator, text = override.partition("=")
    if not separator:
        raise SpecError(f"{override!r} does not say what to set. Write --set key=value, for example --set epochs=5.")
    *tables, key = path.strip().split(".")
    table = fields
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise SpecError(f"In recipe {recipe}, {name!r} is not a table, so {path!r} cannot be set.")
    table[key] = read_untyped(text)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], table: str = "") -> tuple[str, ...]:
    """Return the changes, each in one canonical form, so that one recipe has one label."""
    found: list[str] = []
    for key, value in after.items():
        if isinstance(value, Mapping):
            found += _differences(before[key], value, f"{key}.")
        elif value != before.get(key):
            found.append(f"{table}{key}={_written(value)}")
    return tuple(found)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return value if isinstance(value, str) else json.dumps(value).removesuffix(".0")


# --- which recipe is the default --------------------------------------------------------------------------------------

_FOLDER, _SMALL, _MOST_IMAGES = "imagefolder", "small-images", 5000
"""The dataset whose default goes by its size: the recipe up to that many training images."""

_NOTHING_STATED: Mapping[str, str] = MappingProxyType({})


def default(model: str, dataset: str, stated: Mapping[str, str] = _NOTHING_STATED) -> str:
    """Return the name of the recipe that a model is trained by on a dataset where none is given.

    It is the first that is installed under the name MODEL-DATASET or MODEL; else what is stated for the dataset; else
    the one of the dataset's name, or ``paper``.

    Args:
        model: its spec.
        dataset: its spec.
        stated: recipes by the names of datasets, or "default", for models that no recipe is named after.
    """
    name, data, installed = bare_name(model), bare_name(dataset), packages.files("recipes")
    for own in (f"{name}-{data}", name):
        if own in installed:
            return own
    if recipe := stated.get(data) or stated.get("default"):
        return recipe
    if data == _FOLDER:
        images = training_images(dataset)
        return "paper" if images is None or images > _MOST_IMAGES else _SMALL
    return data if data in installed else "paper"


@functools.lru_cache(maxsize=100)
def training_images(dataset: str) -> int | None:
    """Return the number of training images of a dataset, given by its spec, where it is known without reading them.

    It is looked up once, until ``cache_clear``.
    """
    with suppress(JembenchError), warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)
        resolved = registry.resolve("datasets", dataset)
        found: int | None = getattr(resolved.factory(**resolved.bound.arguments), "train_size", None)
        return found
    return None
