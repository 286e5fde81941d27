"""Classifiers for comparison with hybrid models, as jembench models."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Names, OnlyWith, Range, SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_wrn.adversarial_training import Adversarial, Attack, Begin
    from jembench_wrn.model import Baseline

Norm = Literal["none", "batch", "instance", "layer", "act"]
Net = Annotated[str, Names()]
Momentum = Annotated[float, OnlyWith("norm", "batch")]
Steps = Annotated[int, Range(above=0)]
StepSize = Annotated[float | None, Range(above=0)]
Positive = Annotated[float, Range(above=0)]


def baseline(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.1,
) -> Baseline:
    """JEM's network, trained as a classifier, on p(y|x) alone.

    ``momentum`` is the share of a batch in the running statistics of batch norm. JEM's networks have .9. A plain
    classifier gets one kind of batch and is more accurate with .1: on digits 98.9 % against 98.6 %, the mean of six
    seeds (small-8, 8 epochs).
    """
    from jembench.parts import build_net
    from jembench_wrn.model import Baseline

    return Baseline(build_net(net, data, norm=norm, dropout=dropout, momentum=momentum))


def adversarial(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.1,
    threat: str = "linf@8/255",
    steps: Steps = 7,
    step_size: StepSize = None,
    random_start: bool = True,
) -> Adversarial:
    """JEM's network, trained on p(y|x) of adversarial images within ``threat``, a norm and a radius.

    The size is in units of a pixel's range, 0 to 1, and ``step_size`` in units of that size. By default all steps
    together have a length of 2.5 sizes.
    """
    from jembench.parts import build_net
    from jembench_wrn import adversarial_training as training

    attack = _attack("adversarial", threat, steps, step_size, "ball" if random_start else "image")
    network = build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)
    return training.Adversarial(network, data, partial(training.pgd, attack=attack))


def trades(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.1,
    threat: str = "linf@8/255",
    steps: Steps = 10,
    step_size: StepSize = None,
    beta: Positive = 6.0,
) -> Adversarial:
    """TRADES: cross-entropy, and ``beta`` times the divergence of p(y|x) from that of adversarial images.

    The attack maximises the divergence. ``threat``, ``steps`` and ``step_size`` are as for `adversarial`.
    """
    from jembench.parts import build_net
    from jembench_wrn import adversarial_training as training

    attack = _attack("trades", threat, steps, step_size, "noise")
    network = build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)
    return training.Adversarial(network, data, partial(training.trades, attack=attack, beta=beta))


def weat(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.1,
    threat: str = "linf@8/255",
    steps: Steps = 10,
    step_size: StepSize = None,
    variant: Literal["nat", "adv"] = "nat",
    beta: Annotated[float | None, Range(above=0)] = None,
) -> Adversarial:
    """WEAT: the loss of `trades`, in which images of energies near 0 weigh more.

    The cross-entropy is that of the image (``variant=nat``, ``beta`` 6) or of the adversarial one (``adv``, 7).
    ``threat``, ``steps`` and ``step_size`` are as for `adversarial`.
    """
    from jembench.parts import build_net
    from jembench_wrn import adversarial_training as training

    attack, adv = _attack("weat", threat, steps, step_size, "noise"), variant == "adv"
    beta = (7.0 if adv else 6.0) if beta is None else beta
    network = build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)
    return training.Adversarial(
        network, data, partial(training.trades, attack=attack, beta=beta, weighted=True, of_adversarial=adv)
    )


def ratio(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.1,
    threat: str = "l2@0.5",
    steps: Steps = 10,
    step_size: StepSize = None,
    outlier_threat: str = "l2@1",
    outlier_steps: Steps = 20,
    weight: Positive = 1.0,
) -> Adversarial:
    """RATIO: `adversarial`, and uniform p(y|x) of outliers that an attack within ``outlier_threat`` made confident.

    The outliers are the ends of the recipe's chains: of no steps, from starts that are not images of the classes. Their
    attack goes as many sizes far as that on images. ``threat``, ``steps`` and ``step_size`` are as for `adversarial`.
    """
    from jembench.parts import build_net
    from jembench_wrn import adversarial_training as training

    attack = _attack("ratio", threat, steps, step_size, "image")
    length = None if step_size is None else step_size * steps / outlier_steps
    outlier_attack = _attack("ratio", outlier_threat, outlier_steps, length, "image", "outlier_threat")
    network = build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)
    objective = partial(training.ratio, attack=attack, outlier_attack=outlier_attack, weight=weight)
    return training.Adversarial(network, data, objective, chains="marginal")


def smoothadv(
    data: DataSpec,
    *,
    net: Net = "auto",
    norm: Norm = "none",
    dropout: float = 0.0,
    momentum: Momentum = 0.1,
    threat: str = "l2@0.5",
    steps: Steps = 10,
    step_size: StepSize = None,
    sigma: Positive = 0.25,
    draws: Steps = 2,
) -> Adversarial:
    """SmoothAdv: a classifier to be smoothed, trained on attacks on the mean of p(y|x) over ``draws`` of noise.

    ``sigma`` is the standard deviation of the noise in units of a pixel's range; measure the model with the same noise:
    the metric `certified:sigma=...`, and `smooth=...` of attacks. ``threat``, ``steps`` and ``step_size`` are as for
    `adversarial`.
    """
    from jembench.parts import build_net
    from jembench_wrn import adversarial_training as training

    attack = _attack("smoothadv", threat, steps, step_size, "image")
    network = build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)
    return training.Adversarial(network, data, partial(training.smoothadv, attack=attack, sigma=sigma, draws=draws))


_REACH = 2.5  # length of all steps in units of eps, as in the evaluation of Madry et al. (2018)


def _attack(
    model: str, threat: str, steps: int, step_size: float | None, begin: Begin, option: str = "threat"
) -> Attack:
    """Return an attack; its norm and its size are one option because neither has a meaning alone.

    Raises:
        SpecError: if ``threat`` is no norm and size.
    """
    from jembench_wrn.adversarial_training import Attack

    norm, _, size = threat.partition("@")
    with suppress(ValueError, ZeroDivisionError, OverflowError):
        eps = float(Fraction(size))
        if norm in ("linf", "l2") and eps > 0:
            length = eps * (_REACH / steps if step_size is None else step_size)
            return Attack(norm=norm, eps=eps, steps=steps, step_size=length, begin=begin)
    raise SpecError(
        f"{option} of {model} is {threat!r}; it must be the norm and the largest size of a change, above 0 in units "
        "of a pixel's range: linf@8/255, l2@0.5."
    )


def one_cycle(*, rise: Annotated[float, Range(least=0, most=1)] = 0.25) -> Callable[[int, int, int], float]:
    """Rise by half a cosine from 1/25 of the rate in a share ``rise`` of the training, then fall to 1/250,000.

    This is the learning rate of ``torch.optim.lr_scheduler.OneCycleLR``, whose momentum falls and rises as well.
    """

    def factor(i: int, per_epoch: int, total: int) -> float:
        top = rise * total - 1
        start, end, share = (1 / 25, 1.0, i / top) if i <= top else (1.0, 1 / 250_000, (i - top) / (total - 1 - top))
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2

    return factor
