"""Classifiers trained on adversarial images near the training images, read as energies like any classifier.

Each loss is a function of the model, images x in [0, 1] and classes y; x~ are the images of an attack within a ball.

    pgd        CE(f(x~), y),  x~ by ascent on CE            Madry et al. (2018), arXiv:1706.06083, equation 2.1, in
                                                            L-inf; Santurkar et al. (2019), arXiv:1906.09453, in L2
    trades     CE(f(x), y) + beta KL(p(.|x) || p(.|x~))     Zhang et al. (2019), arXiv:1901.08573
    weat       w CE + beta w KL,  w = 1 / log(1 + e^|E(x)|)     Mirza et al. (2024), arXiv:2407.06315
    ratio      (CE(f(x~), y) + weight CE(f(o~), uniform)) / 2   Augustin et al. (2020), arXiv:2003.09461
    smoothadv  mean over i of CE(f(x~ + d_i), y)            Salman et al. (2019), arXiv:1906.04584

Legend: B batch, O outliers, C channels, H height, W width, K classes, M draws of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import LogitModel, execution, marginal_energy, threat

Images = Float[Tensor, "B C H W"]
Classes = Int[Tensor, " B"]
Outliers = Float[Tensor, "O C H W"]
Begin = Literal["image", "ball", "noise"]
"""The start of an attack: the image, a point drawn uniformly from the ball, or the image with noise of ``NOISE``."""

NOISE = 1e-3
"""The noise of TRADES, without which the gradient of the divergence is 0 at the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """Projected gradient ascent from training images; lengths in units of a pixel's range, 0 to 1."""

    norm: threat.Norm
    eps: float
    steps: int
    step_size: float
    begin: Begin

    def on(self, model: Adversarial, x: Images, score: Callable[[Tensor], Tensor]) -> Images:
        """Return the last images of an ascent from x on the sum of a score, successful or not.

        The network is in evaluation mode, so that the attack does not change the statistics of batch norm, and dropout
        draws no new mask at each step.
        """
        start = None
        if self.begin == "ball":
            start = x + self.eps * threat.in_unit_ball(len(x), tuple(x.shape[1:]), self.norm, x.device)
        elif self.begin == "noise":
            start = x + NOISE * torch.randn_like(x)
        with execution.mode(model, train=False):
            return threat.ascend(score, x, self.eps, self.norm, steps=self.steps, step_size=self.step_size, start=start)


Objective = Callable[["Adversarial", Tensor, Tensor, Tensor | None], Loss]
"""A loss of a model, images x and their classes y, and outliers if the loss has some, all images in [0, 1]."""


