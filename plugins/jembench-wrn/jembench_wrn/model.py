"""A plain classifier. Its logits have an energy as every classifier's have, but nothing trains it."""

from __future__ import annotations

from jembench.interfaces import Batch, Chains, Loss, Negatives
from jembench.parts import LogitModel, Weights, hybrid_loss


class Baseline(LogitModel):
    """log p(y|x) by cross-entropy: the supervised rows of Grathwohl et al. (2020), Table 1."""

    chains: Chains = "none"

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """CE(f(x_l), y_l)."""
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1))
