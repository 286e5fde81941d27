"""A sampler under test, and energies in closed form.

Legend: n chains, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from jembench.interfaces import ChainState, GradEnergy, NeedsTrainingData, Sampler, Split
from jembench.testing.checks import Subject, only_if, require
from jembench.testing.comparing import known_randomness, same
from jembench.testing.exact import drawn_images

CHAINS = 6
STEPS = 3
"""The number of steps in most checks."""

GENTLE = 1e-3
"""A steepness at which no sampler leaves the bowl, however large its steps are."""


@dataclass(frozen=True)
class SamplerSubject(Subject):
    """The sampler of a spec for some data."""

    kind = "samplers"
    protocol = Sampler
    parts = ("steps", "start", "init", "step", "finish", "kept", "state_dict", "load_state_dict")

    @cached_property
    def train(self) -> Split:
        """Training images."""
        return drawn_images(self.data).split("train")

    def make(self) -> Any:
        """A new sampler, with training images if it needs them."""
        sampler = super().make()
        if isinstance(sampler, NeedsTrainingData):
            sampler.inform(copied(self.train))
        return sampler

    @property
    def labels(self) -> Tensor | None:
        """Labels of chains on E(x, y); None if there are no classes."""
        return torch.arange(CHAINS).flip(0) % self.data.num_classes if self.data.num_classes else None

    @property
    def kinds(self) -> list[Tensor | None]:
        """The labels of chains on E(x), and on E(x, y) if there are classes."""
        return [None] if self.labels is None else [None, self.labels]

    def bowl(self, steepness: float = GENTLE) -> GradEnergy:
        """E(x) = c |x - m|^2 / 2 with m at three quarters of the pixels' range; in E(x, y) m depends on y."""
        low, high = self.data.bounds

        def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
            place = 0.75 if y is None else ((y + 1) / (self.data.num_classes + 1)).view(-1, 1, 1, 1)
            away = x.detach() - (low + place * (high - low))
            return steepness / 2 * away.square().flatten(1).sum(1), steepness * away

        return evaluate

    def iteration(self, sampler: Sampler, y: Tensor | None, seed: int = 0) -> ChainState:
        """Run a training iteration, with the same global randomness each time."""
        with known_randomness():
            return self._iteration(sampler, y, seed)

    def _iteration(self, sampler: Sampler, y: Tensor | None, seed: int) -> ChainState:
        state = move(sampler, sampler.init(CHAINS, y, generator=seeded(seed)), self.bowl(), seed + 1)
        sampler.finish(state)
        return state

    def live(self) -> list[Any]:
        """Everything that two iterations of a new sampler show."""
        sampler = self.make()
        ends = [self._iteration(sampler, self.labels, number) for number in (0, 1)]
        return [ends, sampler.kept(), sampler.start(CHAINS, generator=seeded())]

    @property
    def is_deterministic(self) -> bool:
        """Whether equal generators give equal chains, with equal global generators."""
        lives = []
        for _ in range(2):
            with known_randomness():
                lives.append(self.live())
        return same(*lives)

    def require_deterministic(self) -> None:
        """Skip the check for a sampler that differs each time."""
        only_if(self.is_deterministic, "It differs each time: see the check same-generator.")


def flat(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """E(x) = 0 everywhere."""
    return torch.zeros(len(x)), torch.zeros_like(x)


def seeded(seed: int = 0) -> Generator:
    """A generator to pass in."""
    return Generator().manual_seed(seed)


def move(sampler: Sampler, state: ChainState, grad_energy: GradEnergy, seed: int = 1, steps: int = STEPS) -> ChainState:
    """The chains after some steps."""
    generator = seeded(seed)
    for _ in range(steps):
        state, _ = sampler.step(state, grad_energy, generator)
    return state


def copied(values: Any) -> Any:
    """The same with new tensors."""
    if isinstance(values, Mapping):
        return {name: copied(value) for name, value in values.items()}
    if isinstance(values, ChainState | Split):
        return type(values)(*map(copied, values))
    return values.detach().clone() if isinstance(values, Tensor) else values


def alike(image: Tensor, images: Tensor) -> Tensor:
    """Which of many images equal this one: bool (n,)."""
    return (images == image).flatten(1).all(dim=1)


def require_images(x: Tensor, shape: tuple[int, ...], name: str) -> None:
    """Fail the check unless ``x`` is float32 of that shape, on the CPU."""
    right = isinstance(x, Tensor) and x.dtype == torch.float32 and x.shape == shape and x.device.type == "cpu"
    require(right, f"{name} gives {described(x)}; it must be torch.float32 {shape} on the generator's device.")


def described(x: Any) -> str:
    """What a value is, in a message."""
    return f"{x.dtype} {tuple(x.shape)} on {x.device}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
