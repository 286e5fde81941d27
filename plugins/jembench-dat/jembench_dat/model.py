"""Dual adversarial training: robust classification, and energies that detect ascended outliers.

    L = CE(f(x_adv), y) + w (mean softplus(E(x)) + mean softplus(-E(x_neg)))

x_adv are training images that an L2 attack moved, x_neg outliers that ascended -E_c. The second
term is the binary cross-entropy of the logit -E, with data as the positive class: E need not rank
training images, but only separate their support from the outside. E and E_c depend on ``logit``:

    code        E(x) = -logsumexp f(x)      E_c = E(x, y) = -f(x)[y]    as in the authors' code
    joint       E(x, y)                     E(x, y)
    marginal    E(x)                        E(x)                        as in the paper

arXiv:2510.13872, with the constants of the authors' code (xuwangyin/DAT, fb2ffc7).

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from jembench.interfaces import Batch, Chains, DataSpec, Energies, Loss, Negatives
from jembench.parts import execution, marginal_energy, threat
from jembench_dat import Logit
from jembench_dat.curriculum import auroc


class DAT(threat.AttackedModel):
    """A model trained by the loss above.

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
        attack: the attack in training, in L2.
        logit: the energies of the binary cross-entropy and of the chains, see above.
        marginal: the weight w; .5 in the authors' code, since its binary cross-entropy is a mean
            over data and outliers together.
        ramp: the number of first iterations over which w rises from 0.
        clean: the weight of a further cross-entropy, on the images before the attack, which then
            are the data of the second term too; 0 in the paper.
        freeze: True if batch norm uses its running statistics in training too, and does not update
            them.
    """

    joint_pass = True

    def __init__(
        self,
        net: nn.Module,
        data: DataSpec,
        attack: threat.Attack,
        *,
        logit: Logit,
        marginal: float,
        ramp: int,
        clean: float,
        freeze: bool,
    ) -> None:
        super().__init__(net, data)
        self.attack = attack
        self.logit = logit
        self.freeze = freeze
        self.marginal = marginal
        self.ramp = ramp
        self.clean = clean
        self.chains: Chains = "marginal" if logit == "marginal" else "conditional"

    def train(self, mode: bool = True) -> DAT:
        """Set the mode of all modules but a frozen batch norm."""
        super().train(mode)
        if self.freeze:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss above.

        Its parts have the accuracy on attacked images and the AUROC of data against samples.

        All images pass through the network together. The AUROC is of the energy that chains follow.
        """
        assert negatives is not None
        y = batch.y_labelled
        x = batch.x_labelled if self.chains == "conditional" or self.clean else batch.x
        images = self._attacked(batch.x_labelled, y), x, negatives.x
        logits = execution.at_least_float32(self.logits(torch.cat(images)))
        attacked, inside, outside = logits.split([len(part) for part in images])
        pairs = self._energies(inside, outside, y, negatives.y)
        energies = next(iter(pairs.values()))
        of_chains = pairs.get("joint_energy")
        cross_entropy = F.cross_entropy(attacked, y)
        of_data = F.softplus(energies.data).mean()
        binary = of_data + F.softplus(-energies.samples).mean()
        right = attacked.argmax(dim=1) == y
        parts = {
            "cross_entropy": cross_entropy,
            "adversarial_accuracy": right.float().mean(),
            "auroc": auroc(of_chains or energies),
        }
        for name, pair in pairs.items():
            parts[f"{name}_data"] = pair.data.mean()
            parts[f"{name}_samples"] = pair.samples.mean()
        total = cross_entropy + self.marginal * batch.ramp(self.ramp) * binary
        if self.clean:
            parts["clean_cross_entropy"] = F.cross_entropy(inside, y)
            total = total + self.clean * parts["clean_cross_entropy"]
        detached = {name: part.detach() for name, part in parts.items()}
        return Loss(total, detached, energies, of_chains)

    def _energies(
        self,
        data: Float[Tensor, "B K"],
        samples: Float[Tensor, "B K"],
        y: Int[Tensor, " B"],
        y_samples: Int[Tensor, " B"] | None,
    ) -> dict[str, Energies]:
        """Return the energies by name, the loss's first."""
        energies = {}
        if self.logit != "joint":
            energies["energy"] = Energies(marginal_energy(data), marginal_energy(samples))
        if self.logit != "marginal":
            assert y_samples is not None
            of_samples = _joint_energy(samples, y_samples)
            energies["joint_energy"] = Energies(_joint_energy(data, y), of_samples)
        return energies

    def _attacked(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]
    ) -> Float[Tensor, "B C H W"]:
        """Return the images of an attack on the cross-entropy."""
        low, high = self.data.bounds

        def loss(unit: Tensor) -> Tensor:
            return F.cross_entropy(self.logits_of_unit(unit), y, reduction="sum")

        moved = self.attacked(self.attack, self.unit(x), loss)
        return moved * (high - low) + low


def _joint_energy(logits: Float[Tensor, "B K"], y: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return E(x, y) = -f(x)[y]."""
    return -logits.gather(1, y[:, None]).squeeze(1)
