"""One linear layer as a model: it classifies and has an energy, and is trained as a classifier."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import LogitModel


class Linear(LogitModel):
    """Logits that are linear in the pixels."""

    chains: Chains = "none"

    def __init__(self, data: DataSpec, bias: bool) -> None:
        super().__init__(
            nn.Sequential(nn.Flatten(), nn.Linear(data.dimensions, data.num_classes, bias=bias))
        )

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Cross-entropy."""
        loss = F.cross_entropy(self.logits(batch.x_labelled), batch.y_labelled)
        return Loss(loss, {"cross_entropy": loss.detach()})
