"""Models: capabilities of an ``nn.Module``, data of training, import of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Generator, Tensor, nn

    from jembench.interfaces.data import DataSpec

__all__ = [
    "Batch",
    "Chains",
    "Classifier",
    "Density",
    "Energies",
    "Energy",
    "Fittable",
    "Generative",
    "Import",
    "Importer",
    "Loss",
    "Negatives",
    "Phase",
    "Trainable",
]

Capability = Literal["logits", "energy", "log_prob", "samples"]


@runtime_checkable
class Classifier(Protocol):
    def logits(self, x: Tensor) -> Tensor:
        """Return the logits f(x): (B, C, H, W) -> (B, K)."""


@runtime_checkable
class Energy(Protocol):
    def energy(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return E(x), or E(x, y): (B, C, H, W) -> (B,), nats, up to one constant.

        The labels y are (B,). The constant is unknown.

        A model without classes may leave out ``y``. A model that was trained elsewhere may have
        only E(x, y), with ``y`` required: its logits are then -E(x, y).

        A model may have the attribute ``energy_follows_from_logits: bool``, True if E(x) is exactly
        -logsumexp of the logits, so that one pass computes both.

        Raises:
            SpecError: for labels, if the model has no classes.
        """


@runtime_checkable
class Density(Protocol):
    def log_prob(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return log p(x), or log p(x|y): (B, C, H, W) -> (B,), nats.

        ``y`` is as for ``energy``.

        The density integrates to 1 over all of R^(C H W), like a flow's, or over
        ``DataSpec.bounds``. A model whose values are lower bounds of a log density, such as an
        ELBO, sets ``log_prob_is_bound: bool`` to True. A model without ``log_prob`` or ``samples``
        may give the reasons by these names, which tables show: ``lacks: Mapping[str, str]``.

        Raises:
            SpecError: for labels, if the model has no classes.
        """


@runtime_checkable
class Generative(Protocol):
    def sample(self, n: int, y: Tensor | None = None, *, generator: Generator) -> Tensor:
        """Draw images without a Markov chain, (n, C, H, W) within ``DataSpec.bounds``.

        Images are of the classes y (n,), if given.

        Raises:
            SpecError: for labels, if the model has no classes.
        """


class Batch(NamedTuple):
    """Training images of one iteration, augmented and with data noise.

    Both terms of a loss may use the same images.
    """

    x: Tensor  #: (B, C, H, W) for p(x)
    x_labelled: Tensor  #: (B, C, H, W) for p(y|x)
    y_labelled: Tensor  #: int64 (B,)
    #: (B, K) of x, with gradients, if x passed through the network before the chains
    logits: Tensor | None = None
    #: (): the number of earlier iterations of this training, on the device
    iteration: Tensor | None = None
    #: (O, C, H, W): images outside of the data, for a loss that needs them
    outliers: Tensor | None = None

    def ramp(self, iterations: int) -> Tensor | float:
        """Return a factor of a weight that rises linearly from 0 to 1.

        The factor rises over the first ``iterations`` of a training. It is 1 with ``iterations=0``,
        and for a batch outside of a training.
        """
        return (
            (self.iteration / iterations).clamp(max=1)
            if iterations and self.iteration is not None
            else 1.0
        )


class Negatives(NamedTuple):
    """Samples that the sampler drew from the model for one training iteration."""

    x: Tensor  #: (B, C, H, W), detached
    y: Tensor | None  #: int64 (B,): the class of each chain; None for chains on E(x)


class Energies(NamedTuple):
    """Energies of data and of samples in a contrastive loss, in nats, with gradients."""

    data: Tensor  #: (B,)
    samples: Tensor  #: (B,)


class Loss(NamedTuple):
    """A training loss and its parts.

    ``parts`` are logged separately. The energy penalty needs ``energies``. The divergence guard
    and an :class:`~jembench.interfaces.samplers.Adaptive` sampler need the energies that the chains
    follow: ``of_chains``, or else ``energies``. A loss on another energy than its chains' sets
    ``of_chains``. Parts with the names ``joint_energy_data`` and ``joint_energy_samples`` are means
    of E(x, y), ``energy_data`` and ``energy_samples`` means of E(x).
    """

    total: Tensor  #: ()
    parts: Mapping[str, Tensor]  #: name -> (), detached
    energies: Energies | None = None
    #: E(x, y) of the same images, if conditional chains follow it; else None
    of_chains: Energies | None = None


Chains = Literal["none", "marginal", "conditional"]


@runtime_checkable
class Trainable(Protocol):
    """A model that can be trained by the shared loop.

    ``chains`` says which samples the loss needs: none, chains on E(x), or chains on E(x, y) for the
    batch's labels. A model trained with chains can generate images: its sampler is stored with it.

    Torch's global generators are seeded before each iteration, so that dropout is reproducible. A
    loss also draws its noise from them (``torch.rand_like``): a loss that makes a
    ``torch.Generator`` cannot be compiled. Use ``jembench.parts.densities.FirstBatch`` for an
    initialisation by the first batch.

    A model whose loss needs the outliers of the recipe (``data.outliers``) sets the attribute
    ``needs_outliers: bool`` to True.

    A model whose chains follow another energy than its ``energy`` has the method ``chain_energy(x,
    y)``, which is called like ``energy``.

    A model whose batch norm has running statistics of all images of its loss by design, such as
    data, samples and outliers in one pass, sets the attribute ``joint_pass: bool`` to True. These
    statistics are then not compared with the training images'.

    A model whose samples in training are not its own, such as outliers, sets the attribute
    ``generates: bool`` to False. It then does not count as a generator of images.

    A model whose loss ``torch.compile`` cannot turn into one graph sets the attribute
    ``compiles: bool`` to False, and is then not compiled.
    """

    @property
    def chains(self) -> Chains: ...
    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss: ...


class Phase(NamedTuple):
    """The turn of a further optimiser in each iteration.

    The optimiser trains ``parameters`` to minimise ``loss``.
    """

    parameters: Sequence[nn.Parameter]  #: which no other phase has
    #: called with the iteration's batch and negatives
    loss: Callable[[Batch, Negatives | None], Loss]
    #: settings of the recipe's ``[optimizer]`` to replace, such as ``learning_rate``
    settings: Mapping[str, Any] = {}


@runtime_checkable
class Phased(Protocol):
    """A :class:`Trainable` whose optimisers take turns.

    An example is an energy and a generator.

    In each iteration ``training_loss`` trains the parameters that no phase has, and then each phase
    its own, in order, with the same batch and negatives. Only the gradients of the turn's
    parameters are computed. The schedule and the guard's remedies apply to the learning rates of
    all phases. The total of a phase's loss is logged as ``NAME_loss``, and its parts under their
    own names, which must differ from the names of other losses.
    """

    def phases(self) -> Mapping[str, Phase]:
        """Return the phases by their names.

        The trainer calls it once, before it makes the optimisers.
        """


@runtime_checkable
class Prepared(Protocol):
    """A :class:`Trainable` model that reads the training images before it trains."""

    def prepare(self, batches: Iterable[Tensor]) -> None:
        """Set buffers from the training images, in evaluation mode.

        The model has the weights that training starts from.

        Args:
            batches: the images in order, float (B, C, H, W) on the model's device.
        """


@runtime_checkable
class Fittable(Protocol):
    """A model that is fitted to all training images at once, without a loss.

    Examples are a mixture and a kernel density.

    The result of the fit must be in its buffers, of any shapes: they are stored as safetensors, and
    a loaded model's buffers take their shapes from the file. Nothing else is stored.

    A model whose outputs PyTorch cannot differentiate, such as one of scikit-learn, sets the
    attribute ``differentiable: bool`` to False; metrics that need gradients are then not applicable
    to it. A model that is :class:`Trainable` too is trained instead.
    """

    def fit(self, x: Tensor, y: Tensor | None, *, generator: Generator) -> None:
        """Fit the model to the training images, without validation images, augmentation or noise.

        Args:
            x: float32 (N, C, H, W) within ``DataSpec.bounds``.
            y: their labels, int64 (N,); None: unlabelled.
            generator: seeded for the fit; all random numbers are drawn from it.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """Weights read from a file, under the names of the model's state."""

    model: str  #: spec
    weights: Mapping[str, Tensor]  #: the model's whole state
    sampler: str = ""  #: spec of the sampler whose chains the file holds; "": it holds none
    chains: Mapping[str, Tensor] = field(default_factory=dict)  #: the sampler's ``state_dict``
    unused: tuple[str, ...] = ()  #: entries of the file that the model does not use
    outputs: tuple[str, ...] = ()  #: names of the outputs in the file


@runtime_checkable
class Importer(Protocol):
    """A reader of weight files of one origin, which never runs their code.

    Pickles are read by PyTorch's safe reader.
    """

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """Read the weights in a file.

        Args:
            path: path of the file.
            data: the dataset that the model was trained on.
            model: spec of the model; None: the file itself names it.

        Raises:
            CheckpointError: if the file is damaged or of another kind; the message lists everything
                that does not fit.
        """
