"""Promises of a sampler's randomness.

Chains are independent, and random numbers come only from the generator.

Legend: n chains, C channels, H height, W width.
"""

import torch
from torch import Tensor

from jembench.interfaces import Sampler
from jembench.testing.checks import only_if, promise, require
from jembench.testing.comparing import known_randomness, same, untouched_randomness
from jembench.testing.samplers.subject import CHAINS, GENTLE, SamplerSubject, seeded

BOWLS = (GENTLE, 1.0)
"""Steepnesses: at the first no large step is rejected, at the second small steps show."""

STEEPER = 1e4
"""The factor of the first chain's gradient, which exceeds any limit on the gradients of a batch."""

ROUNDING = 1e-5
"""The largest error of a pixel by rounding, relative to the range of pixels."""


@promise("samplers")
def chains_do_not_disturb_each_other(subject: SamplerSubject) -> None:
    """The gradient of one chain does not change the step of the others.

    Compute norms, means and limits for each image separately: grad.flatten(1).norm(dim=1).
    """
    subject.require_deterministic()
    low, high = subject.data.bounds
    for y in subject.kinds:
        for steepness in BOWLS:
            alone, drawn = _step(subject, y, steepness, 1)
            disturbed, drawn_too = _step(subject, y, steepness, STEEPER)
            only_if(
                same(drawn, drawn_too),
                "The number of random numbers of a step depends on the gradients.",
            )
            limit = ROUNDING * (high - low)
            undisturbed = torch.allclose(alone, disturbed, rtol=0, atol=limit, equal_nan=True)
            require(
                undisturbed,
                f"With {STEEPER:g} times the gradient of the first chain, other chains move "
                "differently.",
            )


def _step(
    subject: SamplerSubject, y: Tensor | None, steepness: float, factor: float
) -> tuple[Tensor, Tensor]:
    """Step in a bowl that is steeper for the first chain.

    Returns the other chains and the generator's state.
    """
    sampler, generator, bowl = subject.build(), seeded(1), subject.bowl(steepness)

    def grad_energy(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        only_if(
            len(x) == CHAINS,
            "It evaluates parts of the chains, in which the first chain cannot be recognised.",
        )
        energy, grad = bowl(x, y)
        energy[0] *= factor
        grad[0] *= factor
        return energy, grad

    with known_randomness():
        begun = sampler.init(CHAINS, y, generator=seeded())
        moved = sampler.step(begun, grad_energy, generator)
    return moved.x[1:].detach(), generator.get_state()


@promise("samplers")
def randomness_by_generator(subject: SamplerSubject) -> None:
    """Equal generators give equal chains, bit for bit; different generators, different starts.

    Draw every random number from the generator that is passed in.
    """
    require(subject.is_deterministic, "Equal generators give different chains.")
    with known_randomness():
        starts = [subject.build().start(CHAINS, generator=seeded(seed)).x for seed in (0, 1)]
    require(not same(*starts), "Different generators give the same starts.")


@promise("samplers")
def global_randomness(subject: SamplerSubject) -> None:
    """The global generators of random numbers are neither used nor seeded."""
    sampler = subject.build()
    with untouched_randomness("The sampler"):
        state = sampler.init(CHAINS, subject.labels, generator=seeded())
        state = sampler.step(state, subject.bowl(), seeded())
        sampler.finish(state)


@promise("samplers")
def inspection(subject: SamplerSubject) -> None:
    """Calls of kept, state_dict and start do not change the next chains.

    These methods must have no side effects: diagnostics call them.
    """
    subject.require_deterministic()
    ends = []
    for inspected in (False, True):
        sampler: Sampler = subject.build()
        for number in (0, 1):
            if inspected:
                _ = (
                    sampler.kept(),
                    sampler.state_dict(),
                    sampler.start(CHAINS, subject.labels, generator=seeded(7)),
                )
            ends.append(subject.iterate(sampler, subject.labels, number))
    require(same(ends[:2], ends[2:]), "kept, state_dict or start changes the next chains.")
