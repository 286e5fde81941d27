"""The joint energy-based models of Grathwohl et al., as jembench models.

ICLR 2020, arXiv:1912.03263.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Neutral, Range, built_from, network

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench.parts import PersistentChains
    from jembench_jem.heuristics import TamedJEM
    from jembench_jem.importer import AuthorsCheckpoint
    from jembench_jem.joint_pass import JointPassJEM
    from jembench_jem.model import JEM, FactoredJEM

Count = Annotated[int, Range(least=1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]


@built_from(network, momentum=0.9)
def jem(
    data: DataSpec,
    net: Module,
    *,
    marginal: NotNegative = 1.0,
    ramp: Annotated[int, Range(least=0), Neutral()] = 0,
    passes: Annotated[Literal["each", "joint"], Neutral()] = "each",
    outliers: Annotated[float, Range(least=0), Neutral()] = 0.0,
    attacked: Annotated[float, Range(least=0, most=1), Neutral()] = 0.0,
    radius: Annotated[float, Range(above=0), Neutral()] = 0.1,
    scaled: Annotated[bool, Neutral()] = False,
) -> JEM | JointPassJEM:
    """JEM: one network that gives p(y|x) and p(x), trained on both.

    ``momentum`` is the share of a batch in the running statistics of batch norm: .9 in the code of
    JEM and JEM++. ``marginal`` is the weight of log p(x) beside log p(y|x), 1 in JEM
    (``--p_x_weight`` of the authors' code). It rises linearly from 0 over the first ``ramp``
    iterations.

    Further options are ours. With ``passes="joint"``, images, chains and outliers pass through the
    network together. ``outliers`` is the weight of a binary cross-entropy that tells data from the
    recipe's outliers by E(x). ``attacked`` is the share of labelled images that one L2 step moves
    within ``radius``, in units of a pixel's range. ``scaled`` learns a scale s: p(y|x) and log p(x)
    are computed from s f(x), but chains follow the energy of f(x). With ``marginal=0`` there are no
    chains.
    """
    if passes == "each" and marginal and not (outliers or attacked or scaled):
        from jembench_jem.model import JEM

        return JEM(net, marginal, ramp)
    from jembench_jem.joint_pass import JointPassJEM, Terms

    terms = Terms(
        marginal=marginal,
        ramp=ramp,
        outliers=outliers,
        attacked=attacked,
        radius=radius,
        scaled=scaled,
        joint=passes == "joint",
    )
    return JointPassJEM(net, data, terms)


@built_from(network, momentum=0.9)
def jem_factored(data: DataSpec, net: Module) -> FactoredJEM:
    """JEM's ablation trained on p(x|y) only; p(y|x) follows by Bayes' rule."""
    from jembench_jem.model import FactoredJEM

    return FactoredJEM(net)


@built_from(network, momentum=0.9)
def jem_tamed(
    data: DataSpec,
    net: Module,
    *,
    energies: Literal["clip", "drop"] = "clip",
    limit: Positive = 3.0,
) -> TamedJEM:
    """JEM whose loss clips or drops the energies of outlying samples.

    It did not stabilise the authors' training (Appendix H.3).

    A sample is an outlier if its energy is more than ``limit`` robust standard deviations from the
    median of the batch.
    """
    from jembench_jem.heuristics import TamedJEM

    return TamedJEM(net, energies, limit)


def proper_sgld(
    data: DataSpec,
    *,
    steps: Count = 20,
    step_size: Positive = 0.01,
    decay: NotNegative = 0.55,
    offset: Positive = 1.0,
    temperature: NotNegative = 1.0,
    buffer: Annotated[int, Range(least=1, most=100_000_000)] = 10_000,
    reinit: Annotated[float, Range(least=0, most=1)] = 0.05,
) -> PersistentChains:
    """Persistent chains of proper SGLD, with steps that decay polynomially.

    Step t of an iteration has the size step_size (1 + t / offset) ** -decay, and noise whose
    variance is twice this size times ``temperature`` (Appendix H.1).
    """
    from jembench.parts import PersistentChains
    from jembench_jem.heuristics import ProperLangevin

    langevin = ProperLangevin(
        steps=steps,
        step_size=step_size,
        noise=0.0,
        decay=decay,
        offset=offset,
        temperature=temperature,
    )
    return PersistentChains(data, langevin, buffer_size=buffer, reinit=reinit)


def jem_importer() -> AuthorsCheckpoint:
    """The checkpoints that JEM's authors published (CIFAR10_MODEL.pt), with their replay buffer."""
    from jembench_jem.importer import AuthorsCheckpoint

    return AuthorsCheckpoint()
