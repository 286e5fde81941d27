"""The joint energy-based models of Grathwohl et al. (ICLR 2020, arXiv:1912.03263), as jembench models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Names, OnlyWith, Range

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_jem.importer import AuthorsCheckpoint
    from jembench_jem.model import JEM, FactoredJEM

Norm = Literal["none", "batch", "instance", "layer", "act"]
Net = Annotated[str, Names()]
Momentum = Annotated[float, OnlyWith("norm", "batch")]


def jem(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.9,
    marginal: Annotated[float, Range(above=0)] = 1.0,
) -> JEM:
    """JEM: one network that gives p(y|x) and p(x), trained on both.

    ``momentum`` is the share of a batch in the running statistics of batch norm: .9 in the code of JEM and JEM++.
    ``marginal`` is the weight of log p(x) beside log p(y|x), 1 in JEM (``--p_x_weight`` of the authors' code).
    """
    from jembench.parts import build_net
    from jembench_jem.model import JEM

    return JEM(build_net(net, data, norm=norm, dropout=dropout, momentum=momentum), marginal)


def jem_factored(
    data: DataSpec, *, net: Net = "auto", norm: Norm = "none", dropout: float = 0.0, momentum: Momentum = 0.9
) -> FactoredJEM:
    """JEM's ablation that is trained on p(x|y) alone; p(y|x) follows by Bayes' rule."""
    from jembench.parts import build_net
    from jembench_jem.model import FactoredJEM

    return FactoredJEM(build_net(net, data, norm=norm, dropout=dropout, momentum=momentum))


def jem_importer() -> AuthorsCheckpoint:
    """The checkpoints that JEM's authors published (CIFAR10_MODEL.pt), with their replay buffer."""
    from jembench_jem.importer import AuthorsCheckpoint

    return AuthorsCheckpoint()
