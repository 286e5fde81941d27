"""What plugins give and get: datasets, models, samplers, metrics, feature networks and executors.

This is the one file that a plugin author reads. A plugin inherits from nothing: it has what the protocols below name.

Legend of shapes: B batch, N examples, C channels, H height, W width, K classes.
Images are float32 (B, C, H, W) within ``DataSpec.bounds``; in datasets and samples they are uint8 (N, C, H, W).
Energies and log densities are float32 (B,) in nats per image; **lower energy = likelier**.

A component is made by its factory, the object that its entry point names:

=============== ============================================ =============================================
entry-point group factory is called with                     gives
=============== ============================================ =============================================
jembench.models   ``factory(data_spec, **options)``          an ``nn.Module`` with capabilities, see below
jembench.samplers ``factory(data_spec, **options)``          a :class:`Sampler`
jembench.datasets ``factory(**options)``                     a :class:`Dataset`
jembench.outliers ``factory(**options)``                     an :class:`Outliers`
jembench.metrics  ``factory(**options)``                     a :class:`Metric`
jembench.features ``factory(**options)``                     a :class:`FeatureNetwork`
jembench.importers ``factory(**options)``                    an :class:`Importer`
jembench.executors ``factory(**options)``                    an :class:`Executor`
jembench.trackers ``factory(**options)``                     a :class:`Tracker`
jembench.suites   (never called)                             a package that holds ``*.toml`` suites
=============== ============================================ =============================================

``options`` are the factory's keyword-only parameters, annotated with ``int``, ``float``, ``bool``, ``str``,
``Literal[...]`` or one of these ``| None``; a spec string such as ``jem:net=wrn-28-10`` fills them in. Keep the
module of the factory light (import torch inside the function), then listing and reporting stay fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch
    from torch import Generator, Tensor

API = 1
"""The version of this file. A distribution says which it was written for (none said: 1), as the name of an entry point:

    [project.entry-points."jembench.api"]
    1 = "my_package"

