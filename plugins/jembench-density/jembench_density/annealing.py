"""Annealed importance sampling between the uniform density on a box and exp(-E).

The path has the densities proportional to exp(-beta E(x)) on the box, beta from 0 to 1. Along it
chains move by Hamiltonian Monte Carlo, which keeps each density: leapfrog steps that are reflected
at the walls, then Metropolis's test. From uniform starts, the mean of exp(log weight) is Z / V, V
the volume of the box, without bias; from starts that follow exp(-E) / Z, backwards, it is V / Z.

Neal (2001), Statistics and Computing 11, 125-139; Grosse, Ghahramani & Adams (2015),
arXiv:1511.02543.

Legend: B chains, T temperatures, C channels, H height, W width.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from jembench import progress
from jembench.interfaces import GradEnergy

ACCEPTANCE = 0.65
"""The acceptance rate that step sizes are adapted to, near the optimum of Beskos et al. (2013),
arXiv:1001.4460.
"""

PILOT, TRIES = 40, 4
"""Inverse temperatures of the pilot run, and its transitions at each."""

SHARPNESS = 4.0
JITTER = 0.9
"""Step sizes are multiplied by uniform numbers from 0.1 to 1.9, so that no trajectory is periodic
and steep places are left.
"""

Numbers = NDArray[np.float64]
Bounds = tuple[float, float]


def inverse_temperatures(place: Numbers) -> Numbers:
    """Return beta, 0 to 1, at places from 0 to 1.

    The schedule is the sigmoidal one of Grosse et al. (2015) with delta = 4.
    """
    beta: Numbers = np.tanh(SHARPNESS * (place - 0.5)) / np.tanh(SHARPNESS / 2)
    return (1 + beta) / 2


class Chains(NamedTuple):
    """The state of chains."""

    x: Tensor  # (B, C, H, W)
    energy: Tensor  # (B,)
    grad: Tensor  # (B, C, H, W)


class Annealing:
    """A path of T temperatures and its transitions.

    No random number depends on the size of batches.

    Args:
        grad_energy: E and dE/dx.
        bounds: of each pixel.
        temperatures: T.
        leapfrog: steps of a transition; 1: the Metropolis-adjusted Langevin algorithm (MALA).
    """

    def __init__(
        self, grad_energy: GradEnergy, bounds: Bounds, *, temperatures: int, leapfrog: int
    ) -> None:
        self.grad_energy, self.bounds, self.leapfrog = grad_energy, bounds, leapfrog
        self.passes = 0
        """Images that passed forward and backward through the network."""
        self.places = np.linspace(0, 1, temperatures + 1)
        self.steps = np.full(temperatures + 1, bounds[1] - bounds[0])
        """The step size at each beta."""

    def adapt(self, x: Float[Tensor, "B C H W"], generator: Generator) -> None:
        """Set the step sizes by a pilot run from uniform starts.

        Nothing else uses the chains of the pilot run.
        """
        chains, step, places = self._at(x), float(self.steps[0]), np.linspace(0, 1, PILOT)
        found = []
        for beta in progress.track(
            inverse_temperatures(places).tolist(), "pilot run", "temperatures"
        ):
            for _ in range(TRIES):
                chains, acceptance = self.transition(chains, beta, step, generator)
                step = min(step * math.exp(acceptance - ACCEPTANCE), float(self.steps[0]))
            found.append(math.log(step))
        self.steps = np.exp(np.interp(self.places, places, found))

    def equilibrate(
        self, x: Float[Tensor, "B C H W"], generator: Generator
    ) -> Float[Tensor, "B C H W"]:
        """Return the ends of chains on E itself, of T transitions."""
        chains = self._at(x)
        for _ in progress.track(range(len(self.places) - 1), "long chains", "transitions"):
            chains, _ = self.transition(chains, 1.0, self.steps[-1], generator)
        return chains.x

    def run(
        self, x: Float[Tensor, "B C H W"], generator: Generator, *, reverse: bool = False
    ) -> tuple[Tensor, float]:
        """Anneal chains from uniform starts to exp(-E), or back with ``reverse``.

        Returns:
            the log weights in float64, the mean of whose exp is Z / V, or V / Z; and the mean
            acceptance rate.
        """
        path = list(zip(inverse_temperatures(self.places), self.steps, strict=True))[
            :: -1 if reverse else 1
        ]
        chains, rates = self._at(x), list[float]()
        log_weights = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for (beta, _), (next_beta, step) in progress.track(
            list(pairwise(path)), "annealing", "temperatures"
        ):
            log_weights -= (next_beta - beta) * chains.energy.double()
            if 0 < next_beta < 1:
                chains, rate = self.transition(chains, next_beta, step, generator)
                rates.append(rate)
        return log_weights.cpu(), sum(rates) / max(1, len(rates))

    def transition(
        self, chains: Chains, beta: float, step: float, generator: Generator
    ) -> tuple[Chains, float]:
        """Move chains by a trajectory on beta E.

        Returns the chains and the mean probability of acceptance.

        A trajectory whose energy is not finite is rejected.
        """
        x, _, grad = chains
        size = (step * (1 + JITTER * (2 * _uniform(x, generator) - 1)))[:, None, None, None]
        start = torch.randn(x.shape, generator=generator, device=generator.device).to(x)
        momentum = start - 0.5 * beta * size * grad
        for left in reversed(range(self.leapfrog)):
            x, momentum = reflected(x + size * momentum, momentum, self.bounds)
            _, energy, grad = self._at(x)
            momentum = momentum - (1.0 if left else 0.5) * beta * size * grad
        released = (start.square() - momentum.square()).flatten(1).double().sum(1) / 2
        ratio = (
            (beta * (chains.energy - energy).double() + released).clamp(max=0).exp().nan_to_num(0.0)
        )
        accepted = _uniform(x, generator) < ratio
        ends = zip(Chains(x, energy, grad), chains, strict=True)
        kept = (
            torch.where(accepted.view(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in ends
        )
        return Chains(*kept), float(ratio.mean())

    def _at(self, x: Tensor) -> Chains:
        self.passes += len(x)
        return Chains(x, *self.grad_energy(x, None))


def _uniform(x: Tensor, generator: Generator) -> Tensor:
    """Return a uniform number for each chain."""
    return torch.rand(len(x), generator=generator, device=generator.device).to(x)


def reflected(
    x: Float[Tensor, "B C H W"], momentum: Float[Tensor, "B C H W"], bounds: Bounds
) -> tuple[Tensor, Tensor]:
    """Fold a straight path back into the box.

    Each pixel and its momentum are reflected at every wall that the path passed.
    """
    low, high = bounds
    place = (x - low) / (high - low)
    turned = place.floor().remainder(2) == 1
    within = place.remainder(1)
    return low + (high - low) * torch.where(turned, 1 - within, within), torch.where(
        turned, -momentum, momentum
    )
