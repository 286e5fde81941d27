"""The importer of core, and networks by name. Torch is imported when they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.catalog.options import Names, OnlyWith

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench.models.importing import StateDict


def network(
    data: DataSpec,
    *,
    net: Annotated[str, Names("models", paths=False)] = "auto",
    norm: Literal["none", "batch", "instance", "layer"] = "none",
    dropout: float = 0.0,
    momentum: Annotated[float, OnlyWith("norm", "batch")] = 0.1,
) -> Module:
    """Return the network of a model, see :func:`jembench.models.nets.build_net`.

    ``momentum`` is the share of a batch in the running statistics of batch norm.
    """
    from jembench.models.nets import build_net

    return build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)


def weights(*, prefix: str = "", entry: str = "") -> StateDict:
    """Plain state dictionaries (.pt, .safetensors) of a model, or of its network.

    `prefix` is removed from names.

    ``entry`` names the state dictionary where a file holds several: ``entry=ema``,
    ``entry=checkpoint.model``.
    """
    from jembench.models.importing import StateDict

    return StateDict(prefix, entry)
