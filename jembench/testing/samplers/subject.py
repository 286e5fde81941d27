"""A sampler under test, and energies in closed form.

Legend: n chains, C channels, H height, W width, K classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from jembench.interfaces import ChainState, GradEnergy, Sampler, Split
from jembench.testing.checks import Subject, is_count, only_if, require
from jembench.testing.comparing import known_randomness, same
from jembench.testing.exact import drawn_images

CHAINS = 6
STEPS = 3
"""The number of steps in most checks."""

GENTLE = 1e-3
"""A steepness at which no sampler diverges, however large its steps are."""


@dataclass(frozen=True)
class SamplerSubject(Subject):
    """The sampler of a spec for some data."""

    kind = "samplers"
    parts = ("steps", "start", "init", "step", "finish", "kept", "state_dict", "load_state_dict")

    @cached_property
    def train(self) -> Split:
        """Training images."""
        return drawn_images(self.data).split("train")

    def build(self) -> Any:
        """Make a sampler, with training images if it needs them."""
        sampler = super().build()
        require(
            is_count(sampler.steps, 0),
            f"steps is {sampler.steps!r}; it must be a whole number, 0 or more.",
        )
        if hasattr(sampler, "inform"):
            sampler.inform(copy_tensors(self.train))
        return sampler

    @property
    def labels(self) -> Tensor | None:
        """Labels of chains on E(x, y); None if there are no classes."""
        if not self.data.num_classes:
            return None
        return torch.arange(CHAINS).flip(0) % self.data.num_classes

    @property
    def kinds(self) -> list[Tensor | None]:
        """None for chains on E(x), and the labels of chains on E(x, y)."""
        return [None] if self.labels is None else [None, self.labels]

    def bowl(self, steepness: float = GENTLE) -> GradEnergy:
        """Return a function to E(x) = c |x - m|^2 / 2 and its gradient.

        m is at three quarters of the pixels' range; in E(x, y) it depends on y.
        """
        low, high = self.data.bounds

        def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
            place = 0.75 if y is None else ((y + 1) / (self.data.num_classes + 1)).view(-1, 1, 1, 1)
            away = x.detach() - (low + place * (high - low))
            return steepness / 2 * away.square().flatten(1).sum(1), steepness * away

        return evaluate

    def iterate(self, sampler: Sampler, y: Tensor | None, seed: int = 0) -> ChainState:
        """Run a training iteration with seeded global generators."""
        with known_randomness():
            begun = sampler.init(CHAINS, y, generator=seeded(seed))
            state = move(sampler, begun, self.bowl(), seed + 1)
            sampler.finish(state)
        return state

    @property
    def is_deterministic(self) -> bool:
        """True if equal generators give equal chains, with equal global generators."""
        runs = []
        for _ in range(2):
            with known_randomness():
                sampler = self.build()
                ends = [self.iterate(sampler, self.labels, number) for number in (0, 1)]
                runs.append([ends, sampler.kept(), sampler.start(CHAINS, generator=seeded())])
        return same(*runs)

    def require_deterministic(self) -> None:
        """Skip the check for a sampler that is not deterministic."""
        only_if(
            self.is_deterministic, "It is not deterministic: see the check randomness-by-generator."
        )


def seeded(seed: int = 0) -> Generator:
    """Return a seeded generator."""
    return Generator().manual_seed(seed)


def move(
    sampler: Sampler, state: ChainState, grad_energy: GradEnergy, seed: int = 1, steps: int = STEPS
) -> ChainState:
    """Move chains by some steps."""
    generator = seeded(seed)
    for _ in range(steps):
        state = sampler.step(state, grad_energy, generator)
    return state


def copy_tensors(values: Any) -> Any:
    """Copy values with all their tensors."""
    if isinstance(values, Mapping):
        return {name: copy_tensors(value) for name, value in values.items()}
    if isinstance(values, ChainState | Split):
        return type(values)(*map(copy_tensors, values))
    return values.detach().clone() if isinstance(values, Tensor) else values


def require_tensor(x: Any, shape: tuple[int, ...], name: str) -> None:
    """Fail the check unless ``x`` is float32 of a shape, and detached."""
    form, right = f"a {type(x).__name__}", False
    if isinstance(x, Tensor):
        form = f"{x.dtype} {tuple(x.shape)} on {x.device}"
        right = x.dtype == torch.float32 and x.shape == shape and x.device.type == "cpu"
    require(
        right, f"{name} returns {form}; it must be torch.float32 {shape} on the generator's device."
    )
    require(
        not x.requires_grad, f"The result of {name} requires gradients. Work on detached tensors."
    )
