"""The only loop over sampling steps."""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator, Tensor

from jembench import progress
from jembench.errors import NotApplicable
from jembench.interfaces import ChainState, GradEnergy, Sampler


def require_chains(sampler: Sampler | None) -> Sampler:
    """The sampler of a model's chains.

    Raises:
        NotApplicable: if the model has none.
    """
    if sampler is None:
        raise NotApplicable("The model is trained without chains, so there is none to refine an image by.")
    return sampler


def run(
    sampler: Sampler, state: ChainState, grad_energy: GradEnergy, generator: Generator, steps: int | None = None
) -> ChainState:
    """Move chains by ``steps`` (the sampler's own number if None). The sampler's memory stays as it is."""
    for _ in progress.track(range(sampler.steps if steps is None else steps), "sampling", "steps"):
        state, _ = sampler.step(state, grad_energy, generator)
    return state


Run = Callable[[Sampler, ChainState, GradEnergy, Generator, int | None], ChainState]
"""What moves chains: :func:`run`, or what does the same as one CUDA graph."""


def draw(
    sampler: Sampler,
    n: int,
    grad_energy: GradEnergy,
    generator: Generator,
    y: Tensor | None = None,
    steps: int | None = None,
    run: Run = run,
) -> ChainState:
    """Start n chains, run them and let the sampler keep their ends: one training iteration's negatives."""
    state = run(sampler, sampler.init(n, y, generator=generator), grad_energy, generator, steps)
    sampler.finish(state)
    return state
