"""Classifiers for comparison with hybrid models, as jembench models."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from jembench.plugin import Names, OnlyWith, Range, SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_wrn.adversarial_training import Adversarial
    from jembench_wrn.model import Baseline

Norm = Literal["none", "batch", "instance", "layer", "act"]
Net = Annotated[str, Names()]
Momentum = Annotated[float, OnlyWith("norm", "batch")]


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
    steps: Annotated[int, Range(above=0)] = 7,
    step_size: Annotated[float | None, Range(above=0)] = None,
    random_start: bool = True,
) -> Adversarial:
    """JEM's network, trained on p(y|x) of adversarial images within ``threat``, a norm and a radius.

    The size is in units of a pixel's range, 0 to 1, and ``step_size`` in units of that size. By default all steps
    together have a length of 2.5 sizes.
    """
    from jembench.parts import build_net
    from jembench_wrn.adversarial_training import Adversarial, Attack

    ball = _read(threat)
    step_size = _REACH / steps if step_size is None else step_size
    attack = Attack(
        norm=ball.norm, eps=ball.eps, steps=steps, step_size=step_size * ball.eps, random_start=random_start
    )
    return Adversarial(build_net(net, data, norm=norm, dropout=dropout, momentum=momentum), data, attack)


_REACH = 2.5  # length of all steps in units of eps, as in the evaluation of Madry et al. (2018)


class _Ball(NamedTuple):
    norm: Literal["linf", "l2"]
    eps: float


def _read(threat: str) -> _Ball:
    """Read the norm and the size, which are one option because neither has a meaning alone.

    Raises:
        SpecError: if the text is no norm and size.
    """
    norm, _, size = threat.partition("@")
    with suppress(ValueError, ZeroDivisionError, OverflowError):
        eps = float(Fraction(size))
        if norm in ("linf", "l2") and eps > 0:
            return _Ball(norm, eps)
    raise SpecError(
        f"threat of adversarial is {threat!r}; it must be the norm and the largest size of a change, above 0 in units "
        "of a pixel's range: linf@8/255, l2@0.5."
    )
