"""What the checks of samplers begin with: the sampler, newly made, and energies known exactly.

Legend: n chains, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from jembench.catalog.registry import Resolved
from jembench.interfaces import ChainState, DataSpec, GradEnergy, NeedsTrainingData, Sampler, Split
from jembench.testing.asking import known_randomness, require, same
from jembench.testing.checks import DoesNotApply

CHAINS = 6
STEPS = 3
"""Moved in most checks; ``goes-downhill`` moves on until it is there."""

GENTLE = 1e-3
"""The steepness of the bowl where it does not matter: no sampler falls out of it, however large its steps."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A sampler of some spec, for some data."""

    resolved: Resolved
    data: DataSpec
    train: Split

    def make(self) -> Sampler:
        """The sampler, newly made, and informed if it wants to be.

        Raises:
            DoesNotApply: if it is no sampler at all.
        """
        sampler: Sampler = self.resolved.make(self.data)
        if not isinstance(sampler, Sampler):
            raise DoesNotApply("It lacks parts of a sampler: see the check all-parts.")
        if isinstance(sampler, NeedsTrainingData):
            sampler.inform(copied(self.train))
        return sampler

    @property
    def labels(self) -> Tensor | None:
        """Of chains on E(x, y); None if there are no classes."""
        return torch.arange(CHAINS).flip(0) % self.data.num_classes if self.data.num_classes else None

    @property
    def kinds(self) -> list[Tensor | None]:
        """The labels of chains on E(x), and of those on E(x, y) if there are classes."""
        return [None] if self.labels is None else [None, self.labels]

    def bowl(self, steepness: float = GENTLE) -> GradEnergy:
        """E(x) = c |x - m|^2 / 2 around three quarters of the pixels' range, and for E(x, y) around a place of y's."""
        low, high = self.data.bounds

        def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
            place = 0.75 if y is None else ((y + 1) / (self.data.num_classes + 1)).view(-1, 1, 1, 1)
            away = x.detach() - (low + place * (high - low))
            return steepness / 2 * away.square().flatten(1).sum(1), steepness * away

        return evaluate

    def life(self) -> list[Any]:
        """All that two iterations of a new sampler show."""
        sampler = self.make()
        ends = [iteration(self, sampler, self.labels, number) for number in (0, 1)]
        return [ends, sampler.kept(), sampler.start(CHAINS, generator=seeded())]

    @property
    def is_deterministic(self) -> bool:
        """Whether equal generators give equal chains, the global ones being as they were too."""
        with known_randomness():
            first = self.life()
        with known_randomness():
            return same(first, self.life())

    def require_deterministic(self) -> None:
        """What is not the same twice cannot be compared.

        Raises:
            DoesNotApply: if the sampler is not.
        """
        if not self.is_deterministic:
            raise DoesNotApply("It is another one each time: see the check same-generator.")


def flat(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """E(x) = 0 everywhere."""
    return torch.zeros(len(x)), torch.zeros_like(x)


def seeded(seed: int = 0) -> Generator:
    """A generator to be handed in."""
    return Generator().manual_seed(seed)


def move(sampler: Sampler, state: ChainState, grad_energy: GradEnergy, seed: int = 1, steps: int = STEPS) -> ChainState:
    """Where the chains are after so many steps."""
    generator = seeded(seed)
    for _ in range(steps):
        state, _ = sampler.step(state, grad_energy, generator)
    return state


def iteration(subject: Subject, sampler: Sampler, y: Tensor | None, seed: int = 0) -> ChainState:
    """What training does: the chains are begun or gone on with, moved, and finished."""
    state = move(sampler, sampler.init(CHAINS, y, generator=seeded(seed)), subject.bowl(), seed + 1)
    sampler.finish(state)
    return state


def copied(values: Any) -> Any:
    """The same with tensors of its own."""
    if isinstance(values, Mapping):
        return {name: copied(value) for name, value in values.items()}
    if isinstance(values, ChainState | Split):
        return type(values)(*map(copied, values))
    return values.detach().clone() if isinstance(values, Tensor) else values


def alike(image: Tensor, images: Tensor) -> Tensor:
    """Which of many images are this one: bool (n,)."""
    return (images == image).flatten(1).all(dim=1)


def require_images(x: Tensor, shape: tuple[int, ...], who: str) -> None:
    """Fail the check unless ``x`` is float32 of that shape, on the CPU."""
    require(
        isinstance(x, Tensor) and x.dtype == torch.float32 and x.shape == shape and x.device.type == "cpu",
        f"{who} gives {described(x)}; it must be torch.float32 {shape} on the generator's device.",
    )


def described(x: Any) -> str:
    """What a value is, in an error."""
    return f"{x.dtype} {tuple(x.shape)} on {x.device}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
