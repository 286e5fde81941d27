"""Samplers: Markov chains over images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from jembench.interfaces.data import Split
    from jembench.interfaces.models import Energies

__all__ = ["ChainState", "GradEnergy", "Sampler", "Start"]

GradEnergy = Callable[["Tensor", "Tensor | None"], "tuple[Tensor, Tensor]"]
"""A function that returns a model's energy and its gradient.

It maps x (B, C, H, W) and y (B,) or None to E (B,) and dE/dx (B, C, H, W). A sampler may pass it a
part of its chains.
"""


class ChainState(NamedTuple):
    """The state of a batch of chains."""

    x: Tensor  #: (B, C, H, W)
    y: Tensor | None = None  #: int64 (B,): the class that each chain is conditioned on
    slots: Tensor | None = None  #: int64 (B,): the slot of each chain in a replay buffer
    steps: int = 0  #: steps since the chains were started or drawn from a buffer
    ages: Tensor | None = None  #: int64 (B,): the steps since each kept chain was started
    #: (B, C, H, W): the decaying sum of gradients, of a sampler with momentum
    momentum: Tensor | None = None


@runtime_checkable
class Sampler(Protocol):
    """A Markov chain over images.

    Only what ``state_dict`` holds outlives a chain; all randomness comes from ``generator``.

    A sampler may have further methods and attributes:

    - ``inform(train: Split)``: called with the training images before the first chain, also when
      training is resumed, so that ``state_dict`` need not contain anything derived from them;
    - ``capturable: bool``: True if ``step`` neither waits for the device nor changes the state in
      ``state_dict``: on a GPU the steps of a chain are then captured as one CUDA graph, and code
      other than operations on tensors runs once;
    - ``capacity: int``: the number of chains that outlive an iteration, 0 or more;
    - ``check_batch(n: int, *, conditional: bool)``: raises a SpecError before training if n chains
      cannot be drawn at once, conditioned on any labels.

    In a training by several processes, each process runs a part of the chains from ``init``, cut
    along the first dimension of the tensors in the state.
    """

    @property
    def steps(self) -> int:
        """The length of a chain during training; 0: samples are the starts."""

    def start(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Start n chains on the generator's device, given the labels y (n,) if any."""

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Return the n chains of a training iteration, new or kept ones."""

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> ChainState:
        """Move every chain by one step."""

    def finish(self, state: ChainState) -> None:
        """Keep the ends of chains, after their last step, for later chains."""

    def kept(self) -> ChainState | None:
        """Return a copy of the chains that outlive an iteration; None if none do.

        A replay buffer has such chains.
        """

    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...


@runtime_checkable
class Adaptive(Sampler, Protocol):
    """A sampler that adapts to the energies that a training computes.

    An example is the length of its chains.

    Its ``state_dict`` holds whatever outlives an iteration.
    """

    def observe(self, energies: Energies) -> None:
        """Receive a loss's energies of data and of samples, (B,) each, detached.

        The method must not wait for the device that computes them.

        In a training by several processes these are the energies of all processes.
        """

    def adapt(self) -> None:
        """Change the chains of later iterations.

        Called after every ``log_every`` iterations; the host may wait here.
        """


@runtime_checkable
class Start(Protocol):
    """Starts of chains, on the generator's device and random only by the generator."""

    def inform(self, train: Split) -> None:
        """Keep the training images, or what the starts need of them."""

    def draw(self, n: int, y: Tensor | None, generator: Generator) -> Tensor:
        """Draw n images, of the classes y (n,) if given: (n, C, H, W)."""

    def renew(self, x: Tensor, restart: Tensor, y: Tensor | None, generator: Generator) -> Tensor:
        """Return the chains x (B, C, H, W), started anew where ``restart``, bool (B,)."""
