"""A classifier trained on adversarial images near the training images.

    min over f of the mean of max over |d| <= eps of CE(f(x + d), y)

Madry et al. (2018), arXiv:1706.06083, equation 2.1, in L-inf; Santurkar et al. (2019), arXiv:1906.09453, in L2.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import LogitModel, execution, threat


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """Projected gradient ascent from training images; lengths in units of a pixel's range, 0 to 1."""

    norm: threat.Norm
    eps: float
    steps: int
    step_size: float
    random_start: bool  # uniform in the ball; otherwise at the image itself


class Adversarial(LogitModel):
    """A classifier trained by cross-entropy on adversarial images.

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
        attack: of training, which does not depend on attacks in evaluation.
    """

    chains: Chains = "none"

    def __init__(self, net: nn.Module, data: DataSpec, attack: Attack) -> None:
        super().__init__(net)
        self.data = data
        self.attack = attack

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return CE(f(x_l + d), y_l), with the share of adversarial images that are classified correctly.

        Noisy images are first clamped to the bounds, so that adversarial images are valid images.
        """
        low, high = self.data.bounds
        unit = ((batch.x_labelled - low) / (high - low)).clamp(0, 1)
        adversarial = self._ascend(unit, batch.y_labelled)
        logits = self._logits_of_unit(adversarial)
        cross_entropy = F.cross_entropy(logits, batch.y_labelled)
        accuracy = (logits.argmax(dim=1) == batch.y_labelled).float().mean()
        return Loss(cross_entropy, {"cross_entropy": cross_entropy.detach(), "adversarial_accuracy": accuracy})

    def _ascend(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]) -> Float[Tensor, "B C H W"]:
        """Return the last images of the attack on x in [0, 1], successful or not."""

        def loss(x: Tensor) -> Tensor:
            return F.cross_entropy(self._logits_of_unit(x), y, reduction="sum")

        attack, start = self.attack, None
        if attack.random_start:
            start = x + attack.eps * threat.in_unit_ball(len(x), tuple(x.shape[1:]), attack.norm, x.device)
        # The code of Santurkar et al. uses evaluation mode, that of Madry et al. training mode. In evaluation mode the
        # attack does not change the statistics of batch norm, and dropout draws no new mask at each step.
        with execution.mode(self, train=False):
            return threat.ascend(
                loss, x, attack.eps, attack.norm, steps=attack.steps, step_size=attack.step_size, start=start
            )

    def _logits_of_unit(self, x: Float[Tensor, "B C H W"]) -> Tensor:
        low, high = self.data.bounds
        return execution.at_least_float32(self.logits(x * (high - low) + low))
