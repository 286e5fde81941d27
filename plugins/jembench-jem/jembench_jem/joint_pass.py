"""JEM with labelled images, chains and outliers in one pass.

Some labelled images are attacked, and the scale of the logits is learnt.

    L = CE(s f(x), y) + w (mean E(x) - mean E(x_q)) + v (mean softplus(E(x)) + mean
    softplus(-E(x_o)))

with E = -logsumexp f, x_q the samples of the chains and x_o outliers. In the joint pass, batch norm
normalises all images by common statistics, as evaluation does; in separate passes, each kind of
image has its own statistics, and E in evaluation is not the energy that was trained. The scale s
keeps p(y|x) sharp while the second term moves the mean of the logits, on which p(y|x) does not
depend. All of this is ours; arXiv:1912.03263 has w = 1, v = 0, s = 1 and a pass for each kind.

Legend: B labelled images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Energies, Loss, Negatives
from jembench.parts import execution, marginal_energy, threat

SPEED = 3.0
"""The scale is exp(SPEED t), t learnt from 0: the factor lets t share the learning rate of the
other weights.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The terms of the loss and the form of the pass."""

    marginal: float  # w; 0: no chains
    ramp: int  # the number of first iterations over which w and v rise from 0
    outliers: float  # v; 0: no outliers
    attacked: float  # share of the labelled images that are attacked before the pass
    radius: float  # of the attack in L2, in units of a pixel's range
    scaled: bool  # whether s is learnt; otherwise it is 1
    joint: bool  # whether all images share a pass; otherwise a pass for each kind


class JointPassJEM(threat.AttackedModel):
    """A classifier and energy trained by the loss above.

    ``logits`` and ``energy`` are computed from s f; chains follow the energy of f.

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
        terms: see :class:`Terms`.
    """

    def __init__(self, net: nn.Module, data: DataSpec, terms: Terms) -> None:
        super().__init__(net, data)
        self.terms = terms
        self.joint_pass = terms.joint
        self.needs_outliers = terms.outliers > 0
        self.chains: Chains = "marginal" if terms.marginal else "none"
        self.attack = threat.Attack("l2", terms.radius, steps=1, step_size=terms.radius)
        if terms.scaled:
            self.log_scale = nn.Parameter(torch.zeros(()))

    def scale(self) -> Float[Tensor, ""] | float:
        """Return s."""
        if self.terms.scaled:
            return (SPEED * self.log_scale).exp()
        return 1.0

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return s f(x)."""
        return self.scale() * execution.at_least_float32(self(x))

    def chain_energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return -logsumexp f(x), or -f(x)[y], which the chains follow.

        The loss trains the same energy.
        """
        f = execution.at_least_float32(self(x))
        if y is None:
            return marginal_energy(f)
        return -f.gather(1, y[:, None]).squeeze(1)

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss above, its terms, the scale and the mean energies."""
        terms = self.terms
        ramp = batch.ramp(self.terms.ramp)
        images = self._images(batch, negatives)
        outputs = self._outputs(images)
        energies = {name: marginal_energy(output) for name, output in outputs.items()}
        energies.setdefault("data", energies["labelled"])  # both terms on the same images

        logits = self.scale() * outputs["labelled"]
        total = F.cross_entropy(logits, batch.y_labelled)
        parts = {"cross_entropy": total}
        of_chains = None
        if "samples" in energies:
            of_chains = Energies(energies["data"], energies["samples"])
            parts["energy_data"] = of_chains.data.mean()
            parts["energy_samples"] = of_chains.samples.mean()
            gap = parts["energy_data"] - parts["energy_samples"]
            total = total + terms.marginal * ramp * gap
        if "outliers" in energies:
            inside = energies["data"]
            outside = energies["outliers"]
            of_data = F.softplus(inside).mean()
            parts["outlier_loss"] = of_data + F.softplus(-outside).mean()
            parts["energy_outliers"] = outside.mean()
            total = total + terms.outliers * ramp * parts["outlier_loss"]
        if terms.scaled:
            parts["scale"] = torch.as_tensor(self.scale())
        detached = {name: part.detach() for name, part in parts.items()}
        return Loss(total, detached, of_chains)

    def _images(self, batch: Batch, negatives: Negatives | None) -> dict[str, Tensor]:
        """Return the images of each kind, labelled images last.

        In separate passes, the last images count most in running statistics.
        """
        images = {}
        if negatives is not None:
            images["samples"] = negatives.x
        if self.needs_outliers:
            assert batch.outliers is not None
            images["outliers"] = batch.outliers
        if batch.x is not batch.x_labelled and images:
            images["data"] = batch.x
        images["labelled"] = self._partly_attacked(batch.x_labelled, batch.y_labelled)
        return images

    def _outputs(self, images: dict[str, Tensor]) -> dict[str, Float[Tensor, "_ K"]]:
        """Return f of the images of each kind, in float32 or float64."""
        if not self.terms.joint:
            kinds = images.items()
            return {name: execution.at_least_float32(self(x)) for name, x in kinds}
        x = torch.cat(list(images.values()))
        together = execution.at_least_float32(self(x))
        sizes = [len(x) for x in images.values()]
        return dict(zip(images, together.split(sizes), strict=True))

    def _partly_attacked(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]
    ) -> Float[Tensor, "B C H W"]:
        """Return the images, the first ones attacked by one step."""
        count = round(self.terms.attacked * len(x))
        if not count:
            return x
        low, high = self.data.bounds
        attacked = self.unit(x[:count])
        labels = y[:count]

        def score(images: Tensor) -> Tensor:
            return F.cross_entropy(self.logits_of_unit(images), labels, reduction="sum")

        start = self.attack.random_start(attacked)
        attacked = self.attacked(self.attack, attacked, score, start)
        moved = attacked * (high - low) + low
        return torch.cat([moved, x[count:]])
