"""IGEBM as jembench models, with the energy of an image, or of an image and a class.

Legend: B batch, K classes, C channels, H height, W width.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jembench.interfaces import Batch, Chains, Energies, Loss, Negatives
from jembench.parts import marginal_energy
from jembench.plugin import SpecError
from jembench_igebm.network import EnergyNet


def contrastive_loss(energies: Energies, l2: float, prefix: str = "") -> Loss:
    """Return mean E+ - mean E- + l2 (mean E+^2 + mean E-^2).

    E+ are energies of data, E- those of samples.

    Du & Mordatch (2019), section 3.3. The parts are ``energy_data`` and ``energy_samples``, each
    with the prefix, and ``l2`` without its weight.
    """
    data = energies.data.mean()
    samples = energies.samples.mean()
    squared = energies.data.square().mean()
    squares = squared + energies.samples.square().mean()
    parts = {f"{prefix}energy_data": data, f"{prefix}energy_samples": samples, "l2": squares}
    detached = {name: part.detach() for name, part in parts.items()}
    return Loss(data - samples + l2 * squares, detached, energies)


class IGEBM(nn.Module):
    """A model of E(x) without classes.

    Args:
        net: an unconditional network.
        l2: the weight of the squared energies in the loss.
    """

    chains: Chains = "marginal"

    def __init__(self, net: EnergyNet, *, l2: float) -> None:
        super().__init__()
        self.net = net
        self.l2 = l2

    def energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return E(x) in nats.

        Raises:
            SpecError: for labels.
        """
        if y is not None:
            raise SpecError(
                "igebm:conditional=false has E(x) and no E(x, y), so its chains cannot belong to "
                "classes. Leave out chains.conditional and the source of samples by class, or "
                "take igebm, which is conditional."
            )
        energy: Tensor = self.net(x)
        return energy

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the :func:`contrastive_loss` of E(x), data and samples in one pass."""
        assert negatives is not None
        energies = self.energy(torch.cat([batch.x, negatives.x]))
        sizes = [len(batch.x), len(negatives.x)]
        split = torch.split(energies, sizes)
        return contrastive_loss(Energies(*split), self.l2)


class ConditionalIGEBM(nn.Module):
    """A model of E(x, y), trained on p(x|y) alone.

    p(y|x) is proportional to exp(-E(x, y)), from K energies.

    Args:
        net: a conditional network.
        l2: the weight of the squared energies in the loss.
    """

    chains: Chains = "conditional"
    energy_follows_from_logits = True

    def __init__(self, net: EnergyNet, *, l2: float) -> None:
        super().__init__()
        self.net = net
        self.l2 = l2

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return -E(x, y) for all y, in one pass."""
        return -self.net.every_class(x)

    def energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return E(x, y) for labels, else E(x) = -logsumexp_y -E(x, y).

        E(x) costs K energies.
        """
        if y is None:
            return marginal_energy(self.logits(x))
        energy: Tensor = self.net(x, y)
        return energy

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the :func:`contrastive_loss` of E(x, y).

        Labelled data and samples of their classes share one pass.
        """
        assert negatives is not None
        assert negatives.y is not None
        x = torch.cat([batch.x_labelled, negatives.x])
        y = torch.cat([batch.y_labelled, negatives.y])
        energies = self.energy(x, y)
        sizes = [len(batch.x_labelled), len(negatives.x)]
        split = torch.split(energies, sizes)
        return contrastive_loss(Energies(*split), self.l2, "joint_")
