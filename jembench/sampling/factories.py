"""The samplers that core registers. Imports nothing heavy until one is made.

Step sizes, noise and clip are in the units of ``DataSpec.bounds`` and of dE/dx there. ``start`` is the spec of where
new chains begin (`jembench list starts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jembench.catalog import registry
from jembench.catalog.limits import Size
from jembench.catalog.options import takes
from jembench.errors import SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec, Start
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import Langevin, ShortRun
    from jembench.sampling.starts import ClassGaussianStart, UniformStart


def sgld(
    data: DataSpec,
    *,
    steps: int = 100,
    step_size: float = 1.0,
    noise: float = 0.01,
    clip: float | None = None,
    bounded: bool = False,
    start: str = "uniform",
) -> ShortRun:
    """Short-run SGLD: every chain starts anew, from uniform noise by default.

    ``clip`` clamps every element of the gradient to [-clip, clip]; ``bounded`` clamps the images after every step.
    """
    from jembench.sampling.sgld import ShortRun

    langevin = _langevin("sgld", data, steps=steps, step_size=step_size, noise=noise, clip=clip, bounded=bounded)
    return ShortRun(data, langevin, _start(start, data))


def least_buffer(options: Mapping[str, Any]) -> Size:
    """A pixel in float32 and an age for each slot of a replay buffer."""
    return Size(bytes=(4 + 8) * options["buffer"])


@takes(least_buffer)
def pcd(
    data: DataSpec,
    *,
    steps: int = 20,
    step_size: float = 1.0,
    noise: float = 0.01,
    clip: float | None = None,
    bounded: bool = False,
    buffer: int = 10_000,
    reinit: float = 0.05,
    start: str = "uniform",
) -> PersistentChains:
    """Persistent chains (SGLD) from a replay buffer; a share ``reinit`` restarts, from uniform noise by default.

    ``clip`` clamps every element of the gradient to [-clip, clip]; ``bounded`` clamps the images after every step.
    SADA-JEM (Yang, Su & Ji, 2023) has steps=10, noise=0, clip=1, bounded=true, start=class-gaussian.
    """
    from jembench.sampling.pcd import PersistentChains

    _check_buffer("pcd", buffer, reinit)
    langevin = _langevin("pcd", data, steps=steps, step_size=step_size, noise=noise, clip=clip, bounded=bounded)
    return PersistentChains(data, langevin, _start(start, data), buffer_size=buffer, reinit=reinit)


@takes(least_buffer)
def proximal(
    data: DataSpec,
    *,
    outer: int = 10,
    inner: int = 5,
    step_size: float = 0.2,
    clip: float = 1.0,
    buffer: int = 10_000,
    reinit: float = 0.05,
    start: str = "class-gaussian",
) -> PersistentChains:
    """JEM++'s proximal sampler: ``outer`` network passes, each followed by ``inner`` cheap steps (Yang & Ji, 2021).

    Each outer step computes p = dE/dh at the first layer's output h and holds it fixed while the inner ones repeat
    x <- clamp(x - step_size clamp(J(x)^T p, -clip, clip), low, high), J = dh/dx, through the first layer alone. But
    that layer is linear: J is the same at every x, and J^T p is dE/dx at the outer point throughout. Every inner step
    wants to move a pixel by the same amount, and once at a bound it stays there. So the inner loop is one step of size
    inner * step_size on the clipped gradient, clamped once: the Langevin step, without noise. That is what is computed.
    """
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import Langevin

    _at_least(1, "proximal", outer=outer, inner=inner)
    _above_0("proximal", step_size=step_size, clip=clip)
    _check_buffer("proximal", buffer, reinit)
    langevin = Langevin(steps=outer, step_size=inner * step_size, noise=0.0, clip=clip, bounds=data.bounds)
    return PersistentChains(data, langevin, _start(start, data), buffer_size=buffer, reinit=reinit)


def uniform_start(data: DataSpec) -> UniformStart:
    """Independent pixels, uniform within the bounds."""
    from jembench.sampling.starts import UniformStart

    return UniformStart(data)


def class_gaussian_start(data: DataSpec) -> ClassGaussianStart:
    """Per class the Gaussian fitted to its training images (JEM++)."""
    from jembench.sampling.starts import ClassGaussianStart

    return ClassGaussianStart(data)


def _start(spec: str, data: DataSpec) -> Start:
    """The start of chains that a spec names."""
    start: Start = registry.resolve("starts", spec).make(data)
    return start


def _langevin(
    sampler: str, data: DataSpec, *, steps: int, step_size: float, noise: float, clip: float | None, bounded: bool
) -> Langevin:
    from jembench.sampling.sgld import Langevin

    _at_least(1, sampler, steps=steps)
    _at_least(0, sampler, noise=noise)
    _above_0(sampler, step_size=step_size, clip=clip)
    bounds = data.bounds if bounded else None
    return Langevin(steps=steps, step_size=step_size, noise=noise, clip=clip, bounds=bounds)


def _check_buffer(sampler: str, buffer: int, reinit: float) -> None:
    _at_least(1, sampler, buffer=buffer)
    if not 0 <= reinit <= 1:
        raise SpecError(f"reinit of {sampler} is {reinit}; it must be a probability, from 0 to 1.")


def _at_least(minimum: int, sampler: str, **options: float) -> None:
    for option, value in options.items():
        if value < minimum:
            raise SpecError(f"{option} of {sampler} is {value}; it must be at least {minimum}.")


def _above_0(sampler: str, **options: float | None) -> None:
    for option, value in options.items():
        if value is not None and value <= 0:
            raise SpecError(f"{option} of {sampler} is {value}; it must be greater than 0.")
