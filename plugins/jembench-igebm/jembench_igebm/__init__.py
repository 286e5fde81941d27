"""Implicit generation with energy-based models (Du & Mordatch, 2019, arXiv:1903.08689), as jembench components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from jembench.plugin import Size, SpecError, least_buffer, takes

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_igebm.model import IGEBM, ConditionalIGEBM
    from jembench_igebm.sampler import WanderingChains

Net = Literal["auto", "small", "base", "large", "larger", "wider"]


def _least(options: Mapping[str, Any]) -> Size:
    """One of the square convolutions in the first block, which every network of it has."""
    return Size(bytes=4 * 9 * (options["width"] or 0) ** 2)


@takes(_least)
def igebm(
    data: DataSpec, *, conditional: bool = True, net: Net = "auto", width: int | None = None, l2: float = 1.0
) -> IGEBM | ConditionalIGEBM:
    """A residual network with one energy: E(x, y), which gives p(y|x) over all classes, or E(x) alone.

    ``l2`` weights the mean squared energies in the loss. ``auto`` is ``small`` below 32 pixels, otherwise the networks
    that were published for CIFAR-10: ``base`` if conditional, else ``large``.
    """
    from jembench_igebm.model import IGEBM, ConditionalIGEBM
    from jembench_igebm.network import EnergyNet, architecture

    if conditional and data.num_classes < 1:
        raise SpecError(f"{data.name} is unlabelled, and E(x, y) needs classes. Write igebm:conditional=false.")
    if width is not None and width < 1:
        raise SpecError(f"width of igebm is {width}; it must be at least 1.")
    if l2 < 0:
        raise SpecError(f"l2 of igebm is {l2}; it must be at least 0.")
    layers = architecture(net, data, conditional=conditional, width=width)
    energy_net = EnergyNet(data, layers, conditional=conditional)
    return ConditionalIGEBM(energy_net, l2=l2) if conditional else IGEBM(energy_net, l2=l2)


@takes(least_buffer)
def igebm_langevin(
    data: DataSpec,
    *,
    steps: int = 60,
    step_size: float = 10.0,
    noise: float = 0.005,
    clip: float = 0.01,
    buffer: int = 10_000,
    reinit: float = 0.05,
) -> WanderingChains:
    """Persistent chains whose noise comes before the gradient, clipped and kept in bounds; units of x in [0, 1].

    In [0, 1], x' = clamp(z - step_size clamp(dE/dz, -clip, clip), 0, 1) with z = x + noise N(0, I). Chains on E(x, y)
    go on from any chain of the buffer, whichever class it was of.
    """
    from jembench_igebm.sampler import WanderingChains, from_unit

    for option, value in {"steps": steps, "buffer": buffer}.items():
        if value < 1:
            raise SpecError(f"{option} of igebm-langevin is {value}; it must be at least 1.")
    for option, size in {"step_size": step_size, "clip": clip}.items():
        if size <= 0:
            raise SpecError(f"{option} of igebm-langevin is {size}; it must be greater than 0.")
    if noise < 0:
        raise SpecError(f"noise of igebm-langevin is {noise}; it must be at least 0.")
    if not 0 <= reinit <= 1:
        raise SpecError(f"reinit of igebm-langevin is {reinit}; it must be a probability, from 0 to 1.")
    langevin = from_unit(data.bounds, steps=steps, step_size=step_size, noise=noise, clip=clip)
    return WanderingChains(data, langevin, buffer_size=buffer, reinit=reinit)
