"""Energy fine-tuning against outliers (Liu et al., NeurIPS 2020, arXiv:2010.03759), as a jembench model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Names, OnlyWith, Range

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_energy_ood.model import EnergyFinetuned

Share = Annotated[float, Range(least=0, most=1)]


def energy_finetuned(
    data: DataSpec,
    *,
    net: Annotated[str, Names()] = "auto",
    norm: Literal["none", "batch", "instance", "layer", "act"] = "none",
    dropout: float = 0.0,
    momentum: Annotated[float, OnlyWith("norm", "batch")] = 0.1,
    weight: Annotated[float, Range(above=0)] = 0.1,
    m_in: float | None = None,
    m_out: float | None = None,
    quantile_in: Share = 0.5,
    quantile_out: Share = 0.99,
) -> EnergyFinetuned:
    """A classifier whose energies are moved below one margin for images, and above another one for outliers.

    It trains on from another fit (``--set start_from=FIT``), with outliers as the starts of its chains. ``m_in`` and
    ``m_out`` are the margins in nats, -25 and -7 in the authors' code. By default they are quantiles of the energies of
    the training images when training starts. ``weight`` is that of the squared distances beyond the margins.
    """
    from jembench.parts import build_net
    from jembench_energy_ood.model import EnergyFinetuned, Margins

    network = build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)
    return EnergyFinetuned(network, Margins(m_in, m_out, quantile_in, quantile_out), weight=weight)
