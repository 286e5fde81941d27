"""Each chain is a chain of its own, and its random numbers come from the generator alone.

Legend: n chains, C channels, H height, W width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jembench.interfaces import GradEnergy, Sampler, StepInfo
from jembench.testing.checks import only_if, promise, require
from jembench.testing.comparing import known_randomness, same, untouched_randomness
from jembench.testing.samplers.subject import CHAINS, GENTLE, SamplerSubject, alike, flat, move, seeded

BOWLS = (GENTLE, 1.0)
"""Steepnesses: in the first large steps are not rejected, in the other small ones are seen."""

STEEPER = 1e4
"""The factor of the first chain's gradient: a limit to all gradients together is exceeded."""

ROUNDING = 1e-5
"""Relative to the range of pixels, or to the largest of the values."""

FLAT_STEPS = 10


@promise("samplers")
def chains_do_not_disturb_each_other(subject: SamplerSubject) -> None:
    """Another gradient of one chain leaves the step of all others as it is.

    Compute norms, means and limits for each image alone: grad.flatten(1).norm(dim=1). Where chains are meant to
    interact, declare it.
    """
    subject.require_deterministic()
    low, high = subject.data.bounds
    for y in subject.kinds:
        for bowl in map(subject.bowl, BOWLS):
            alone, disturbed = (_after_a_step(subject, y, bowl, factor) for factor in (1, STEEPER))
            only_if(disturbed.reached, "It asks about parts of the chains that do not show which chain is the first.")
            drawn_alike = same(alone.generator, disturbed.generator)
            only_if(drawn_alike, "How much a step draws from the generator depends on the gradients.")
            limit = ROUNDING * (high - low)
            undisturbed = torch.allclose(alone.others, disturbed.others, rtol=0, atol=limit, equal_nan=True)
            found = f"With {STEEPER:g} times the gradient of the first chain, other chains move elsewhere."
            require(undisturbed, found)


class _Step(NamedTuple):
    others: Tensor  # (n - 1, C, H, W): all chains but the first
    generator: Tensor  # its state
    reached: bool  # whether the first chain had a gradient of its own


def _after_a_step(subject: SamplerSubject, y: Tensor | None, bowl: GradEnergy, factor: float) -> _Step:
    """A step in a bowl that is steeper for the first chain; in a part of the chains, for the one with its image."""
    sampler, generator, reached = subject.make(), seeded(1), False

    def grad_energy(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        nonlocal reached
        energy, grad = bowl(x, y)
        first = torch.arange(CHAINS) == 0 if len(x) == CHAINS else alike(start[0], x) & known
        energy[first] *= factor
        grad[first] *= factor
        reached |= bool(first.any())
        return energy, grad

    with known_randomness():
        begun = sampler.init(CHAINS, y, generator=seeded())
        start = begun.x.clone()
        known = alike(start[0], start).sum() == 1  # by its image
        moved, _ = sampler.step(begun, grad_energy, generator)
    return _Step(moved.x[1:].detach(), generator.get_state(), reached)


@promise("samplers")
def each_chain_has_its_own_noise(subject: SamplerSubject) -> None:
    """Equal chains part where the energy is flat, if they move at random at all.

    Chains that share their noise are one chain. Draw it in the shape of all images: torch.randn(x.shape,
    generator=generator).
    """
    ends = []
    for seed in (1, 2):
        sampler = subject.make()
        begun = sampler.init(CHAINS, generator=seeded())
        equal = begun._replace(x=begun.x[:1].expand_as(begun.x).clone())
        ends.append(move(sampler, equal, flat, seed, FLAT_STEPS).x.detach())
    only_if(not same(*ends), "Where the energy is flat, its chains stay or go the same way under every generator.")
    found = f"Started from equal images, all chains are equal after {FLAT_STEPS} steps where the energy is flat."
    require(any(bool((x != x[:1]).any()) for x in ends), found)


@promise("samplers")
def step_info_describes_the_start(subject: SamplerSubject) -> None:
    """StepInfo has the energies and gradients of the images that a step sets out from, not of those at its end.

    Give StepInfo(energy, grad) as they were before the move, neither clipped nor scaled: diagnostics read them.
    """
    bowl = subject.bowl(BOWLS[-1])
    answers: list[StepInfo] = []

    def grad_energy(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        energy, grad = bowl(x, y)
        answers.append(StepInfo(energy.clone(), grad.flatten(1).clone()))
        return energy, grad

    for y in subject.kinds:
        answers.clear()
        sampler = subject.make()
        begun = sampler.init(CHAINS, y, generator=seeded())
        grad_energy(begun.x.clone(), begun.y)
        _, info = sampler.step(begun, grad_energy, seeded())
        first = _of_all_chains(answers)[:2]  # before the step, and its first call: some samplers add their noise before
        fit = len(first) == 2 and all(answer.energy.shape == info.energy.shape for answer in first)
        only_if(fit, "See the checks asks-grad-energy and step-keeps-shapes.")
        right = any(_close(info, answer) for answer in first)
        require(right, "StepInfo is not what grad_energy says of the images that the step sets out from.")


def _of_all_chains(answers: list[StepInfo]) -> list[StepInfo]:
    """The answers, with those for parts of the chains put together; gradients are (n, C H W)."""
    together = (torch.split(torch.cat(values), CHAINS) for values in zip(*answers, strict=True))
    return [StepInfo(*values) for values in zip(*together, strict=True)]


def _close(found: StepInfo, expected: StepInfo) -> bool:
    return all(
        torch.allclose(a.detach(), b, rtol=0, atol=ROUNDING * float(b.abs().max()))
        for a, b in zip((found.energy, found.grad.flatten(1)), expected, strict=True)
    )


@promise("samplers")
def same_generator(subject: SamplerSubject) -> None:
    """Equal generators give equal chains, bit for bit.

    Draw every random number from the generator that is passed in.
    """
    require(subject.is_deterministic, "Equal generators give different chains.")


@promise("samplers")
def other_generator(subject: SamplerSubject) -> None:
    """Other generators start other chains.

    Draw from the generator that is passed in. Where chains are meant to begin all the same, declare it.
    """
    starts = []
    for seed in (0, 1):
        with known_randomness():
            starts.append(subject.make().start(CHAINS, generator=seeded(seed)).x)
    require(not same(*starts), "Other generators start the same chains.")


@promise("samplers")
def global_randomness(subject: SamplerSubject) -> None:
    """The global generators of random numbers are left alone."""
    with untouched_randomness("The sampler"):
        subject.live()


@promise("samplers")
def looking(subject: SamplerSubject) -> None:
    """Looking at a sampler does not change its next chains.

    kept, state_dict and start must leave no trace: diagnostics call them.
    """
    subject.require_deterministic()
    ends = []
    for look in (False, True):
        sampler: Sampler = subject.make()
        for number in (0, 1):
            if look:
                _ = sampler.kept(), sampler.state_dict(), sampler.start(CHAINS, subject.labels, generator=seeded(7))
            ends.append(subject.iteration(sampler, subject.labels, number))
    require(same(ends[:2], ends[2:]), "kept, state_dict or start changes what the next init gives.")
