"""EB-JDAT: energy-based joint distribution adversarial training.

arXiv:2505.19459.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Range, built_from, network

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench_jdat.model import EBJDAT

Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]


@built_from(network, momentum=0.9)
def eb_jdat(
    data: DataSpec,
    net: Module,
    *,
    version: Literal["paper", "code"] = "paper",
    marginal: Positive = 1.0,
    gap: NotNegative = 1.0,
    clean: NotNegative = 0.0,
    adversarial: NotNegative = 1.0,
    eps: Positive = 8 / 255,
    steps: Annotated[int, Range(least=1)] = 5,
    step_size: Positive = 2 / 255,
) -> EBJDAT:
    """EB-JDAT: JEM with a gap between energies of images and adversarial images.

    It also minimises the cross-entropy of adversarial images.

    ``version=paper`` lowers E(x~) - E(x), where x~ raises E(x~) within L-inf ``eps``.
    ``version=code``, the authors' code, lowers E(x) - E(x~), where x~ raises f(x~)[y] and the
    change of the logits, from a start within ``eps`` and without a projection. Lengths are in units
    of a pixel's range. Weights are ``marginal`` of E(data) - E(samples), ``gap`` of the gap, and
    ``clean`` and ``adversarial`` of the cross-entropies of images and of adversarial images.
    """
    from jembench.parts import threat
    from jembench_jdat.model import EBJDAT, TermWeights

    weights = TermWeights(marginal, gap, clean, adversarial)
    attack = threat.Attack("linf", eps, steps, step_size)
    return EBJDAT(net, data, attack, weights, of_code=version == "code")
