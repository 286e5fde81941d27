"""Annealed importance sampling between the uniform density on a box and exp(-E).

Densities along the path are proportional to exp(-beta E(x)) on the box, beta from 0 to 1. Chains
move by Hamiltonian Monte Carlo, which leaves each density invariant: leapfrog steps that are
reflected at the walls, then Metropolis's test. From uniform starts, the mean of exp(log weight)
estimates Z / V without bias, V the volume of the box; backwards, from starts that follow exp(-E) /
Z, it estimates V / Z without bias.

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
"""The numbers of the pilot run's inverse temperatures, and of its transitions at each."""

SHARPNESS = 4.0
JITTER = 0.9
"""Step sizes are multiplied by uniform numbers from 0.1 to 1.9, so that no trajectory is periodic,
and chains leave steep places.
"""

Numbers = NDArray[np.float64]
Bounds = tuple[float, float]


def inverse_temperatures(place: Numbers) -> Numbers:
    """Return beta, 0 to 1, at places from 0 to 1.

    The schedule is the sigmoidal one of Grosse et al. (2015) with delta = 4.
    """
    highest = np.tanh(SHARPNESS / 2)
    beta: Numbers = np.tanh(SHARPNESS * (place - 0.5)) / highest
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
        grad_energy: returns E and dE/dx.
        bounds: of each pixel.
        temperatures: T.
        leapfrog: steps of a transition; 1: the Metropolis-adjusted Langevin algorithm (MALA).
    """

    def __init__(
        self, grad_energy: GradEnergy, bounds: Bounds, *, temperatures: int, leapfrog: int
    ) -> None:
        self.grad_energy = grad_energy
        self.bounds = bounds
        self.leapfrog = leapfrog
        self.passes = 0
        """Images that passed forward and backward through the network."""
        self.places = np.linspace(0, 1, temperatures + 1)
        low, high = bounds
        self.steps = np.full(temperatures + 1, high - low)
        """The step size at each beta."""

    def adapt(self, x: Float[Tensor, "B C H W"], generator: Generator) -> None:
        """Set the step sizes by a pilot run from uniform starts.

        Nothing else uses the chains of the pilot run.
        """
        chains = self._at(x)
        longest = float(self.steps[0])
        step = longest
        places = np.linspace(0, 1, PILOT)
        betas = inverse_temperatures(places).tolist()
        log_steps = []
        for beta in progress.track(betas, "pilot run", "temperatures"):
            for _ in range(TRIES):
                chains, acceptance = self.transition(chains, beta, step, generator)
                step = min(step * math.exp(acceptance - ACCEPTANCE), longest)
            log_steps.append(math.log(step))
        self.steps = np.exp(np.interp(self.places, places, log_steps))

    def equilibrate(
        self, x: Float[Tensor, "B C H W"], generator: Generator
    ) -> Float[Tensor, "B C H W"]:
        """Return the ends of chains of T transitions on E itself."""
        chains = self._at(x)
        count = len(self.places) - 1
        step = self.steps[-1]
        for _ in progress.track(range(count), "long chains", "transitions"):
            chains, _ = self.transition(chains, 1.0, step, generator)
        return chains.x

    def run(
        self, x: Float[Tensor, "B C H W"], generator: Generator, *, reverse: bool = False
    ) -> tuple[Tensor, float]:
        """Anneal chains from uniform starts to exp(-E), or back with ``reverse``.

        Returns:
            the log weights in float64, whose exp has the mean Z / V, or V / Z in reverse; and the
            mean acceptance rate.
        """
        betas = inverse_temperatures(self.places)
        path = list(zip(betas, self.steps, strict=True))
        if reverse:
            path.reverse()
        chains = self._at(x)
        rates = list[float]()
        log_weights = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        moves = progress.track(list(pairwise(path)), "annealing", "temperatures")
        for (beta, _), (next_beta, step) in moves:
            log_weights -= (next_beta - beta) * chains.energy.double()
            if 0 < next_beta < 1:
                chains, rate = self.transition(chains, next_beta, step, generator)
                rates.append(rate)
        acceptance = sum(rates) / max(1, len(rates))
        return log_weights.cpu(), acceptance

    def transition(
        self, chains: Chains, beta: float, step: float, generator: Generator
    ) -> tuple[Chains, float]:
        """Move chains by a trajectory on beta E.

        Returns the chains and the mean probability of acceptance.

        A trajectory whose energy is not finite is rejected.
        """
        x, _, grad = chains
        device = generator.device
        jitter = 1 + JITTER * (2 * _uniform(x, generator) - 1)
        size = (step * jitter)[:, None, None, None]
        start = torch.randn(x.shape, generator=generator, device=device).to(x)
        momentum = start - 0.5 * beta * size * grad
        for left in reversed(range(self.leapfrog)):
            x, momentum = reflected(x + size * momentum, momentum, self.bounds)
            _, energy, grad = self._at(x)
            momentum = momentum - (1.0 if left else 0.5) * beta * size * grad
        squared = start.square() - momentum.square()
        released = squared.flatten(1).double().sum(1) / 2
        gained = beta * (chains.energy - energy).double() + released
        ratio = gained.clamp(max=0).exp().nan_to_num(0.0)
        accepted = _uniform(x, generator) < ratio
        moved = Chains(x, energy, grad)
        kept = []
        for new, old in zip(moved, chains, strict=True):
            is_new = accepted.view(-1, *(1,) * (new.ndim - 1))
            kept.append(torch.where(is_new, new, old))
        return Chains(*kept), float(ratio.mean())

    def _at(self, x: Tensor) -> Chains:
        self.passes += len(x)
        return Chains(x, *self.grad_energy(x, None))


def _uniform(x: Tensor, generator: Generator) -> Tensor:
    """Return a uniform number for each chain."""
    uniform = torch.rand(len(x), generator=generator, device=generator.device)
    return uniform.to(x)


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
    folded = torch.where(turned, 1 - within, within)
    direction = torch.where(turned, -momentum, momentum)
    return low + (high - low) * folded, direction
