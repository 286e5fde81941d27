"""The arguments of metrics: a trained model under evaluation, or a fit before training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

    from jembench.interfaces.data import DataSpec, Split, Truth
    from jembench.interfaces.features import FeatureNetwork, Features
    from jembench.interfaces.samplers import Sampler

__all__ = ["Evaluation", "Planned", "Quantity", "Samples", "Source"]

Quantity = Literal["logits", "energy", "grad-norm"]
"""A quantity that one pass through the network computes: f(x), E(x), or the L2 norm of dE/dx = -d
log p(x)/dx.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The choice of the generated images that a metric uses."""

    #: "kept": kept chains, or direct samples if there are none; "fresh": new chains
    chains: Literal["kept", "fresh"] = "kept"
    steps: int | None = None  #: steps of new chains; None: as in training
    images: int | None = None  #: number of new chains; None: 1,000
    #: new chains on E(x, y), with balanced classes; None: as the model was trained
    conditional: bool | None = None
    #: of kept chains: the buffer; the buffers of the last five epochs; their mean, slot by slot
    pooling: Literal["one", "five", "mean"] = "one"
    #: spec of the sampler of new chains on a differentiable energy; None: the model's own
    sampler: str | None = None


KEPT = Source()


class Samples(NamedTuple):
    """Images that a model generated."""

    images: Tensor  #: uint8 (N, C, H, W)
    labels: Tensor | None  #: int64 (N,): the class that each image was conditioned on
    source: str  #: "buffer", "direct" or "chains:steps=100": part of a protocol
    #: int64 (N,): the sampling steps since each chain of a buffer was started
    ages: Tensor | None = None


class Stability(NamedTuple):
    """Divergence that the guard detected during a training, and the remedies that it applied."""

    criterion: str  #: name and version of the definition of divergence
    iterations: int  #: of the whole training
    diverged_at: int | None  #: the iteration after which divergence was first detected; None: never
    reason: str  #: of the first divergence; "": none
    remedies: tuple[str, ...]  #: remedies that were tried, in order; empty: the guard only watched
    ended_with: str  #: changes to the recipe at the end, such as "20 sampling steps"; "": none


class TrainingRecord(NamedTuple):
    """Timings and stability of a model's training."""

    #: mean seconds per iteration of each logged window; empty: unknown
    iteration_seconds: Sequence[float] = ()
    #: processes during training without a processor of their own; None: unknown
    other_load: float | None = None
    stability: Stability | None = None  #: None: the guard was off, or it had no energies to judge
    hours: float | None = None  #: of all iterations, or of ``fit``; None: unknown
    #: images that passed through the network, forward and backward; None: unknown
    passes: float | None = None


class About(Protocol):
    """The description of a dataset."""

    @property
    def spec(self) -> DataSpec: ...
    @property
    def content(self) -> str:
        """A hash of the dataset's files, if they are the user's own; else empty."""

    @property
    def truth(self) -> Truth | None:
        """The density of synthetic images; None: unknown."""


class Data(About, Protocol):
    """The images that a model was trained on and is evaluated on."""

    def part(self, name: str) -> Split:
        """Return images with their labels.

        ``name`` is ``test``, ``validation``, ``train``, or the spec of an OOD set, such as
        ``celeba:root=/data``. ``test`` are the images under evaluation: all test images, or
        ``--limit`` of them, or with ``--split validation`` the validation images. An OOD set's
        labels are None unless its images are of the dataset's classes.

        Raises:
            NotApplicable: if no validation images were held out, or if they are under evaluation.
            Unavailable: with the remedy, if images are missing.
        """

    def images(self, name: str) -> Tensor:
        """Return the images of :meth:`part`, uint8 (N, C, H, W)."""


class Predictions(Protocol):
    """Predictions of the model for images.

    They are cached: each quantity of an image is computed once, in this run or an earlier one.

    Images are named as in :meth:`Data.part`, or given as uint8 (N, C, H, W). ``noise`` is the
    standard deviation of Gaussian noise on them, on [-1, 1]; the same noise for every model.
    """

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """Return a quantity of images, float32 on the CPU.

        Logits are (N, K), other quantities (N,). E(x) of a density is -log p(x).
        """

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        """Return E(x) after ``steps`` of the model's own chain: float32 (N,) on the CPU.

        The chain starts at the images.

        Raises:
            Unavailable: if the model has no chains.
        """


class DrawSamples(Protocol):
    def __call__(self, source: Source = KEPT) -> Samples:
        """Return images generated by the model.

        Raises:
            Unavailable: if the model has no such images.
        """


class Services(Protocol):
    """Random numbers, features, a cache and the time limit."""

    def generator(self, purpose: str) -> Generator:
        """Return a CPU generator for one purpose.

        Its seed is derived from the fit's seed and the purpose.
        """

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, ready for use."""

    def features_of(self, spec: str, images: Literal["train", "test"] | Tensor) -> Features:
        """Return the features of a part of the dataset, or of any images.

        ``train`` includes validation images.
        """

    def remembered(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the result of ``compute``, cached on disk under the model's weights and the name.

        The name must be unique for this model; it need not contain the version of your code. Cache
        long computations in parts: finished parts survive an interrupted run.
        """

    @property
    def share(self) -> tuple[int, int]:
        """The share of a long metric to compute, and the number of shares; (0, 1): the whole.

        A metric with an attribute ``parts`` above 1 may be asked for one share; other machines
        compute the others. The metric raises :class:`jembench.errors.PartDone` once all of its
        share is ``remembered``.
        """

    def out_of_time(self) -> bool:
        """Return whether the run's time limit has passed.

        A long metric then returns its partial result.
        """


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A trained model under evaluation. Quantities that several metrics need are computed once."""

    model: Any  #: the nn.Module, on the device, in eval mode
    sampler: Sampler | None  #: in its state after training; None: trained without chains
    device: torch.device
    training: TrainingRecord
    data: Data
    predictions: Predictions
    samples: DrawSamples  #: a function: samples() or samples(Source(...))
    services: Services


@runtime_checkable
class Planned(About, Protocol):
    """A fit before training: what its :class:`Evaluation` will have.

    It raises the errors that the evaluation would raise for missing images, samples or weights.
    """

    @property
    def fetching(self) -> bool:
        """True if files may be downloaded now where an option says so; False in a dry run."""

    def count(self, images: Literal["test", "train"]) -> int:
        """Return the number of test images under evaluation, or of the whole training split."""

    def samples(self, source: Source = KEPT) -> int | None:
        """Return the number of images that the model will have generated; None if unknown.

        Raises:
            NotApplicable: if it will have none.
        """

    def check_ood_set(self, spec: str) -> None:
        """Check that an out-of-distribution set, or another dataset, is available.

        Raises:
            Unavailable: with the remedy, if it is not.
        """

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, not prepared for use.

        Raises:
            Unavailable: with the remedy, if its weights are missing.
        """


@runtime_checkable
class Checked(Protocol):
    """A metric or feature network that checks before training whether it can be used."""

    def check(self, planned: Planned) -> None:
        """Check a fit before it is trained.

        An error is shown in the plan, and nothing is trained for this metric.

        Raises:
            NotApplicable: if the metric is not defined for this model or dataset.
            Unavailable: with the remedy, if a file or a package is missing.
            SpecError: if an option does not fit the dataset.
        """
