"""Detection of outliers: energy fine-tuning, scores of features, selective prediction.

Energy fine-tuning: Liu et al. (NeurIPS 2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range, built_from, network

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench_energy_ood.model import EnergyFinetuned

Share = Annotated[float, Range(least=0, most=1)]


@built_from(network)
def energy_finetuned(
    data: DataSpec,
    net: Module,
    *,
    weight: Annotated[float, Range(above=0)] = 0.1,
    m_in: float | None = None,
    m_out: float | None = None,
    quantile_in: Share = 0.5,
    quantile_out: Share = 0.99,
) -> EnergyFinetuned:
    """A classifier with low energies of images and high energies of outliers.

    Training moves energies below a margin for images, and above another margin for outliers. It
    continues another fit (``--set start_from=FIT``), with outliers as the starts of chains.
    ``m_in`` and ``m_out`` are the margins in nats, -25 and -7 in the authors' code. By default they
    are quantiles of the energies of the training images when training starts. ``weight`` is the
    weight of the squared distances beyond the margins.
    """
    from jembench_energy_ood.model import EnergyFinetuned, Margins

    margins = Margins(m_in, m_out, quantile_in, quantile_out)
    return EnergyFinetuned(net, margins, weight=weight)
