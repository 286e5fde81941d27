"""What a metric is given: a trained model under evaluation, or what is known of it before training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

    from jembench.interfaces.data import Dataset, DataSpec, Split
    from jembench.interfaces.metrics import FeatureNetwork, Features
    from jembench.interfaces.samplers import Sampler

Quantity = Literal["logits", "energy", "grad-norm"]
"""A quantity computed by a pass through the network: f(x), E(x), or the L2 norm of dE/dx = -d log p(x)/dx."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Selects which images of a model a metric uses."""

    chains: Literal["kept", "fresh"] = "kept"  # kept chains, or direct samples if there are none; or new chains
    steps: int | None = None  # steps of new chains; None: as in training
    images: int | None = None  # number of new chains; None: 1,000
    conditional: bool | None = None  # new chains on E(x, y), with balanced classes; None: as the model was trained
    pooling: Literal["one", "five", "mean"] = "one"  # of kept chains: the buffer; the buffers of the last five epochs;
    # or their pixel-wise mean, slot by slot


KEPT = Source()


class Samples(NamedTuple):
    """Images that a model generated."""

    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor | None  # int64 (N,): the class that each was conditioned on
    source: str  # "buffer", "direct" or "chains:steps=100": part of a protocol
    ages: Tensor | None = None  # int64 (N,): the sampling steps since each chain of a buffer was started


class Stability(NamedTuple):
    """What the divergence guard detected during a training, and what it did."""

    criterion: str  # name and version of the definition of divergence
    iterations: int  # of the whole training
    diverged_at: int | None  # the iteration after which divergence was first detected; None: never
    reason: str  # what was detected then
    remedies: tuple[str, ...]  # remedies that were tried, in order; empty: the guard only watched
    ended_with: str  # changes to the recipe at the end, such as "20 sampling steps"; "": none


@runtime_checkable
class Evaluation(Protocol):
    """A trained model under evaluation. Values that several metrics need are computed once."""

    data: DataSpec
    dataset: Dataset
    model: Any  # the nn.Module, on the device, in eval mode
    device: torch.device
    sampler: Sampler | None  # the sampler in its state after training; None: trained without chains
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
        """The images of ``test``, ``validation`` or ``train`` (without validation), or of an OOD set by its spec,
        ``interp`` or ``celeba:root=/data``; uint8 (N, C, H, W).

        Raises:
            Unavailable: with the remedy, if they are missing.
        """
        ...

    def labels_of(self, name: Literal["test", "validation", "train"]) -> Tensor:
        """The labels of a part of the dataset, int64 (N,).

        Raises:
            Unavailable: if the dataset has none.
        """
        ...

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """A quantity of images, which are named as in :meth:`images` or given: float32 (N, K) or (N,) on the CPU.

        ``noise`` is the standard deviation of Gaussian noise on the images, on [-1, 1]; the same noise for every model.

        Predictions are cached: each image passes through the network once, in this run or an earlier one.
        """
        ...

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        """E(x) after ``steps`` of the model's own chain, started at the images: float32 (N,) on the CPU.

        ``noise`` as for :meth:`read`.

        Raises:
            Unavailable: if the model has no chains.
        """
        ...

    def remembered(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The result of ``compute``, cached on disk under the model's weights and the name.

        The name must be unique for this model; it need not contain the version of your code. Cache long computations in
        parts: finished parts survive an interrupted run.
        """
        ...

    def out_of_time(self) -> bool:
        """Whether the run's time limit has passed: a long metric then returns what it has."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Show the progress of a long metric."""
        ...

    def samples(self, source: Source = KEPT) -> Samples:
        """Images generated by the model.

        Raises:
            Unavailable: if it has no such images.
        """
        ...

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, ready for use."""
        ...

    def features_of(self, spec: str, images: Literal["samples", "train", "test"] | Tensor) -> Features:
        """Features of the samples, of a part of the dataset (``train`` includes validation), or of any images."""
        ...

    def generator(self, purpose: str) -> Generator:
        """A generator for one purpose, derived from the fit's seed and the purpose."""
        ...


@runtime_checkable
class Planned(Protocol):
    """A fit before training: what its :class:`Evaluation` will have.

    It raises the errors that the evaluation would raise for missing images, samples or weights.
    """

    @property
    def data(self) -> DataSpec: ...
    @property
    def sampler(self) -> Sampler | None:
        """The sampler, before its first chain; None: trained without chains."""
        ...

    @property
    def pretrained(self) -> bool:
        """Whether the model was trained elsewhere."""
        ...

    @property
    def fetching(self) -> bool:
        """Whether downloads that the user asked for may happen now; not in a dry run."""
        ...

    @property
    def labelled(self) -> bool:
        """Whether the test images have labels."""
        ...

    @property
    def kept(self) -> int | None:
        """The number of chains that will be kept after training; None: unknown."""
        ...

    def count(self, images: Literal["test", "validation", "train"]) -> int:
        """The number of test images under evaluation, of held-out images, or of the whole training split.

        Raises:
            NotApplicable: if the recipe holds no images out.
        """
        ...

    def samples(self, source: Source = KEPT) -> int | None:
        """The number of images that the model will have generated; None: unknown.

        Raises:
            NotApplicable: if it will have none.
        """
        ...

    def check_ood_set(self, spec: str) -> None:
        """Check that an out-of-distribution set, or another dataset, is available.

        Raises:
            Unavailable: with the remedy, if it is not.
        """
        ...

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, not prepared for use.

        Raises:
            Unavailable: with the remedy, if its weights are missing.
        """
        ...
