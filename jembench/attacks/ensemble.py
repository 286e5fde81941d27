"""Several strong attacks of one size, one after the other, each on the images that are not broken yet.

In the spirit of AutoAttack (Croce & Hein, 2020, arXiv:2003.01690): automatic PGD on cross-entropy and on the difference
of logits ratio, by the Adversarial Robustness Toolbox, then the boundary attack, by foolbox.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from jembench.attacks import decision
from jembench.attacks.decision import Start
from jembench.attacks.eps import Norm
from jembench.attacks.foolbox_bridge import TargetModule, seeded
from jembench.attacks.target import Target
from jembench.attacks.threat import distance, project
from jembench.errors import Unavailable

Member = Literal["apgd-ce", "apgd-dlr", "boundary"]
MEMBERS: tuple[Member, ...] = ("apgd-ce", "apgd-dlr", "boundary")

_LOSSES: Mapping[Member, str] = {"apgd-ce": "cross_entropy", "apgd-dlr": "difference_logits_ratio"}


class Broken(NamedTuple):
    """The result for each image."""

    adversarial: Tensor  # (N, C, H, W)
    by: Tensor  # int64 (N,): the place in MEMBERS of the attack that broke it first; -1: misclassified; -2: it stands


def attack(
    target: Target,
    x: Float[Tensor, "N C H W"],
    y: Int[Tensor, " N"],
    start: Start,
    *,
    norm: Norm,
    eps: float,
    steps: int,
    restarts: int,
    queries: int,
    seed: int,
) -> Broken:
    """Break every image that any of the attacks can break within eps.

    Args:
        target: the model.
        x: images in [0, 1].
        y: their classes.
        start: the start of the boundary attack.
        norm: the norm of the perturbation.
        eps: its largest size.
        steps: the steps per restart of automatic PGD.
        restarts: the restarts of automatic PGD.
        queries: the queries per image of the boundary attack.
        seed: the random seed.

    Raises:
        Unavailable: if the Adversarial Robustness Toolbox is not installed.
    """
    found = Broken(x.clone(), torch.where(target.deceived(x, y), -1, -2))
    for place, member in enumerate(MEMBERS):
        left = found.by == -2
        if not bool(left.any()) or (member == "apgd-dlr" and target.data.num_classes < 3):
            continue  # the ratio's denominator is of the third largest logit
        if member == "boundary":
            began = Start(start.x[left], start.found[left])
            made = decision.attack("boundary", target, x[left], y[left], began, queries=queries, seed=seed).adversarial
        else:
            with seeded(seed + place):
                made = _apgd(target, x[left], y[left], _LOSSES[member], norm, eps, steps, restarts)
        good = (distance(x[left], made, norm) <= eps) & target.deceived(made, y[left])
        index = left.nonzero().flatten()[good]
        found.adversarial[index] = made[good]
        found.by[index] = place
    return found


def _apgd(target: Target, x: Tensor, y: Tensor, loss: str, norm: Norm, eps: float, steps: int, restarts: int) -> Tensor:
    attack, classifier = toolbox()
    estimator = classifier(
        model=TargetModule(target),
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=tuple(x.shape[1:]),
        nb_classes=target.data.num_classes,
        clip_values=(0.0, 1.0),
        device_type="cpu",  # where its arrays are
    )
    apgd = attack(
        estimator=estimator,
        norm=np.inf if norm == "linf" else 2,
        eps=eps,
        eps_step=2 * eps,  # as in the paper's section 3
        max_iter=steps,
        nb_random_init=restarts,
        batch_size=len(x),
        loss_type=loss,
        verbose=False,
    )
    with torch.enable_grad():
        made = apgd.generate(x.cpu().numpy(), y.cpu().numpy())
    # its own projection leaves the bounds, or the ball, by what float32 rounds off
    return project(torch.from_numpy(made).to(x), x, torch.full_like(y, eps, dtype=x.dtype), norm)


def toolbox() -> tuple[Any, Any]:
    """Automatic PGD and the classifier that it attacks, from the Adversarial Robustness Toolbox.

    Raises:
        Unavailable: if it is not installed.
    """
    try:
        from art.attacks.evasion import AutoProjectedGradientDescent
        from art.estimators.classification import PyTorchClassifier
    except ImportError as error:
        raise Unavailable(
            f"The Adversarial Robustness Toolbox cannot be imported ({error}). The ensemble needs it for automatic "
            "PGD: `pip install 'jembench[ensemble]'` installs it."
        ) from error
    logging.getLogger("art").setLevel(logging.ERROR)  # it warns about the loss of every model
    return AutoProjectedGradientDescent, PyTorchClassifier
