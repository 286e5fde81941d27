"""The joint energy-based models of Grathwohl et al. (ICLR 2020, arXiv:1912.03263), as jembench models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jembench.nets import names
from jembench.spec import takes

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_jem.importer import AuthorsCheckpoint
    from jembench_jem.model import JEM, FactoredJEM

Norm = Literal["none", "batch", "instance", "layer"]


@takes(names.least)
def jem(data: DataSpec, *, net: str = "auto", norm: Norm = "none", dropout: float = 0.0) -> JEM:
    """JEM: one network read as p(y|x) and as p(x), trained on both."""
    from jembench.nets.build import build_net
    from jembench_jem.model import JEM

    return JEM(build_net(net, data, norm=norm, dropout=dropout))


@takes(names.least)
def jem_factored(data: DataSpec, *, net: str = "auto", norm: Norm = "none", dropout: float = 0.0) -> FactoredJEM:
    """JEM's ablation that is trained on p(x|y) alone; p(y|x) follows by Bayes' rule."""
    from jembench.nets.build import build_net
    from jembench_jem.model import FactoredJEM

    return FactoredJEM(build_net(net, data, norm=norm, dropout=dropout))


def jem_importer() -> AuthorsCheckpoint:
    """The checkpoints that JEM's authors published (CIFAR10_MODEL.pt), with their replay buffer."""
    from jembench_jem.importer import AuthorsCheckpoint

    return AuthorsCheckpoint()
