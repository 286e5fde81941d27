"""EB-JDAT: a JEM that is also trained on adversarial images x~.

They are made from labelled images, and trained by energy and by class.

    paper  L = w_1 (E(x_p) - E(x_q)) + w_2 (E(x~) - E(x)) + w_3 CE(x) + w_4 CE(x~)
    code   L = w_1 (E(x_p) - E(x_q)) + w_2 (E(x_p) - E(x~)) + w_3 CE(x) + w_4 CE(x~)

    paper  x~ raises E(x~), within L-inf eps of x
    code   x~ raises f(x~)[y] + |f(x)/|f(x)| - f(x~)/|f(x~)||^2

The attack of the code lowers E(x~, y), and only its start is within eps.

Energies and cross-entropies are means over a batch, x_p images of p(x), x_q samples, x labelled
images. The gap has opposite signs in the paper and in its code.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import Weights, execution, hybrid_loss, marginal_energy, threat

TINY = 1e-10
"""The constant that the authors' code adds to the norm of logits."""


class TermWeights(NamedTuple):
    """The weight of each term of the loss."""

    marginal: float
    gap: float
    clean: float
    adversarial: float


class EBJDAT(threat.AttackedModel):
    """EB-JDAT (Jiang et al., CVPR 2026) by its paper or its code.

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
        attack: the attack in training, in L-inf.
        weights: of the terms.
        of_code: True for the signs and the attack of the code.
    """

    chains: Chains = "marginal"

    def __init__(
        self,
        net: nn.Module,
        data: DataSpec,
        attack: threat.Attack,
        weights: TermWeights,
        *,
        of_code: bool,
    ) -> None:
        super().__init__(net, data)
        self.attack = attack
        self.weights = weights
        self.of_code = of_code

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss, and the accuracy on adversarial images."""
        marginal, gap, clean, adversarial = self.weights
        terms = Weights(cross_entropy=clean, marginal=marginal)
        loss = hybrid_loss(self, batch, negatives, terms)
        assert loss.energies is not None
        moved = self._adversarial(self.unit(batch.x_labelled), batch.y_labelled)
        logits = self.logits_of_unit(moved)
        energy = marginal_energy(logits).mean()
        cross_entropy = F.cross_entropy(logits, batch.y_labelled)
        if self.of_code:
            difference = loss.energies.data.mean() - energy
        else:
            difference = energy - marginal_energy(self.logits(batch.x_labelled)).mean()
        parts = {"gap": difference, "adversarial_cross_entropy": cross_entropy}
        right = logits.argmax(dim=1) == batch.y_labelled
        parts["adversarial_accuracy"] = right.float().mean()
        total = loss.total + gap * difference + adversarial * cross_entropy
        detached = {name: part.detach() for name, part in parts.items()}
        return Loss(total, {**loss.parts, **detached}, loss.energies)

    def _adversarial(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]
    ) -> Float[Tensor, "B C H W"]:
        """Return the last images of the attack on x in [0, 1]."""
        start = self.attack.random_start(x).clamp(0, 1)
        if self.of_code:  # the radius is the pixel's range: no projection
            attack = self.attack._replace(eps=1.0)
            return self.attacked(attack, x, self._change(x, y), start)
        return self.attacked(self.attack, x, self._energy_of_unit, start)

    def _energy_of_unit(self, at: Tensor) -> Tensor:
        """Return the sum of E(x~)."""
        return marginal_energy(self.logits_of_unit(at)).sum()

    def _change(self, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the score of x~ that the attack of the code raises."""
        with execution.mode(self, train=False), torch.no_grad():
            before = _normalised(self.logits_of_unit(x))

        def score(at: Tensor) -> Tensor:
            logits = self.logits_of_unit(at)
            change = before - _normalised(logits)
            return logits.gather(1, y[:, None]).sum() + change.square().sum()

        return score


def _normalised(logits: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    length: Tensor = torch.linalg.vector_norm(logits, dim=1, keepdim=True)
    return logits / (length + TINY)
