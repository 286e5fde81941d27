"""IGEBM's chains: noise before the gradient, one replay buffer for all classes.

Legend: B chains, N slots, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from jembench.interfaces import ChainState, DataSpec, GradEnergy
from jembench.parts import Langevin, PersistentChains, langevin_step

NO_CLASS = -1
"""The label of a slot with a chain on E(x)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFirst(Langevin):
    """SGLD that adds its noise before the gradient step.

    z = x + noise N(0, I), then x' = clamp(z - step_size clamp(dE/dz, -clip, clip), low, high).

    As in the code of Du & Mordatch (2019), the energy and gradient of a step are taken at z.
    """

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> ChainState:
        """Take one step with every chain."""
        x = state.x
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        z = x.add(noise, alpha=self.noise)
        _, grad = grad_energy(z, state.y)
        options = {"step_size": self.step_size, "clip": self.clip, "bounds": self.bounds}
        moved = langevin_step(z, grad, noise=0.0, generator=generator, **options)
        return state._replace(x=moved, steps=state.steps + 1)


def from_unit(
    bounds: tuple[float, float], *, steps: int, step_size: float, noise: float, clip: float
) -> NoiseFirst:
    """Return the update within ``bounds``, from constants for [0, 1].

    With u = (x - low) / s and s = high - low, dE/du = s dE/dx: a step of size a in u is a step of
    size a s^2 in x, and a gradient clipped at c in u is clipped at c / s in x.
    """
    span = bounds[1] - bounds[0]
    return NoiseFirst(
        steps=steps,
        step_size=step_size * span**2,
        noise=noise * span,
        clip=clip / span,
        bounds=bounds,
    )


class SharedBufferChains(PersistentChains):
    """Persistent chains that share one buffer and may change their class.

    A chain on E(x, y) starts from any slot of the buffer, as in the code of Du & Mordatch (2019):
    an image of one class can become a sample with another label, which teaches the energies to tell
    classes apart. Each slot keeps the last class of its chain.
    """

    def __init__(
        self, data: DataSpec, langevin: Langevin, *, buffer_size: int, reinit: float
    ) -> None:
        super().__init__(data, langevin, buffer_size=buffer_size, reinit=reinit)
        self.labels = torch.full((buffer_size,), NO_CLASS)

    def check_batch(self, n: int, *, conditional: bool) -> None:
        """Check that n chains of any classes can be drawn at once.

        Raises:
            SpecError: if the buffer has fewer chains.
        """
        super().check_batch(n, conditional=False)

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Draw n chains from the whole buffer, conditioned on y; restart some."""
        if y is not None and not self.filled:  # noise may have any class
            self.labels = torch.arange(self.capacity) % self.data.num_classes
        return super().init(n, generator=generator)._replace(y=y)

    def finish(self, state: ChainState) -> None:
        """Write the chains and their classes back into their slots."""
        super().finish(state)
        assert state.slots is not None
        self.labels = self.labels.to(state.slots.device)
        self.labels[state.slots] = NO_CLASS if state.y is None else state.y

    def kept(self) -> ChainState | None:
        """Return copies of chains, ages and last classes; None without any chain."""
        kept = super().kept()
        if kept is None or bool((self.labels == NO_CLASS).any()):
            return kept
        y = self.labels.to(kept.x.device, copy=True)
        return kept._replace(y=y)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the buffer, and the class of each slot."""
        return super().state_dict() | {"labels": self.labels}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a buffer that :meth:`state_dict` returned.

        Raises:
            CheckpointError: if the state comes from another kind of sampler, or its buffer has
                another size or shape.
        """
        super().load_state_dict(state)
        self.labels = state["labels"].clone()