It grows by one whenever a plugin that was written for the one before may break.
"""

Capability = Literal["logits", "energy", "log_prob", "samples"]
Quantity = Literal["logits", "energy", "grad-norm"]
"""What one pass through a network says of an image: f(x), E(x) and the L2 norm of dE/dx = -d log p(x)/dx."""
SplitName = Literal["train", "test"]

# --- data -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """What a model must know of a dataset before it sees an image."""

    name: str
    shape: tuple[int, int, int]  # (C, H, W)
    num_classes: int  # 0: unlabelled
    class_names: tuple[str, ...] = ()
    bounds: tuple[float, float] = (-1.0, 1.0)  # what pixel 0 and pixel 255 become

    @property
    def dimensions(self) -> int:
        """The number of pixels times channels of an image."""
        channels, height, width = self.shape
        return channels * height * width


class Split(NamedTuple):
    """One part of a dataset."""

    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor | None  # int64 (N,) in 0..K-1; None: unlabelled


@runtime_checkable
class Dataset(Protocol):
    """Images, with labels or without. Deterministic: the same spec gives the same images in the same order.

    The validation images are cut from ``train`` by the recipe, which alone knows how many it wants.
    """

    @property
    def spec(self) -> DataSpec: ...
    def split(self, name: SplitName) -> Split: ...


@runtime_checkable
class Outliers(Protocol):
    """Images that are not of a dataset, as many as its test images. Deterministic."""

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        """uint8 (N, C, H, W) of the dataset's shape, for its N test images under evaluation.

        Raises:
            Unavailable: with the remedy, if they are not at hand, or mean nothing for such a dataset.
        """
        ...


# --- models: an nn.Module that has any of these ---------------------------------------------------------------------


@runtime_checkable
class Classifier(Protocol):
    def logits(self, x: Tensor) -> Tensor:
        """f(x), (B, C, H, W) -> (B, K)."""
        ...


@runtime_checkable
class Energy(Protocol):
    def energy(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """E(x), or E(x, y) for labels y (B,): (B, C, H, W) -> (B,), nats, up to one unknown constant.

        A model whose E(x) is -logsumexp of its logits, and nothing else, may say so in an attribute
        ``energy_follows_from_logits = True``: then one pass gives both.

        Raises:
            SpecError: for labels, if the model has no classes.
        """
        ...


@runtime_checkable
class Density(Protocol):
    def log_prob(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """log p(x), or log p(x|y): (B, C, H, W) -> (B,), nats, which integrates to 1.

        Over all of R^(C H W), as a flow's, or over ``DataSpec.bounds``.

        Raises:
            SpecError: for labels, if the model has no classes.
        """
        ...


@runtime_checkable
class Generative(Protocol):
    def sample(self, n: int, y: Tensor | None = None, *, generator: Generator) -> Tensor:
        """n images without a chain, of the classes y (n,) if given: (n, C, H, W) within ``DataSpec.bounds``.

        Raises:
            SpecError: for labels, if the model has no classes.
        """
        ...


class Batch(NamedTuple):
    """What one training iteration sees of the data, augmented, with data noise: two draws, or one for both terms."""

    x: Tensor  # (B, C, H, W) for p(x)
    x_labelled: Tensor  # (B, C, H, W) for p(y|x)
    y_labelled: Tensor  # int64 (B,)


class Negatives(NamedTuple):
    """What the sampler drew from the model for this iteration."""

    x: Tensor  # (B, C, H, W), detached
    y: Tensor | None  # int64 (B,): the class of each chain; None for chains on E(x)


class Energies(NamedTuple):
    """The energies whose means the loss pulls apart, in nats, with their gradients."""

    data: Tensor  # (B,)
    samples: Tensor  # (B,)


class Loss(NamedTuple):
    """A training loss and what it is made of.

    ``parts`` are logged apart. ``energies`` are what an energy penalty acts on and what the guard against divergence
    watches; a model that is trained with chains and leaves them out has neither.
    """

    total: Tensor  # ()
    parts: Mapping[str, Tensor]  # name -> (), detached
    energies: Energies | None = None


Chains = Literal["none", "marginal", "conditional"]


@runtime_checkable
class Trainable(Protocol):
    """A model that can be trained by the shared loop.

    ``chains`` says which negatives the loss needs: none, chains on E(x), or chains on E(x, y) of the batch's labels.
    A trained model with chains can generate: its sampler, kept with the fit, gives the samples.

    What a network draws from torch's global generators, as dropout does, is seeded for each iteration. A loss draws
    its noise from them (``torch.rand_like``): one that makes a ``torch.Generator`` cannot be compiled. What is done
    once, with the first batch, is told by a :class:`jembench.models.nets.first_batch.FirstBatch`.

    A model whose loss takes each image through the network more than once, as one that attacks it first, may say how
    often, forward and back, in an attribute ``passes_per_loss: int``. What a training costs is told by it.

    A loss that ``torch.compile`` cannot take as one graph, as one whose number of passes is drawn at random, may say so
    in an attribute ``compiles = False``. It is then not tried.
    """

    @property
    def chains(self) -> Chains: ...
    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss: ...


@runtime_checkable
class HasSampler(Protocol):
    """A model trained elsewhere that comes with its chains, as a published checkpoint with its replay buffer does."""

    def own_sampler(self) -> Sampler:
        """The sampler as training left it."""
        ...


# --- importers: from a file that was made elsewhere to a model's weights --------------------------------------------


class SavedChains(NamedTuple):
    """A sampler and the chains that it keeps."""

    sampler: str  # spec
    state: Mapping[str, Tensor]  # as its ``state_dict`` gives it


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """What was found in a file: the weights of a model, in the names of the model here."""

    model: str  # spec
    weights: Mapping[str, Tensor]  # the model's whole state
    chains: SavedChains | None = None
    unused: tuple[str, ...] = ()  # what the file has and the model does not need


@runtime_checkable
class Importer(Protocol):
    """Reads files of one origin. It never runs what is in them: no pickle is loaded but by PyTorch's safe reader."""

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """The weights in a file.

        Args:
            path: of the file.
            data: what the model was trained on.
            model: the spec of the model that they are of; None: what the file itself says.

        Raises:
            CheckpointError: if the file is damaged or of another kind; all that does not fit is listed.
        """
        ...


# --- samplers ---------------------------------------------------------------------------------------------------------

GradEnergy = Callable[["Tensor", "Tensor | None"], "tuple[Tensor, Tensor]"]
"""(x, y) -> (E, dE/dx): (B, C, H, W), (B,) | None -> (B,), (B, C, H, W). What a sampler sees of a model.

It may ask for a part of its chains at a time.
"""


class ChainState(NamedTuple):
    """Where a batch of chains stands."""

    x: Tensor  # (B, C, H, W)
    y: Tensor | None = None  # int64 (B,): the class that each chain is conditioned on
    slots: Tensor | None = None  # int64 (B,): where in a replay buffer each chain came from
    steps: int = 0  # moved since they were started or drawn from a buffer
    ages: Tensor | None = None  # int64 (B,): of kept chains, the steps since each was started


