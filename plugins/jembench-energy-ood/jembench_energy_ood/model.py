"""A classifier with an energy margin between images and outliers.

    L = CE(f(x), y) + w (mean max(0, E(x) - m_in)^2 + mean max(0, m_out - E(x_out))^2)

Liu et al. (2020), "Energy-based Out-of-distribution Detection", and the authors' code,
wetliu/energy_ood.

Legend: B images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, Loss, Negatives
from jembench.parts import LogitModel, execution, marginal_energy


class Margins(NamedTuple):
    """The margins in nats; None: quantiles of training images' energies."""

    inside: float | None
    outside: float | None
    quantile_inside: float
    quantile_outside: float


class EnergyFinetuned(LogitModel):
    """A classifier trained by cross-entropy and squared hinge losses of E(x).

    E(x) = -logsumexp f(x).

    Args:
        net: (B, C, H, W) -> (B, K).
        margins: given, or measured when training starts.
        weight: of the hinge losses.
    """

    chains: Chains = "marginal"
    generates = False
    joint_pass = True
    margins: Tensor  # (2,): m_in and m_out

    def __init__(self, net: nn.Module, margins: Margins, *, weight: float) -> None:
        super().__init__(net)
        self.rule = margins
        self.weight = weight
        self.register_buffer("margins", torch.zeros(2))

    def prepare(self, batches: Iterable[Float[Tensor, "B C H W"]]) -> None:
        """Set the margins by the energies of the training images."""
        inside, outside, *quantiles = self.rule
        energies = torch.cat([self.energy(x) for x in batches])
        energies = energies.double().cpu()
        measured = energies.quantile(energies.new_tensor(quantiles)).tolist()
        margins = []
        for margin, quantile in zip((inside, outside), measured, strict=True):
            margins.append(quantile if margin is None else margin)
        self.margins.copy_(torch.tensor(margins))

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss of images and outliers in one pass.

        Batch norm normalises both together.
        """
        assert negatives is not None
        sizes = [len(batch.x_labelled), len(negatives.x)]
        together = self.logits(torch.cat([batch.x_labelled, negatives.x]))
        logits, of_outliers = torch.split(together, sizes)
        inside = marginal_energy(logits)
        outside = marginal_energy(of_outliers)
        m_in, m_out = self.margins
        hinge = F.relu(inside - m_in).square().mean()
        hinge = hinge + F.relu(m_out - outside).square().mean()
        cross_entropy = F.cross_entropy(execution.at_least_float32(logits), batch.y_labelled)
        parts = {"cross_entropy": cross_entropy, "hinge": hinge}
        parts |= {"energy_data": inside.mean(), "energy_outliers": outside.mean()}
        total = cross_entropy + self.weight * hinge
        detached = {name: part.detach() for name, part in parts.items()}
        return Loss(total, detached)