class Adversarial(LogitModel):
    """A classifier trained on the images of attacks on it.

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
        objective: the loss with its attack, which does not depend on attacks in evaluation.
        chains: ``marginal`` if the ends of chains are the outliers of the loss.
    """

    generates = False

    def __init__(self, net: nn.Module, data: DataSpec, objective: Objective, chains: Chains = "none") -> None:
        super().__init__(net)
        self.data = data
        self.objective = objective
        self.chains: Chains = chains

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss of the labelled images, clamped to the bounds, so that adversarial images are valid."""
        outliers = None if negatives is None else self._unit(negatives.x)
        return self.objective(self, self._unit(batch.x_labelled), batch.y_labelled, outliers)

    def logits_of_unit(self, x: Images) -> Float[Tensor, "B K"]:
        """Return f(x) of images in [0, 1], in float32 or float64."""
        low, high = self.data.bounds
        return execution.at_least_float32(self.logits(x * (high - low) + low))

    def _unit(self, x: Images) -> Images:
        low, high = self.data.bounds
        return ((x - low) / (high - low)).clamp(0, 1)


def pgd(model: Adversarial, x: Images, y: Classes, outliers: Outliers | None, *, attack: Attack) -> Loss:
    """Return CE(f(x~), y)."""
    logits = model.logits_of_unit(_misled(model, x, y, attack))
    return _loss(logits, y, cross_entropy=F.cross_entropy(logits, y))


def trades(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: Attack,
    beta: float,
    weighted: bool = False,
    of_adversarial: bool = False,
) -> Loss:
    """Return CE + beta KL(p(.|x) || p(.|x~)), where x~ maximises the divergence.

    Args:
        model: trained on it.
        x: the images.
        y: their classes.
        outliers: not used.
        attack: on the divergence.
        beta: 1 / lambda of the paper.
        weighted: multiply both terms of an image by 1 / log(1 + e^|E(x)|), without its gradient (WEAT).
        of_adversarial: take the cross-entropy of x~ in place of x.
    """
    with execution.mode(model, train=False), torch.no_grad():
        fixed = model.logits_of_unit(x).softmax(dim=1)

    def divergence(at: Tensor) -> Tensor:
        return F.kl_div(model.logits_of_unit(at).log_softmax(dim=1), fixed, reduction="sum")

    moved = attack.on(model, x, divergence)
    clean, adversarial = model.logits_of_unit(x), model.logits_of_unit(moved)
    cross_entropy = F.cross_entropy(adversarial if of_adversarial else clean, y, reduction="none")
    kl = F.kl_div(adversarial.log_softmax(1), clean.log_softmax(1), reduction="none", log_target=True).sum(dim=1)
    weight = 1 / F.softplus(marginal_energy(clean.detach()).abs()) if weighted else torch.ones_like(kl)
    return _loss(adversarial, y, cross_entropy=(weight * cross_entropy).mean(), kl=beta * (weight * kl).mean())


def ratio(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: Attack,
    outlier_attack: Attack,
    weight: float,
) -> Loss:
    """Return (CE(f(x~), y) + weight CE(f(o~), uniform)) / 2, where o~ maximises the second term.

    Both batches pass through the network together and share the statistics of batch norm, as in the authors' code.
    """
    assert outliers is not None

    def far_from_uniform(at: Tensor) -> Tensor:
        return -model.logits_of_unit(at).log_softmax(dim=1).mean(dim=1).sum()

    moved = _misled(model, x, y, attack)
    images = torch.cat([moved, outlier_attack.on(model, outliers, far_from_uniform)])
    logits, other = model.logits_of_unit(images).split([len(x), len(outliers)])
    uniform = -other.log_softmax(dim=1).mean()
    return _loss(logits, y, cross_entropy=F.cross_entropy(logits, y) / 2, outliers=weight * uniform / 2)


def smoothadv(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: Attack,
    sigma: float,
    draws: int,
) -> Loss:
    """Return the mean over M draws d_i of N(0, sigma^2 I) of CE(f(x~ + d_i), y).

    x~ maximises -log of the mean of p(y|x~ + d_i): the attack goes through the smoothing, with the same draws.
    """
    noise = sigma * torch.randn(draws, *x.shape, device=x.device, dtype=x.dtype)

    def through_smoothing(at: Tensor) -> Tensor:
        log_p = model.logits_of_unit((at + noise).flatten(0, 1)).log_softmax(dim=1).view(draws, *at.shape[:1], -1)
        return F.nll_loss(log_p.logsumexp(dim=0), y, reduction="sum")  # up to the constant log M

    logits = model.logits_of_unit((attack.on(model, x, through_smoothing) + noise).flatten(0, 1))
    labels = y.repeat(draws)
    return _loss(logits, labels, cross_entropy=F.cross_entropy(logits, labels))


def _misled(model: Adversarial, x: Images, y: Classes, attack: Attack) -> Images:
    """Return the images of an attack on the cross-entropy."""
    return attack.on(model, x, lambda at: F.cross_entropy(model.logits_of_unit(at), y, reduction="sum"))


def _loss(adversarial: Float[Tensor, "B K"], y: Classes, **terms: Tensor) -> Loss:
    """Return the sum of terms; its parts are these and the share of adversarial images classified correctly."""
    parts = {name: term.detach() for name, term in terms.items()}
    accuracy = (adversarial.argmax(dim=1) == y).float().mean()
    return Loss(torch.stack([*terms.values()]).sum(), {**parts, "adversarial_accuracy": accuracy})
