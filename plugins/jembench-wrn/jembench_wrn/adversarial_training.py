"""Classifiers trained on adversarial images, read as energies like any classifier.

Each loss is a function of the model, images x in [0, 1] and classes y; x~ are the images of an
attack within a ball.

    pgd        CE(f(x~), y), x~ by ascent on CE
    trades     CE(f(x), y) + beta KL(p(.|x) || p(.|x~))
    weat       w CE + beta w KL, w = 1 / log(1 + e^|E(x)|)
    ratio      (CE(f(x~), y) + weight CE(f(o~), uniform)) / 2
    smoothadv  mean over i of CE(f(x~ + d_i), y)

Sources: pgd in L-inf, Madry et al. (2018), arXiv:1706.06083, equation 2.1, and in L2, Santurkar et
al. (2019), arXiv:1906.09453; trades, Zhang et al. (2019), arXiv:1901.08573; weat, Mirza et al.
(2024), arXiv:2407.06315; ratio, Augustin et al. (2020), arXiv:2003.09461; smoothadv, Salman et al.
(2019), arXiv:1906.04584.

Legend: B batch, O outliers, C channels, H height, W width, K classes, M draws of noise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import execution, marginal_energy, threat

Images = Float[Tensor, "B C H W"]
Classes = Int[Tensor, " B"]
Outliers = Float[Tensor, "O C H W"]
NOISE = 1e-3
"""The standard deviation of the noise at TRADES's starts: at the image itself, the divergence has a
gradient of 0.
"""


Objective = Callable[["Adversarial", Tensor, Tensor, Tensor | None], Loss]
"""A loss as a function of the model, images x, their classes y, and outliers or None; all images
are in [0, 1].
"""


class Adversarial(threat.AttackedModel):
    """A classifier trained on the images of attacks on it.

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
        objective: the loss with the attack in training.
        chains: ``marginal`` if the loss takes the ends of chains as outliers.
    """

    generates = False
    joint_pass = True  # its passes hold attacked, noisy or outlying images

    def __init__(
        self, net: nn.Module, data: DataSpec, objective: Objective, chains: Chains = "none"
    ) -> None:
        super().__init__(net, data)
        self.objective = objective
        self.chains: Chains = chains

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss of the labelled images, clamped to the bounds."""
        outliers = None if negatives is None else self.unit(negatives.x)
        x = self.unit(batch.x_labelled)
        return self.objective(self, x, batch.y_labelled, outliers)


def pgd(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: threat.Attack,
    random_start: bool,
) -> Loss:
    """Return CE(f(x~), y)."""
    start = attack.random_start(x) if random_start else None
    logits = model.logits_of_unit(_misled(model, x, y, attack, start))
    return _loss(logits, y, cross_entropy=F.cross_entropy(logits, y))


def trades(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: threat.Attack,
    beta: float,
    weighted: bool = False,
    of_adversarial: bool = False,
) -> Loss:
    """Return CE + beta KL(p(.|x) || p(.|x~)), where x~ maximises the divergence.

    Args:
        model: the model that is trained by this loss.
        x: the images.
        y: the classes of the images.
        outliers: not used.
        attack: maximises the divergence.
        beta: 1 / lambda of the paper.
        weighted: multiply both terms of an image by 1 / log(1 + e^|E(x)|), a constant for the
            gradient (WEAT).
        of_adversarial: take the cross-entropy of x~ in place of x.
    """
    with execution.mode(model, train=False), torch.no_grad():
        fixed = model.logits_of_unit(x).softmax(dim=1)

    def divergence(at: Tensor) -> Tensor:
        log_p = model.logits_of_unit(at).log_softmax(dim=1)
        return F.kl_div(log_p, fixed, reduction="sum")

    start = x + NOISE * torch.randn_like(x)
    moved = model.attacked(attack, x, divergence, start)
    clean = model.logits_of_unit(x)
    adversarial = model.logits_of_unit(moved)
    cross_entropy = F.cross_entropy(adversarial if of_adversarial else clean, y, reduction="none")
    log_p = clean.log_softmax(1)
    log_q = adversarial.log_softmax(1)
    kl = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=1)
    if weighted:
        energy = marginal_energy(clean.detach())
        weight = 1 / F.softplus(energy.abs())
    else:
        weight = torch.ones_like(kl)
    terms = {
        "cross_entropy": (weight * cross_entropy).mean(),
        "kl": beta * (weight * kl).mean(),
    }
    return _loss(adversarial, y, **terms)


def ratio(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: threat.Attack,
    outlier_attack: threat.Attack,
    weight: float,
) -> Loss:
    """Return (CE(f(x~), y) + weight CE(f(o~), uniform)) / 2.

    o~ maximises the second term.

    Both batches pass through the network together and share the statistics of batch norm, as in the
    authors' code.
    """
    assert outliers is not None

    def far_from_uniform(at: Tensor) -> Tensor:
        log_p = model.logits_of_unit(at).log_softmax(dim=1)
        return -log_p.mean(dim=1).sum()

    moved = _misled(model, x, y, attack)
    moved_outliers = model.attacked(outlier_attack, outliers, far_from_uniform)
    together = model.logits_of_unit(torch.cat([moved, moved_outliers]))
    logits, of_outliers = together.split([len(x), len(outliers)])
    uniform = -of_outliers.log_softmax(dim=1).mean()
    cross_entropy = F.cross_entropy(logits, y) / 2
    return _loss(logits, y, cross_entropy=cross_entropy, outliers=weight * uniform / 2)


def smoothadv(
    model: Adversarial,
    x: Images,
    y: Classes,
    outliers: Outliers | None,
    *,
    attack: threat.Attack,
    sigma: float,
    draws: int,
) -> Loss:
    """Return the mean of CE(f(x~ + d_i), y) over M draws of noise.

    The noise d_i is drawn from N(0, sigma^2 I). x~ maximises -log of the mean p(y|x~ + d_i) over
    the same draws: the attack goes through the smoothing.
    """
    shape = (draws, *x.shape)
    noise = sigma * torch.randn(shape, device=x.device, dtype=x.dtype)

    def through_smoothing(at: Tensor) -> Tensor:
        noisy = (at + noise).flatten(0, 1)
        log_p = model.logits_of_unit(noisy).log_softmax(dim=1)
        log_p = log_p.view(draws, len(at), -1)
        return F.nll_loss(log_p.logsumexp(dim=0), y, reduction="sum")  # up to the constant log M

    moved = model.attacked(attack, x, through_smoothing)
    logits = model.logits_of_unit((moved + noise).flatten(0, 1))
    labels = y.repeat(draws)
    return _loss(logits, labels, cross_entropy=F.cross_entropy(logits, labels))


def _misled(
    model: Adversarial, x: Images, y: Classes, attack: threat.Attack, start: Images | None = None
) -> Images:
    """Return the images of an attack on the cross-entropy."""

    def cross_entropy(at: Tensor) -> Tensor:
        return F.cross_entropy(model.logits_of_unit(at), y, reduction="sum")

    return model.attacked(attack, x, cross_entropy, start)


def _loss(adversarial: Float[Tensor, "B K"], y: Classes, **terms: Tensor) -> Loss:
    """Return the sum of the terms as a loss.

    Its parts are the terms and the share of adversarial images that are classified correctly.
    """
    parts = {name: term.detach() for name, term in terms.items()}
    right = adversarial.argmax(dim=1) == y
    parts["adversarial_accuracy"] = right.float().mean()
    return Loss(torch.stack([*terms.values()]).sum(), parts)
