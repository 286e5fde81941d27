"""Samplers: Markov chains over images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from jembench.interfaces.data import Split

__all__ = ["ChainState", "GradEnergy", "Sampler", "Start", "StepInfo"]

GradEnergy = Callable[["Tensor", "Tensor | None"], "tuple[Tensor, Tensor]"]
"""The energy of a model and its gradient.

A function from x (B, C, H, W) and y (B,) or None to E (B,) and dE/dx (B, C, H, W). A sampler may evaluate some of its
chains at a time.
"""


class ChainState(NamedTuple):
    """The state of a batch of chains."""

    x: Tensor  #: (B, C, H, W)
    y: Tensor | None = None  #: int64 (B,): the class that each chain is conditioned on
    slots: Tensor | None = None  #: int64 (B,): where in a replay buffer each chain came from
    steps: int = 0  #: steps since they were started or drawn from a buffer
    ages: Tensor | None = None  #: int64 (B,): of kept chains, the steps since each was started


class StepInfo(NamedTuple):
    """Energies and gradients of one step, for diagnostics; the next step does not depend on them."""

    energy: Tensor  #: (B,) before the step; after the noise if a sampler adds its noise first
    grad: Tensor  #: (B, C, H, W) dE/dx of the same images


@runtime_checkable
class Sampler(Protocol):
    """A Markov chain over images. Only ``state_dict`` outlives a chain; all randomness comes from ``generator``.

    A sampler may have more:

    - ``inform(train: Split)``: it is given the training images before its first chain, also when training is resumed,
      so that ``state_dict`` need not contain anything derived from them;
    - ``capturable: bool``: True if ``step`` neither waits for the device nor changes what ``state_dict`` holds: on a
      GPU the steps of a chain are then one CUDA graph, and what is no operation on tensors is done once;
    - ``capacity: int``: the number of chains that outlive an iteration, 0 or more;
    - ``check_batch(n: int, *, conditional: bool)``: raise a SpecError before training if n chains cannot be drawn at
      once, conditioned on any labels.

    In a training by several processes, each steps a part of the chains that ``init`` gives: along the first dimension
    of the tensors in the state.
    """

    @property
    def steps(self) -> int:
        """The length of a chain during training."""
        ...

    def start(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Start n new chains on the generator's device, conditioned on the labels y (n,) if given."""
        ...

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Get the n chains of a training iteration: new ones, or kept ones that go on."""
        ...

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> tuple[ChainState, StepInfo]:
        """Move every chain by one step."""
        ...

    def finish(self, state: ChainState) -> None:
        """Keep what the next chains start from, after the last step of these."""
        ...

    def kept(self) -> ChainState | None:
        """A copy of the chains that outlive an iteration (a replay buffer), or None if the sampler keeps none."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...


@runtime_checkable
class Start(Protocol):
    """Where chains begin. It works on the generator's device, and draws nothing but from the generator."""

    def inform(self, train: Split) -> None:
        """Look at the training images, if the start is made of them."""
        ...

    def draw(self, n: int, y: Tensor | None, generator: Generator) -> Tensor:
        """n images, of the classes y (n,) if given: (n, C, H, W)."""
        ...

    def renew(self, x: Tensor, restart: Tensor, y: Tensor | None, generator: Generator) -> Tensor:
        """The chains at x (B, C, H, W), those of ``restart``, bool (B,), started again."""
        ...
