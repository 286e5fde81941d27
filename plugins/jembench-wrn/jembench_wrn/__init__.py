"""The classifier that hybrid models are measured against, as a jembench model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_wrn.model import Baseline


def baseline(
    data: DataSpec,
    *,
    net: str = "auto",
    norm: Literal["none", "batch", "instance", "layer"] = "none",
    dropout: float = 0.0,
) -> Baseline:
    """The same network as JEM's, trained on p(y|x) alone."""
    from jembench.nets.build import build_net
    from jembench_wrn.model import Baseline

    return Baseline(build_net(net, data, norm=norm, dropout=dropout))
