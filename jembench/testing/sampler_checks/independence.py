"""Checks of each chain being a chain of its own, and of what a step tells of it.

Legend: n chains, C channels, H height, W width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jembench.interfaces import GradEnergy, StepInfo
from jembench.testing.asking import known_randomness, promises, require, same
from jembench.testing.checks import DoesNotApply
from jembench.testing.sampler_checks.subject import CHAINS, GENTLE, Subject, alike, flat, move, seeded

BOWLS = (GENTLE, 1.0)
"""Steepnesses: on the one large steps are not rejected, on the other small ones are seen."""

STEEPER = 1e4
"""How much more so for the one chain that might disturb the others: a limit to all gradients together is passed."""

ROUNDING = 1e-5
"""Relative to the range of pixels, or to the largest of the values."""

FLAT_STEPS = 10


def chains_do_not_disturb_each_other(subject: Subject) -> None:
    """Another gradient of one chain leaves the step of all others as it is."""
    subject.require_deterministic()
    low, high = subject.data.bounds
    for y in subject.kinds:
        for bowl in map(subject.bowl, BOWLS):
            alone, disturbed = (_after_a_step(subject, y, bowl, factor) for factor in (1, STEEPER))
            if not disturbed.reached:
                raise DoesNotApply("It asks about parts of the chains that do not show which chain is the first.")
            if not same(alone.generator, disturbed.generator):
                raise DoesNotApply("How much a step draws from the generator depends on the gradients.")
            require(
                torch.allclose(alone.others, disturbed.others, rtol=0, atol=ROUNDING * (high - low), equal_nan=True),
                f"With a gradient of the first chain that is {STEEPER:g} times as large, the same random numbers move "
                "other chains elsewhere: where a chain goes depends on the batch that it is in. Compute norms, means "
                "and limits for each image alone: grad.flatten(1).norm(dim=1). Where chains are meant to interact, "
                "declare it.",
            )


class _Step(NamedTuple):
    others: Tensor  # (n - 1, C, H, W): all chains but the first
    generator: Tensor  # its state
    reached: bool  # whether the first chain had a gradient of its own


def _after_a_step(subject: Subject, y: Tensor | None, bowl: GradEnergy, factor: float) -> _Step:
    sampler, generator = subject.make(), seeded(1)
    with known_randomness():
        begun = sampler.init(CHAINS, y, generator=seeded())
        grad_energy = _SteeperForTheFirst(bowl, factor, begun.x.clone())
        moved, _ = sampler.step(begun, grad_energy, generator)
    return _Step(moved.x[1:].detach(), generator.get_state(), grad_energy.reached)


class _SteeperForTheFirst:
    """A ``grad_energy`` that is steeper for the first chain.

    In a part of the chains, that is the one with the image that it alone began with.
    """

    def __init__(self, bowl: GradEnergy, factor: float, begun: Tensor) -> None:
        self.bowl, self.factor, self.begun = bowl, factor, begun
        self.reached = False

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        energy, grad = self.bowl(x, y)
        first = self._is_first(x)
        energy[first] *= self.factor
        grad[first] *= self.factor
        self.reached |= bool(first.any())
        return energy, grad

    def _is_first(self, x: Tensor) -> Tensor:
        if len(x) == CHAINS:
            return torch.arange(CHAINS) == 0
        alone = alike(self.begun[0], self.begun).sum() == 1
        return alike(self.begun[0], x) & alone


def each_chain_has_its_own_noise(subject: Subject) -> None:
    """Equal chains part where the energy is flat, if chance moves them at all."""
    ends = []
    for seed in (1, 2):
        sampler = subject.make()
        begun = sampler.init(CHAINS, generator=seeded())
        equal = begun._replace(x=begun.x[:1].expand_as(begun.x).clone())
        ends.append(move(sampler, equal, flat, seed, FLAT_STEPS).x.detach())
    if same(*ends):
        raise DoesNotApply("Where the energy is flat, its chains stay or go the same way under every generator.")
    require(
        any(bool((x != x[:1]).any()) for x in ends),
        f"Started from equal images, all chains are equal after {FLAT_STEPS} steps where the energy is flat, and "
        "elsewhere under another generator: they share their noise, and are one chain. Draw it in the shape of all "
        "images: torch.randn(x.shape, generator=generator).",
    )


def tells_where_it_came_from(subject: Subject) -> None:
    """StepInfo has the energies and gradients of the images that a step sets out from, not of those at its end."""
    for y in subject.kinds:
        sampler, bowl = subject.make(), _Recorded(subject.bowl(BOWLS[-1]))
        begun = sampler.init(CHAINS, y, generator=seeded())
        bowl(begun.x.clone(), begun.y)
        _, info = sampler.step(begun, bowl, seeded())
        set_out = bowl.of_all_chains()[:2]  # before, and the first that is asked: some add their noise before they ask
        if len(set_out) < 2 or not all(answer.energy.shape == info.energy.shape for answer in set_out):
            raise DoesNotApply("See the checks asks-grad-energy and step-keeps-shapes.")
        require(
            any(_close(info, answer) for answer in set_out),
            "StepInfo is not what grad_energy says of the images that the step sets out from: a diagnostic would read "
            "it as theirs. Give StepInfo(energy, grad) as they were before the move, neither clipped nor scaled.",
        )


class _Recorded:
    """A ``grad_energy`` that remembers its answers."""

    def __init__(self, grad_energy: GradEnergy) -> None:
        self.grad_energy = grad_energy
        self.answers: list[StepInfo] = []

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        energy, grad = self.grad_energy(x, y)
        self.answers.append(StepInfo(energy.clone(), grad.flatten(1).clone()))
        return energy, grad

    def of_all_chains(self) -> list[StepInfo]:
        """The answers, those about parts of the chains put together; gradients are (n, C H W)."""
        together = (torch.split(torch.cat(values), CHAINS) for values in zip(*self.answers, strict=True))
        return [StepInfo(*values) for values in zip(*together, strict=True)]


def _close(found: StepInfo, expected: StepInfo) -> bool:
    return all(
        torch.allclose(a.detach(), b, rtol=0, atol=ROUNDING * float(b.abs().max()))
        for a, b in zip((found.energy, found.grad.flatten(1)), expected, strict=True)
    )


PROMISES = promises(chains_do_not_disturb_each_other, each_chain_has_its_own_noise, tells_where_it_came_from)
"""What chains promise one another."""
