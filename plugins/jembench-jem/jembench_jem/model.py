"""JEM and its factored ablation: classifiers whose logits give trained energies."""

from __future__ import annotations

from torch import nn

from jembench.interfaces import Batch, Chains, Loss, Negatives
from jembench.parts import LogitModel, Weights, hybrid_loss


class JEM(LogitModel):
    """A model trained on log p(x, y) = log p(y|x) + log p(x).

    The loss is a cross-entropy and a difference of energies (equation 8).

    Args:
        net: see :class:`~jembench.parts.LogitModel`.
        marginal: the weight of log p(x), 1 in JEM.
        ramp: the number of first iterations over which the weight rises from 0.
    """

    chains: Chains = "marginal"

    def __init__(self, net: nn.Module, marginal: float = 1.0, ramp: int = 0) -> None:
        super().__init__(net)
        self.weights = Weights(cross_entropy=1, marginal=marginal, ramp=ramp)

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return CE(f(x_l), y_l) + marginal (mean E(x_p) - mean E(x_q))."""
        return hybrid_loss(self, batch, negatives, self.weights)


class FactoredJEM(LogitModel):
    """A model trained on log p(x, y) = log p(x|y) + log p(y).

    The loss is a difference of energies of labelled data and samples.

    It is the ablation of section 3 and Table 1 ("p(x|y) factored"), which has no term for p(y|x).
    """

    chains: Chains = "conditional"

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return mean E(x_l, y_l) - mean E(x_q, y_l)."""
        return hybrid_loss(self, batch, negatives, Weights(conditional=1))
