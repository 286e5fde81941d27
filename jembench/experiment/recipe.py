"""Recipes: trainings as data, their files, and the default. Imports no torch."""

import dataclasses
import functools
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from jembench.catalog import discovery, packages, registry
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option, Range, parse, read, read_untyped
from jembench.errors import JembenchError, Remark, SpecError

Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
Decay = Annotated[float, Range(least=0, below=1)]
Count = Annotated[int, Range(least=0)]
AtLeast1 = Annotated[int, Range(least=1)]
Seed = Annotated[int, Range(least=0, most=10**18 - 1)]

Remedy = Literal["seed", "steps", "rate", "energy_l2"]
"""The remedies against divergence; see :mod:`jembench.training.guard`."""

GuardMode = Literal["off", "watch", "repair"]
"""off: no checks; watch: record the first divergence and continue; repair: apply the ladder of
remedies.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimiser and its constants."""

    # spec: adam, sgd, another registered optimiser, or an import path such as torch.optim:AdamW
    name: str
    learning_rate: Positive
    betas: tuple[Decay, Decay] = (0.9, 0.999)  # adam
    momentum: Decay = 0.0  # sgd
    weight_decay: NotNegative = 0.0
    sharpness: NotNegative = 0.0  # rho of sharpness-aware minimisation, 0: none
    adaptive: bool = True  # True for a neighbourhood relative to each weight (ASAM)
    # decay of the weights' moving average, which is then the model; 0: no average
    average: Decay = 0.0
    clip: NotNegative = 0.0  # largest norm of a step's gradient, over all weights; 0: no limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The learning rate over time: linear warm-up, milestones, linear fall and cosine.

    In a warm-up of W iterations, iteration i has i / W of the rate, and the first one has 0. A
    milestone within the warm-up or at its end has no effect, as in the code of JEM, JEM++ and
    SADA-JEM.
    """

    warmup_iterations: Count = 0
    decay: NotNegative = 1.0
    decay_epochs: tuple[NotNegative, ...] = ()
    # the share of the training after which the rate falls linearly to 0; 1: no linear fall
    linear_from: Share = 1.0
    cosine: bool = False  # from 1 at the first iteration to 0 after the last

    name: str = ""  # spec of a further schedule: one of a plugin, or an import path

    def make(self) -> Callable[[int, int, int], float]:
        """Return the function for the learning rate's factor.

        Its arguments are the iteration, from 0, and the numbers of iterations per epoch and in all.

        Raises:
            SpecError: if the further schedule or an option does not exist.
        """
        further = registry.resolve("schedules", self.name).make() if self.name else None
        warmup, end = self.warmup_iterations, self.warmup_iterations or -1

        def factor(i: int, per_epoch: int, total: int) -> float:
            rate = min(1.0, i / warmup) if warmup else 1.0
            rate *= self.decay ** sum(
                end / per_epoch < epoch <= i / per_epoch for epoch in self.decay_epochs
            )
            if self.linear_from < 1:
                rate *= min(1.0, (1 - i / total) / (1 - self.linear_from))
            if self.cosine:
                rate *= (1 + math.cos(math.pi * i / total)) / 2
            return float(rate * further(i, per_epoch, total)) if further else rate

        return factor


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingData:
    """The processing of the training images."""

    noise: NotNegative  # standard deviation of Gaussian noise, on [-1, 1]
    validation: Count  # number of validation images, held out of the training split
    stratified: bool = False  # the same share of validation images of each class
    pad: Count = 0  # reflected pixels on each side before a random crop
    flip: bool = False
    augmentation: str = ""  # spec of a further augmentation: one of a plugin, or an import path
    augment_marginal: bool = True  # True to augment the p(x) batch too
    labelled: Count = 0  # number of images with labels, the same share of each class; 0: all
    labelled_batch: Count = 0  # size of the p(y|x) batch; 0: batch_size
    # True to train both terms on the p(y|x) batch; batch_size is then the number of chains
    shared: bool = False
    # an epoch is one pass over the images of p(x), or of p(y|x)
    epoch: Literal["marginal", "labelled"] = "marginal"
    outliers: str = ""  # spec of the start that draws outliers, for models whose loss needs them
    outlier_batch: Count = 0  # number of outliers an iteration; 0: batch_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """The model's own samples during training."""

    sampler: str = ""  # spec; "" in recipes for models without chains
    mode: Literal["eval", "train"] = "eval"  # the model's mode while sampling
    # True for negatives of E(x) from chains on E(x, y); y is drawn uniformly, and then ignored
    conditional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Compute:
    """The execution of the network, which changes results only by rounding."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    layout: Literal["auto", "contiguous", "channels_last"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """The reaction to divergence: see :mod:`jembench.training.guard`.

    Only repairs change the training, so that the ladder is part of the identity only in the mode
    ``repair``.
    """

    mode: GuardMode = "repair"
    ladder: tuple[Remedy, ...] = ("seed", "steps", "rate", "energy_l2", *("rate",) * 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The metric that selects the checkpoint, on the validation images.

    Without a metric, the accuracy selects. Of equal checkpoints the latest is selected.
    """

    metric: str = ""  # spec
    # lengths of new chains to select from, for all images that the fit generates
    steps: tuple[Count, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The training of a model, as data.

    Models with and without chains have the same learning rate and number of iterations.
    """

    name: str
    title: str
    epochs: Annotated[float, Range(above=0, most=1e6)]
    batch_size: AtLeast1
    # iterations between two reads of the losses, for which the host waits for the device
    log_every: AtLeast1
    # iterations between two validations and checkpoints; a multiple of log_every
    checkpoint_every: AtLeast1
    optimizer: Optimizer
    data: TrainingData
    chains: Chains = Chains()
    schedule: Schedule = Schedule()
    # weight of the mean squared energies of data and samples, against divergence
    energy_l2: NotNegative = 0.0
    compute: Compute = Compute()
    guard: Guard = Guard()
    selection: Selection = Selection()
    # options of the model that its spec leaves out
    model: Mapping[str, Option] = field(default_factory=dict)
    least_iterations: Count = 0  # smallest number of iterations, for small datasets
    processes: AtLeast1 = 1  # number of processes that train together, each with its own noise
    # the fit with whose weights training starts: a name or an id, in plans a full id; "": none
    start_from: str = ""
    # first 12 digits of the SHA-256 of the file of imported weights; "": trained here
    source: str = ""
    overrides: tuple[str, ...] = ()  # differences from the file by --set, such as "epochs=5"

    @property
    def label(self) -> str:
        """The name and the overrides."""
        return "+".join((self.name, *self.overrides))

    @property
    def components(self) -> list[Component]:
        """The components of optimiser, schedule, augmentation, outliers and selection metric.

        The sampler is not among them: the plan resolves it.

        Raises:
            SpecError: if a component does not exist, or is an import path that the user did not
                name.
        """
        named: dict[Kind, str] = {
            "optimizers": self.optimizer.name,
            "schedules": self.schedule.name,
            "augmentations": self.data.augmentation,
            "starts": self.data.outliers,
            "metrics": self.selection.metric,
        }
        return [discovery.find(kind, Spec(text).name) for kind, text in named.items() if text]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that can change the trained model."""
        settings = dataclasses.asdict(self)
        for incidental in ("name", "title", "overrides"):
            del settings[incidental]
        return settings

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that determine the trained model.

        Of the guard, only the ladder in the mode ``repair`` is included.

        So that ids remain, these are left out: ``start_from`` if training starts from random
        weights, ``selection`` if accuracy selects, and settings of outliers and of clipped
        gradients that are off.
        """
        ladder = self.guard.ladder if self.guard.mode == "repair" else ()
        settings = self.settings | {"guard": {"ladder": ladder}}
        for table, name in (("optimizer", "clip"), ("data", "outliers"), ("data", "outlier_batch")):
            if not settings[table][name]:
                del settings[table][name]
        if not self.start_from:
            del settings["start_from"]
        if self.selection == Selection():
            del settings["selection"]
        return settings


# --- files ----------------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the names of all installed recipes."""
    return sorted(packages.files("recipes"))


def load(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a name or a TOML file.

    Args:
        name: ``paper``, or the path of a file whose name ends in ``.toml``.
        overrides: ``key=value``, such as ``epochs=5`` or ``optimizer.learning_rate=1e-3``.

    Raises:
        SpecError: if there is no such recipe or key, or a value is not valid.
    """
    return _loaded(packages.source("recipe", name, "recipes"), tuple(overrides))


@functools.lru_cache(maxsize=1000)
def _loaded(source: packages.TomlFile, overrides: tuple[str, ...]) -> Recipe:
    """Return the recipe of a file.

    The recipe's ``overrides`` are in canonical form, so that equal recipes have one label.
    """
    fields = parse(source.content, source.where)
    for override in overrides:
        _override(fields, override, source.name)
    recipe = read(
        Recipe,
        fields,
        f"recipe {source.name}",
        "jembench list recipes",
        name=source.name,
        overrides=(),
    )
    _check(recipe)
    if not overrides:
        return recipe
    before, changes = _loaded(source, ()).settings, list[str]()
    for key, value in recipe.settings.items():
        if isinstance(value, Mapping):
            for name, setting in value.items():
                if setting != before[key].get(name):
                    changes.append(f"{key}.{name}={_written(setting)}")
        # processes are in the identity, not in the label
        elif value != before[key] and key != "processes":
            changes.append(f"{key}={_written(value)}")
    return dataclasses.replace(recipe, overrides=tuple(changes))


_IDS = ("start_from", "source")
"""The keys of a recipe whose values are ids of fits or digits of a checksum."""


def _override(fields: dict[str, Any], override: str, name: str) -> None:
    """Set ``key=value`` in the fields of a recipe."""
    path, separator, text = override.partition("=")
    if not separator:
        raise SpecError(
            f"{override!r} does not say what to set. Write --set key=value, for example --set "
            "epochs=5."
        )
    if re.search(r"^[^:]*,[\w.]+=", text):  # a colon precedes the options of a spec
        raise SpecError(
            f"{override!r} sets several keys. Repeat the option: --set epochs=5 --set "
            "batch_size=32."
        )
    *tables, key = path.strip().split(".")
    for table in tables:
        fields = fields.setdefault(table, {})
        if not isinstance(fields, dict):
            raise SpecError(
                f"In recipe {name}, {table!r} is not a table, so {path!r} cannot be set."
            )
    # digits of an id are no number
    is_id = path.strip() in _IDS and not text.startswith('"')
    fields[key] = text if is_id else read_untyped(text)


def _check(recipe: Recipe) -> None:
    """Check a recipe's components, and its settings that depend on each other."""
    _ = recipe.components
    if recipe.data.shared and recipe.data.labelled:
        raise SpecError(
            f"In recipe {recipe.name}, data.shared trains p(x) on the images of p(y|x), and "
            "data.labelled on different ones. Leave one of them out."
        )
    if recipe.selection.metric and not recipe.data.validation:
        raise SpecError(
            f"In recipe {recipe.name}, selection.metric is {recipe.selection.metric}, and no "
            "images are held out to measure it on. Set data.validation."
        )
    if recipe.checkpoint_every % recipe.log_every:
        raise SpecError(
            f"In recipe {recipe.name}, checkpoint_every is {recipe.checkpoint_every} and "
            f"log_every {recipe.log_every}: the first must be a multiple of the second."
        )
    batches = {"batch_size": recipe.batch_size, "data.labelled_batch": recipe.data.labelled_batch}
    for name, size in batches.items():
        if size % recipe.processes:
            raise SpecError(
                f"{name} of recipe {recipe.name} is {size}, which cannot be shared out evenly "
                f"among {recipe.processes} processes. Choose another number of processes, or set a "
                f"multiple: --set {name}=..."
            )


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return value if isinstance(value, str) else json.dumps(value).removesuffix(".0")


# --- the default recipe ---------------------------------------------------------------------------

DOORS = ("hf", "imagefolder", "npz", "torchvision")
"""The datasets whose default recipe depends on their images, as for arrays."""

_MOST_IMAGES, _LEAST_SIDE = 5000, 16
"""The largest number of training images, and the smallest side, for the recipe small-images."""


def default(
    model: str, dataset: str, stated: str | Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the name of a model's default recipe on a dataset.

    The default is the first of these that exists: the recipe that is stated for all models; the
    installed recipes MODEL-DATASET-quick, MODEL-DATASET and MODEL; the recipe that is stated for
    the dataset; for up to 5,000 training images of the user's own ``small-images``, or ``digits``
    below 16 pixels; and the installed recipes DATASET-quick, DATASET and ``paper``.

    Args:
        model: the spec of the model.
        dataset: the spec of the dataset.
        stated: a recipe for all models, or recipes by the names of datasets, or "default", for
            models without a recipe of their name.
    """
    if isinstance(stated, str):
        return stated
    name, data, installed = Spec(model).bare, Spec(dataset).bare, packages.files("recipes")
    for recipe in (f"{name}-{data}-quick", f"{name}-{data}", name):
        if recipe in installed:
            return recipe
    of_dataset = stated.get(data) or stated.get("default")
    if of_dataset:
        return of_dataset
    if are_own_images(data) and (extent := extent_of(dataset)) and extent.images <= _MOST_IMAGES:
        return "small-images" if extent.side >= _LEAST_SIDE else "digits"
    for recipe in (f"{data}-quick", data):
        if recipe in installed:
            return recipe
    return "paper"


def are_own_images(data: str) -> bool:
    """Return whether a dataset's bare name means a user's files or arrays."""
    if data in DOORS:
        return True
    datasets = discovery.components("datasets")
    return any(own.name == data and own.distribution == discovery.LIVE for own in datasets)


class Extent(NamedTuple):
    """The size of a dataset."""

    images: int  # for training
    side: int  # the smaller one of an image, in pixels


@functools.lru_cache(maxsize=100)
def extent_of(dataset: str) -> Extent | None:
    """Return the size of a dataset; None: unknown before reading.

    ``dataset`` is the spec. The result is cached until ``cache_clear``.
    """
    with suppress(JembenchError), warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)
        resolved = registry.resolve("datasets", dataset)
        made = resolved.factory(**resolved.arguments)
        number = getattr(made, "train_size", None)
        if number:
            side = getattr(made, "side", None) or min(made.spec.shape[1:])
            return Extent(number, side)
    return None
