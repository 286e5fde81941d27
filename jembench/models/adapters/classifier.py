"""Any network that returns logits as a model: torchvision's, timm's, Hugging Face's, one's own."""

from __future__ import annotations

from torch import nn

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.models.energies import LogitModel
from jembench.models.nets.build import check_net
from jembench.models.objective import Weights, hybrid_loss


class PlainClassifier(LogitModel):
    """A network that knows nothing of jembench, trained by cross-entropy."""

    chains: Chains = "none"

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
    check_net(name, net, data)
    return PlainClassifier(net)
