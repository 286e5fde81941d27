"""The loop over sampling steps, which training and metrics share."""

import torch
from torch import Generator, Tensor

from jembench import progress
from jembench.catalog.registry import Resolved
from jembench.errors import NotApplicable
from jembench.interfaces import ChainState, DataSpec, GradEnergy, Sampler, Split
from jembench.models.memory import check_memory


def make(named: Resolved, data: DataSpec, train: Split) -> Sampler:
    """Make a sampler and give it the training images.

    Raises:
        SpecError: if it does not fit into the memory.
    """
    check_memory(lambda: named.make(data), f"The sampler {named}", torch.device("cpu"))
    sampler: Sampler = named.make(data)
    if hasattr(sampler, "inform"):
        sampler.inform(train)
    return sampler


def require_chains(sampler: Sampler | None) -> Sampler:
    """Return the sampler of a model's chains.

    Raises:
        NotApplicable: if the model is trained without chains.
    """
    if sampler is None:
        raise NotApplicable(
            "Refinement continues the chains of the training, and this model was trained without "
            "chains."
        )
    return sampler


def run(
    sampler: Sampler,
    state: ChainState,
    grad_energy: GradEnergy,
    generator: Generator,
    steps: int | None = None,
) -> ChainState:
    """Move chains by ``steps``; None: the sampler's own number.

    The sampler's buffer is unchanged.
    """
    if steps is None:
        steps = sampler.steps
    for _ in progress.track(range(steps), "sampling", "steps"):
        state = sampler.step(state, grad_energy, generator)
    return state


def draw(
    sampler: Sampler,
    n: int,
    grad_energy: GradEnergy,
    generator: Generator,
    y: Tensor | None = None,
    steps: int | None = None,
) -> ChainState:
    """Start n chains, run them and let the sampler keep their ends, as in a training iteration."""
    state = sampler.init(n, y, generator=generator)
    state = run(sampler, state, grad_energy, generator, steps)
    sampler.finish(state)
    return state