class StepInfo(NamedTuple):
    """What a diagnostic may read of a step, and the next step may not."""

    energy: Tensor  # (B,) before the step; of a sampler that adds its noise first, after that
    grad: Tensor  # (B, C, H, W) dE/dx of the same images


@runtime_checkable
class Sampler(Protocol):
    """A Markov chain over images. Nothing but ``state_dict`` outlives a chain; randomness is handed in."""

    @property
    def steps(self) -> int:
        """The length of a chain during training."""
        ...

    def start(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """n new chains, conditioned on the labels y (n,) if given, on the generator's device."""
        ...

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """The chains of a training iteration: new ones, or what was kept of former ones."""
        ...

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> tuple[ChainState, StepInfo]:
        """Move every chain by one step."""
        ...

    def finish(self, state: ChainState) -> None:
        """A chain has reached its end: keep what the next one starts from."""
        ...

    def kept(self) -> ChainState | None:
        """A copy of the chains that outlive an iteration (a replay buffer), or None if the sampler keeps none."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...


@runtime_checkable
class NeedsTrainingData(Protocol):
    """A sampler that looks at the training images before its first chain.

    ``state_dict`` need not hold what it saw: it is informed again wherever its chains go on.
    """

    def inform(self, train: Split) -> None: ...


@runtime_checkable
class Buffered(Protocol):
    """A sampler that says how many chains it keeps, so that a batch that it cannot draw is refused before training."""

    @property
    def capacity(self) -> int:
        """The number of chains that outlive an iteration; 0: none does."""
        ...

    def check_batch(self, n: int, *, conditional: bool) -> None:
        """Whether n chains can be drawn at once, conditioned on whatever labels.

        Raises:
            SpecError: if they cannot.
        """
        ...


@runtime_checkable
class Shardable(Protocol):
    """A sampler whose memory can be shared out among processes that train one model together."""

    def share(self, rank: int, size: int) -> None:
        """Keep one of ``size`` equal parts of the chains, the one of that rank, before there are any.

        ``state_dict`` is then that of the part, while ``load_state_dict`` takes the whole and keeps its part of it.
        """
        ...

    def whole(self, parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The state of all chains, from those of all parts in the order of their ranks."""
        ...


# --- metrics ----------------------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A number with its 95 % interval. An interval that is not known is None, never 0."""

    value: float
    low: float | None
    high: float | None
    n: int  # what it was computed from: test images, samples, timed iterations
    unit: str = ""  # "%", "nats", "s", "" for a pure number
    better: Literal["higher", "lower", ""] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What a metric found. ``protocol`` is its identity: only numbers with the same one may stand side by side."""

    protocol: str
    values: Mapping[str, Value]
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)  # per example, to score or compare again
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON: what else a reader must know


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Which of a model's images are wanted."""

    chains: Literal["kept", "fresh"] = "kept"  # what it keeps, or draws without a chain; or the ends of new chains
    steps: int | None = None  # of new chains; None: as many as in training
    images: int | None = None  # of new chains; None: 1,000
    conditional: bool | None = None  # new chains on E(x, y), each class as often; None: as the model was trained
    pooling: Literal["one", "five", "mean"] = "one"  # of kept chains: the model's own buffer; those of the last five
    # epochs, together; or their pixel-wise mean, slot by slot


KEPT = Source()


class Samples(NamedTuple):
    """Images that a model generated."""

    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor | None  # int64 (N,): the class that each was conditioned on
    source: str  # "buffer", "direct" or "chains:steps=100": part of a protocol
    ages: Tensor | None = None  # int64 (N,): the sampling steps since each chain of a buffer was started


class Features(NamedTuple):
    """What a feature network says of images."""

    pool: Tensor  # float32 (N, D), for FID, KID, precision and recall
    logits: Tensor  # float32 (N, K), for the Inception score


@runtime_checkable
class Costly(Protocol):
    """A metric that takes long: what it costs is said before it begins."""

    def passes(self, images: int) -> int:
        """About how many images go through the network, forward and back, for so many test images."""
        ...


@runtime_checkable
class FeatureNetwork(Protocol):
    """A fixed network whose features generation metrics compare.

    ``identity`` names the network *and* its weights, and becomes part of every protocol that uses it. One that may lack
    its weights is :class:`Checked`; one whose number of pooled features is known says it in an attribute
    ``dimensions: int``.
    """

    @property
    def identity(self) -> str: ...
    @property
    def name(self) -> str:
        """The suffix of the metric's label: "" for Inception, so that only it gives a plain ``fid``."""
        ...

    def prepare(self, dataset: Dataset, cache: Any, device: torch.device) -> None:
        """Load or train the network; ``cache`` is a folder (Path) that outlives the run.

        Raises:
            Unavailable: with the remedy, if weights are missing.
        """
        ...

    def features(self, images: Tensor) -> Features:
        """uint8 (N, C, H, W) -> features, in batches of the network's own choice."""
        ...


class Stability(NamedTuple):
    """What the guard against divergence saw of a training, and what it did."""

    criterion: str  # what counted as divergence, a name with a version
    iterations: int  # of the whole training
    diverged_at: int | None  # the iteration at whose end divergence was first seen; None: never
    reason: str  # what was seen then
    remedies: tuple[str, ...]  # what was then tried, in order; none: the guard only watched
    ended_with: str  # what the remedies made different from the recipe, "20 sampling steps"; "": nothing


@runtime_checkable
class Evaluation(Protocol):
    """One trained model under evaluation. What several metrics need is computed once and shared."""

    data: DataSpec
    dataset: Dataset
    model: Any  # the nn.Module, on the device, in eval mode
    device: torch.device
    sampler: Sampler | None  # of the model's chains, as training left it; None: it was trained without
    iteration_seconds: Sequence[float]  # training: mean seconds per iteration of each logged window
    stability: Stability | None  # of the training; None: the guard was off, or the model was trained elsewhere

    def test(self) -> Split:
        """The test images under evaluation (all of them, or the first ``--limit``)."""
        ...

    def logits(self) -> Tensor:
        """f(x) of the test images: float32 (N, K) on the CPU."""
        ...

    def energies(self) -> Tensor:
        """E(x) of the test images: float32 (N,) on the CPU."""
        ...

    def energies_of(self, images: Tensor) -> Tensor:
        """E(x), or -log p(x), of any images: uint8 (N, C, H, W) -> float32 (N,) on the CPU."""
        ...

    def images(self, name: str) -> Tensor:
        """The images of ``test``, ``validation`` or ``train`` (without validation), or of a set of outliers, by its
        spec: ``interp``, ``celeba:root=/data``; uint8 (N, C, H, W).

        Raises:
            Unavailable: with the remedy, if they are not at hand.
        """
        ...

    def labels_of(self, name: Literal["test", "validation", "train"]) -> Tensor:
        """The labels of a part of the dataset, int64 (N,).

        Raises:
            Unavailable: if the dataset has none.
        """
        ...

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """What the model says of images, named as in :meth:`images` or given: float32 (N, K) or (N,) on the CPU.

        ``noise`` is the standard deviation of Gaussian noise on the images, on [-1, 1]; the same noise for every model.

        Each image passes through the network once, whichever metrics ask, in this run or a later one.
        """
        ...

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        """E(x) after ``steps`` of the model's own chain that were started at the images: float32 (N,) on the CPU.

        ``noise`` as for :meth:`read`.

        Raises:
            Unavailable: if the model has no chains.
        """
        ...

    def remembered(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What ``compute`` gives; the next time it is known already, under the weights of the model and the name.

        The name tells it from all else that is computed of this model; code of yours that changes need not be in it.
        What takes long is best computed in parts: one that is remembered survives whatever becomes of the run.
        """
        ...

    def out_of_time(self) -> bool:
        """Whether the run's time is over: a metric that goes on for long says what it has, and stops."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Tell the user how far a metric has come that takes long."""
        ...

    def samples(self, source: Source = KEPT) -> Samples:
        """The model's own images.

        Raises:
            Unavailable: if it has no such images.
        """
        ...

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, ready for use."""
        ...

    def features_of(self, spec: str, images: Literal["samples", "train", "test"] | Tensor) -> Features:
        """The features of the samples, of a part of the dataset (``train``: with validation), or of any images."""
        ...

    def generator(self, purpose: str) -> Generator:
        """A generator of its own for each purpose, derived from the fit's seed."""
        ...


@runtime_checkable
class Planned(Protocol):
    """A fit as it is known before training: what the :class:`Evaluation` of it will have.

    What the evaluation will raise for want of images, samples or weights, this raises already.
    """

    @property
    def data(self) -> DataSpec: ...
    @property
    def sampler(self) -> Sampler | None:
        """Of the model's chains, before the first; None: it is trained without."""
        ...

    @property
    def pretrained(self) -> bool:
        """Whether the model was trained elsewhere."""
        ...

    @property
    def fetching(self) -> bool:
        """Whether what the user asked to be downloaded may be downloaded now; not in a dry run."""
        ...

    @property
    def labelled(self) -> bool:
        """Whether the test images have labels."""
        ...

    @property
    def kept(self) -> int | None:
        """How many chains will outlive training, as a replay buffer does; None: that cannot be known."""
        ...

    def count(self, images: Literal["test", "validation", "train"]) -> int:
        """How many images there are: those under evaluation, those that the recipe holds out, the whole training split.

        Raises:
            NotApplicable: if the recipe holds none out.
        """
        ...

    def samples(self, source: Source = KEPT) -> int | None:
        """How many images of its own the model will have; None: that cannot be known.

        Raises:
            NotApplicable: if it will have none.
        """
        ...

    def check_outliers(self, spec: str) -> None:
        """Whether a set of outliers, or another dataset, can be had.

        Raises:
            Unavailable: with the remedy, if it cannot.
        """
        ...

    def features(self, spec: str) -> FeatureNetwork:
        """A feature network that can be had, not ready for use.

        Raises:
            Unavailable: with the remedy, if its weights are missing.
        """
        ...


@runtime_checkable
class Checked(Protocol):
    """A metric, or a feature network, that knows before a model is trained whether it can be used on it."""

    def check(self, planned: Planned) -> None:
        """Look ahead. The plan shows what is found here, and nothing is trained for it.

        Raises:
            NotApplicable: if it will mean nothing for this model or dataset.
            Unavailable: if something is missing that can be had, with the remedy.
            SpecError: if an option does not fit the dataset.
        """
        ...


@runtime_checkable
class Metric(Protocol):
    """A measurement on one trained model.

    One that reads quantities of the test images or of outliers may say so in an attribute
    ``reads: frozenset[Quantity]``; then one pass gives all that the metrics of a run ask for.
    """

    @property
    def name(self) -> str: ...
    @property
    def requires(self) -> frozenset[Capability]: ...
    def compute(self, evaluation: Evaluation) -> Measurement: ...


class Resampling(NamedTuple):
    """A value as a statistic of observations, to be resampled."""

    statistic: Callable[..., np.ndarray[Any, Any]]  # index matrices (R, N), one for each of ``sizes`` -> (R,)
    sizes: tuple[int, ...]  # N of each independent sample
    within: tuple[float, float] = (-math.inf, math.inf)  # the range of the value


@runtime_checkable
class Resampled(Protocol):
    """A metric whose values follow from its per-example arrays: two models can then be compared image by image."""

    def resamplings(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, Resampling]:
        """From what ``Measurement.arrays`` held, the statistic behind each label, in the order of the images."""
        ...


# --- executors --------------------------------------------------------------------------------------------------------


@runtime_checkable
class Executor(Protocol):
    """Runs jobs here or elsewhere. One job works on one fit and all its cells."""

    def run(self, jobs: Sequence[Callable[[], bool]]) -> None:
        """Call every job until it says True. False means that another process works on the same fit: try later."""
        ...


# --- trackers ---------------------------------------------------------------------------------------------------------

EventKind = Literal["training", "window", "diverged", "sampling", "measuring", "waiting", "warning", "finished"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing that happened while a plan was carried out, as data.

    ============= ==================================================================================================
    kind          meaning, and the fields that it fills in beside ``fit``
    ============= ==================================================================================================
    ``training``  training starts or resumes
    ``window``    ``log_every`` iterations have ended: ``done`` and ``total`` iterations, and in ``values`` the columns
                  of ``history.csv``. A window in which training diverged is included
    ``diverged``  the guard found divergence: ``values`` has ``iteration`` and ``reason``, and ``returned_to`` and
                  ``remedy`` if training was rolled back
    ``sampling``  the model's own images are being drawn
    ``measuring`` a metric is being computed: ``metric``; later ``done`` and ``total`` images, if it reports them
    ``waiting``   another process works on the fit (sent again at each look)
    ``warning``   something failed that no outcome records: ``text``
    ``finished``  every cell of the fit has an outcome
    ============= ==================================================================================================
    """

    kind: EventKind
    fit: Mapping[str, Any] = field(default_factory=dict)  # model, dataset, recipe, seed and id
    metric: str = ""  # spec
    done: int = 0
    total: int = 0
    values: Mapping[str, float | str] = field(default_factory=dict)
    text: str = ""


@runtime_checkable
class Tracker(Protocol):
    """Receives the events of a run, in the process that started it."""

    def event(self, event: Event) -> None: ...
