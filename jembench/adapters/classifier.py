"""Any network that returns logits as a model: torchvision's, timm's, Hugging Face's, one's own.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from jembench.energies import LogitModel
from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.nets.build import check_net
from jembench.training.objective import Weights, hybrid_loss


class PlainClassifier(LogitModel):
    """A network that knows nothing of jembench, trained by cross-entropy.

    Args:
        net: (B, C, H, W) -> (B, K), or an object whose ``logits`` these are, as Hugging Face's classifiers return.
    """

    chains: Chains = "none"

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        output = self.net(x)
        logits: Tensor = getattr(output, "logits", output)
        return logits

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """CE(f(x_l), y_l)."""
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1))


def as_classifier(net: nn.Module, data: DataSpec, name: str) -> PlainClassifier:
    """A network as a model, after it has been shown two images.

    Args:
        net: without any of a model's methods.
        data: what it will see.
        name: what to call it in errors.

    Raises:
        PluginError: if it fails on the images, or gives no logit per class.
    """
    model = PlainClassifier(net)
    check_net(name, model, data)
    return model
