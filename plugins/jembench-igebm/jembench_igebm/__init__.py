"""IGEBM: implicit generation with energy-based models.

Du and Mordatch (2019), arXiv:1903.08689.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Range, SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_igebm.model import IGEBM, ConditionalIGEBM
    from jembench_igebm.sampler import SharedBufferChains

Net = Literal["auto", "small", "base", "large", "larger", "wider"]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]


def igebm(
    data: DataSpec,
    *,
    conditional: bool = True,
    net: Net = "auto",
    width: Annotated[int | None, Range(least=1, most=10_000)] = None,
    l2: NotNegative = 1.0,
) -> IGEBM | ConditionalIGEBM:
    """A residual network with the energy E(x, y), or with E(x) only.

    E(x, y) of all classes gives p(y|x).

    ``l2`` weights the mean squared energies in the loss. ``net=auto`` is ``small`` below 32 pixels,
    else a network published for CIFAR-10: ``base`` if conditional, ``large`` if not.
    """
    from jembench_igebm.model import IGEBM, ConditionalIGEBM
    from jembench_igebm.network import EnergyNet, architecture

    if conditional and data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and E(x, y) needs classes. Write igebm:conditional=false."
        )
    layers = architecture(net, data, conditional=conditional, width=width)
    energy_net = EnergyNet(data, layers, conditional=conditional)
    if conditional:
        return ConditionalIGEBM(energy_net, l2=l2)
    return IGEBM(energy_net, l2=l2)


def igebm_langevin(
    data: DataSpec,
    *,
    steps: Annotated[int, Range(least=1)] = 60,
    step_size: Positive = 10.0,
    noise: NotNegative = 0.005,
    clip: Positive = 0.01,
    buffer: Annotated[int, Range(least=1, most=100_000_000)] = 10_000,
    reinit: Annotated[float, Range(least=0, most=1)] = 0.05,
) -> SharedBufferChains:
    """Persistent chains of IGEBM: noise, then a clipped step, within the bounds.

    Constants are for x in [0, 1], where x' = clamp(z - step_size clamp(dE/dz, -clip, clip), 0, 1)
    with z = x + noise N(0, I). Chains on E(x, y) continue any chain of the buffer, of any class.
    """
    from jembench_igebm.sampler import SharedBufferChains, from_unit

    constants = {"step_size": step_size, "noise": noise, "clip": clip}
    langevin = from_unit(data.bounds, steps=steps, **constants)
    return SharedBufferChains(data, langevin, buffer_size=buffer, reinit=reinit)
