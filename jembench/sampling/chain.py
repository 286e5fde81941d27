"""The only loop over sampling steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Generator, Tensor, nn

from jembench.interfaces import ChainState, GradEnergy, Sampler


def run(
    sampler: Sampler, state: ChainState, grad_energy: GradEnergy, generator: Generator, steps: int | None = None
) -> ChainState:
    """Move chains by ``steps`` (the sampler's own number if None). The sampler's memory stays as it is."""
    for _ in range(sampler.steps if steps is None else steps):
        state, _ = sampler.step(state, grad_energy, generator)
    return state


def draw(
    sampler: Sampler, n: int, grad_energy: GradEnergy, generator: Generator, y: Tensor | None = None
) -> ChainState:
    """Start n chains, run them and let the sampler keep their ends: one training iteration's negatives."""
    state = run(sampler, sampler.init(n, y, generator=generator), grad_energy, generator)
    sampler.finish(state)
    return state


@contextmanager
def mode(model: nn.Module, *, train: bool) -> Iterator[None]:
    """Put every module into training or evaluation mode, and each back into its own afterwards."""
    before = {module: module.training for module in model.modules()}
    model.train(train)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
