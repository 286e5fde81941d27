"""The samplers that core registers. Imports nothing heavy until one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import ShortRun


def sgld(data: DataSpec, *, steps: int = 100, step_size: float = 1.0, noise: float = 0.01) -> ShortRun:
    """Short-run SGLD: every chain starts from uniform noise."""
    from jembench.sampling.sgld import Langevin, ShortRun

    return ShortRun(data, Langevin(steps=steps, step_size=step_size, noise=noise))


def pcd(
    data: DataSpec,
    *,
    steps: int = 20,
    step_size: float = 1.0,
    noise: float = 0.01,
    buffer: int = 10_000,
    reinit: float = 0.05,
) -> PersistentChains:
    """Persistent chains (SGLD) from a replay buffer; a share ``reinit`` of them restarts from uniform noise."""
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import Langevin

    langevin = Langevin(steps=steps, step_size=step_size, noise=noise)
    return PersistentChains(data, langevin, buffer_size=buffer, reinit=reinit)
