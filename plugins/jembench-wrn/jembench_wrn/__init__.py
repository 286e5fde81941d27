"""Classifiers for comparison with hybrid models, as jembench models."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Range, SpecError, built_from, network

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench.parts import threat as threats
    from jembench_wrn.adversarial_training import Adversarial
    from jembench_wrn.model import Baseline

Steps = Annotated[int, Range(above=0)]
Positive = Annotated[float, Range(above=0)]


_REACH = 2.5  # length of all steps in units of eps, as in the evaluation of Madry et al. (2018)


def attack_within(
    *,
    threat: str = "linf@8/255",
    steps: Steps = 10,
    step_size: Annotated[float | None, Range(above=0)] = None,
) -> threats.Attack:
    """Return the attack of a model within a threat, such as ``linf@8/255``.

    Norm and size are one option, since neither has a meaning without the other.

    Raises:
        SpecError: if ``threat`` is not a norm and a size.
    """
    from jembench.parts import threat as threats

    norm, _, size = threat.partition("@")
    with suppress(ValueError, ZeroDivisionError, OverflowError):
        eps = float(Fraction(size))
        if norm in ("linf", "l2") and eps > 0:
            if step_size is None:
                step_size = _REACH / steps
            return threats.Attack(norm, eps, steps, eps * step_size)
    raise SpecError(
        f"{threat!r} is no threat: write the norm and the largest size of a change, above 0 in "
        "units of a pixel's range, as in threat=linf@8/255 or outlier_threat=l2@0.5."
    )


@built_from(network)
def baseline(
    data: DataSpec,
    net: Module,
) -> Baseline:
    """JEM's network, trained as a classifier on p(y|x) only.

    ``momentum`` is the share of a batch in the running statistics of batch norm. JEM's networks
    take .9. A plain classifier gets only one kind of batch and is more accurate with .1: 98.9 %
    against 98.6 % on digits, means of six seeds (small-8, 8 epochs).
    """
    from jembench_wrn.model import Baseline

    return Baseline(net)


@built_from(network)
@built_from(attack_within, steps=7)
def adversarial(
    data: DataSpec,
    net: Module,
    attack: threats.Attack,
    *,
    random_start: bool = True,
) -> Adversarial:
    """JEM's network, trained on p(y|x) of adversarial images within ``threat``.

    ``threat`` is a norm and a size, in units of a pixel's range, 0 to 1; ``step_size`` is in units
    of the size. By default all steps together have a length of 2.5 sizes.
    """
    from jembench_wrn import adversarial_training as training

    objective = partial(training.pgd, attack=attack, random_start=random_start)
    return training.Adversarial(net, data, objective)


@built_from(network)
@built_from(attack_within)
def trades(
    data: DataSpec,
    net: Module,
    attack: threats.Attack,
    *,
    beta: Positive = 6.0,
) -> Adversarial:
    """TRADES: cross-entropy plus ``beta`` times a divergence from adversarial images.

    The divergence is KL(p(y|x) || p(y|x~)), which the attack that makes x~ from x maximises.
    ``threat``, ``steps`` and ``step_size`` are as for `adversarial`.
    """
    from jembench_wrn import adversarial_training as training

    objective = partial(training.trades, attack=attack, beta=beta)
    return training.Adversarial(net, data, objective)


@built_from(network)
@built_from(attack_within)
def weat(
    data: DataSpec,
    net: Module,
    attack: threats.Attack,
    *,
    variant: Literal["nat", "adv"] = "nat",
    beta: Annotated[float | None, Range(above=0)] = None,
) -> Adversarial:
    """WEAT: the loss of `trades`, where images of energies near 0 weigh more.

    The cross-entropy is of the image (``variant=nat``, by default ``beta=6``) or of the adversarial
    image (``variant=adv``, by default ``beta=7``). ``threat``, ``steps`` and ``step_size`` are as
    for `adversarial`.
    """
    from jembench_wrn import adversarial_training as training

    adversarial = variant == "adv"
    if beta is None:
        beta = 7.0 if adversarial else 6.0
    loss = partial(training.trades, weighted=True, of_adversarial=adversarial)
    return training.Adversarial(net, data, partial(loss, attack=attack, beta=beta))


@built_from(network)
@built_from(attack_within, threat="l2@0.5")
def ratio(
    data: DataSpec,
    net: Module,
    attack: threats.Attack,
    *,
    outlier_threat: str = "l2@1",
    outlier_steps: Steps = 20,
    weight: Positive = 1.0,
) -> Adversarial:
    """RATIO: the loss of `adversarial`, and uniform p(y|x) of attacked outliers.

    The attack within ``outlier_threat`` makes p(y|x) of outliers confident. In radii, steps times
    step size are those of the attack on images. Outliers are the starts of the recipe's chains,
    which have no steps: they are not images of the classes. ``threat``, ``steps`` and ``step_size``
    are as for `adversarial`.
    """
    from jembench_wrn import adversarial_training as training

    reach = attack.steps * attack.step_size / attack.eps
    outlier_attack = attack_within(
        threat=outlier_threat, steps=outlier_steps, step_size=reach / outlier_steps
    )
    objective = partial(training.ratio, attack=attack, outlier_attack=outlier_attack, weight=weight)
    return training.Adversarial(net, data, objective, chains="marginal")


@built_from(network)
@built_from(attack_within, threat="l2@0.5")
def smoothadv(
    data: DataSpec,
    net: Module,
    attack: threats.Attack,
    *,
    sigma: Positive = 0.25,
    draws: Steps = 2,
) -> Adversarial:
    """SmoothAdv: adversarial training of a classifier that will be smoothed.

    Attacks are on the mean p(y|x) over ``draws`` draws of noise.

    ``sigma`` is the standard deviation of the noise in units of a pixel's range; measure the model
    with the same noise: the metric `certified:sigma=...`, and `smooth=...` of attacks. ``threat``,
    ``steps`` and ``step_size`` are as for `adversarial`.
    """
    from jembench_wrn import adversarial_training as training

    objective = partial(training.smoothadv, attack=attack, sigma=sigma, draws=draws)
    return training.Adversarial(net, data, objective)


def one_cycle(
    *, rise: Annotated[float, Range(least=0, most=1)] = 0.25
) -> Callable[[int, int, int], float]:
    """Rise by half a cosine from 1/25 of the rate, then fall to 1/250,000.

    The rise takes a share ``rise`` of the training.

    This is the learning rate of ``torch.optim.lr_scheduler.OneCycleLR``, without the cycle of the
    momentum.
    """

    def factor(i: int, per_epoch: int, total: int) -> float:
        top = rise * total - 1
        if i <= top:
            start, end = 1 / 25, 1.0
            share = i / top
        else:
            start, end = 1.0, 1 / 250_000
            share = (i - top) / (total - 1 - top)
        remaining = (1 + math.cos(math.pi * share)) / 2
        return end + (start - end) * remaining

    return factor
