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
    """The margins in nats; None: by the energies of the training images at the start."""

    inside: float | None
    outside: float | None
    quantile_inside: float
    quantile_outside: float


class EnergyFinetuned(LogitModel):
    """A classifier trained by cross-entropy and by squared hinge losses of E(x) = -logsumexp f(x).

    Args:
        net: (B, C, H, W) -> (B, K).
        margins: given, or measured when training starts; then they are buffers.
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
        energies = torch.cat([self.energy(x) for x in batches]).double().cpu()
        measured = energies.quantile(energies.new_tensor(quantiles)).tolist()
        given = [inside, outside]
        self.margins.copy_(
            torch.tensor(
                [at if one is None else one for one, at in zip(given, measured, strict=True)]
            )
        )

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss of images and outliers in one pass, as in the authors' code.

        Batch norm sees both together.
        """
        assert negatives is not None
        sizes = [len(batch.x_labelled), len(negatives.x)]
        logits, outside = torch.split(
            self.logits(torch.cat([batch.x_labelled, negatives.x])), sizes
        )
        energies = marginal_energy(logits), marginal_energy(outside)
        hinge = F.relu(energies[0] - self.margins[0]).square().mean()
        hinge = hinge + F.relu(self.margins[1] - energies[1]).square().mean()
        cross_entropy = F.cross_entropy(execution.at_least_float32(logits), batch.y_labelled)
        parts = {"cross_entropy": cross_entropy, "hinge": hinge}
        parts |= {"energy_data": energies[0].mean(), "energy_outliers": energies[1].mean()}
        total = cross_entropy + self.weight * hinge
        return Loss(total, {name: part.detach() for name, part in parts.items()})
