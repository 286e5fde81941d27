"""Stochastic gradient Langevin dynamics: the update, and the sampler that starts every chain anew.

Legend: B chains, C channels, H height, W width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from jembench.data.pixels import Bounds
from jembench.interfaces import ChainState, DataSpec, GradEnergy, Split, Start
from jembench.sampling.starts import UniformStart


def langevin_step(
    x: Float[Tensor, "B C H W"],
    grad: Float[Tensor, "B C H W"],
    *,
    step_size: float,
    noise: float,
    generator: Generator,
    clip: float | None = None,
    bounds: Bounds | None = None,
) -> Float[Tensor, "B C H W"]:
    """Return x' = x - step_size dE/dx + noise N(0, I).

    With ``clip``, each element of dE/dx is clamped to [-clip, clip] first; with ``bounds``, x' is
    clamped to them (SADA-JEM: Yang, Su & Ji, 2023; clip = 1 and noise = 0). Both change what the
    chain converges to.

    Proper Langevin dynamics has noise = sqrt(2 step_size); the papers sample colder. JEM's Appendix
    H writes step_size = alpha / 2 with alpha = 2. On E = |x|^2 / (2 s^2) the stationary variance is
    noise^2 s^4 / (step_size (2 s^2 - step_size)).
    """
    if clip is not None:
        grad = grad.clamp(-clip, clip)
    moved = x.sub(grad, alpha=step_size)
    if noise:
        drawn = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        moved.add_(drawn, alpha=noise)
    if bounds is not None:
        moved.clamp_(*bounds)
    return moved


@dataclass(frozen=True, kw_only=True, slots=True)
class Langevin:
    """The length of an SGLD chain and the constants of its update, see :func:`langevin_step`."""

    steps: int
    step_size: float
    noise: float
    clip: float | None = None
    bounds: Bounds | None = None
    # each image moves by step_size along dE/dx / |dE/dx|, before the noise and the bounds
    normalised: bool = False
    momentum: float = 0.0  # the share of the earlier steps' gradients that is added to dE/dx

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> ChainState:
        """Take one Langevin step with every chain."""
        _, grad = grad_energy(state.x, state.y)
        slope = grad
        if self.normalised:
            slope = F.normalize(grad.flatten(1)).view_as(grad)
        if state.momentum is not None:
            slope = slope.add(state.momentum, alpha=self.momentum)
        x = langevin_step(
            state.x,
            slope,
            step_size=self.step_size,
            noise=self.noise,
            generator=generator,
            clip=self.clip,
            bounds=self.bounds,
        )
        kept = slope if self.momentum else None
        return state._replace(x=x, steps=state.steps + 1, momentum=kept)


class ShortRun:
    """Short-run SGLD: every chain starts anew and nothing is kept (Nijkamp et al., 2019).

    JEM trained stably with 80 steps or more (Grathwohl et al., 2020, Appendix H.2). Samplers by
    SGLD that keep their chains inherit the starts and steps of this class.

    Args:
        data: the images' shape, bounds and classes.
        langevin: the update.
        starts: the starts of new chains; uniform noise if None.
    """

    capturable = True

    def __init__(self, data: DataSpec, langevin: Langevin, starts: Start | None = None) -> None:
        self.langevin = langevin
        self.starts = UniformStart(data) if starts is None else starts

    @property
    def steps(self) -> int:
        """The length of a chain during training."""
        return self.langevin.steps

    def inform(self, train: Split) -> None:
        """Give the training images to the start."""
        self.starts.inform(train)

    def start(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Start n new chains."""
        return ChainState(self.starts.draw(n, y, generator), y)

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> ChainState:
        """Take one Langevin step with every chain."""
        return self.langevin.step(state, grad_energy, generator)

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Start n new chains."""
        return self.start(n, y, generator=generator)

    @property
    def capacity(self) -> int:
        """The number of chains that are kept: 0."""
        return 0

    def finish(self, state: ChainState) -> None:
        """Keep nothing."""

    def kept(self) -> ChainState | None:
        """Return None, since there is no buffer."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the empty state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Ignore the state, which is empty."""
