"""A plain classifier, whose energy is not trained."""

from __future__ import annotations

from jembench.interfaces import Batch, Chains, Loss, Negatives
from jembench.parts import LogitModel, Weights, hybrid_loss


class Baseline(LogitModel):
    """A classifier trained by cross-entropy.

    Grathwohl et al. (2020), Table 1, supervised rows.
    """

    chains: Chains = "none"

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return CE(f(x_l), y_l)."""
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1))
