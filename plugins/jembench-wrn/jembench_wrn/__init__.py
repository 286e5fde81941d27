"""The classifiers that hybrid models are measured against, as jembench models."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from jembench.plugin import SpecError, added_later, convert, least_net, only_with, takes

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_wrn.adversarial_training import Adversarial
    from jembench_wrn.model import Baseline


@takes(least_net)
@only_with(momentum=("norm", "batch"))
@added_later(momentum=0.1)
def baseline(
    data: DataSpec,
    *,
    net: str = "auto",
    norm: Literal["none", "batch", "instance", "layer", "act"] = "none",
    dropout: float = 0.0,
    momentum: float = 0.1,
) -> Baseline:
    """The same network as JEM's, trained on p(y|x) alone.

    ``momentum`` is the share of a batch in the running statistics of batch norm. JEM's networks have .9. A plain
    classifier sees one kind of batch and does better with .1: on digits 98.9 % against 98.6 %, the mean of six seeds
    (small-8, 8 epochs).
    """
    from jembench.parts import build_net
    from jembench_wrn.model import Baseline

    return Baseline(build_net(net, data, norm=norm, dropout=dropout, momentum=momentum))


@takes(least_net)
@only_with(momentum=("norm", "batch"))
@added_later(momentum=0.1)
def adversarial(
    data: DataSpec,
    *,
    net: str = "auto",
    norm: Literal["none", "batch", "instance", "layer", "act"] = "none",
    dropout: float = 0.0,
    momentum: float = 0.1,
    threat: str = "linf@8/255",
    steps: int = 7,
    step_size: float | None = None,
    random_start: bool = True,
) -> Adversarial:
    """The same network, trained on p(y|x) of images that are moved against it within ``threat``: the norm and the size.

    The size is in units of a pixel's range, 0 to 1, ``step_size`` in units of that size: all steps together are 2.5 of
    it unless it is given.
    """
    from jembench.parts import build_net
    from jembench_wrn.adversarial_training import Adversarial, Attack

    ball = _read(threat)
    step_size = _REACH / max(steps, 1) if step_size is None else step_size
    for option, value in {"steps": steps, "step_size": step_size}.items():
        if value <= 0:
            raise SpecError(f"{option} of adversarial is {value}; it must be above 0.")
    attack = Attack(
        norm=ball.norm, eps=ball.eps, steps=steps, step_size=step_size * ball.eps, random_start=random_start
    )
    return Adversarial(build_net(net, data, norm=norm, dropout=dropout, momentum=momentum), data, attack)


_REACH = 2.5  # all steps together, in units of eps: as far as Madry et al. (2018) go in their evaluation


class _Ball(NamedTuple):
    norm: Literal["linf", "l2"]
    eps: float


def _read(threat: str) -> _Ball:
    """A size means nothing without its norm, so that a recipe or a spec can give neither alone."""
    norm, _, size = threat.partition("@")
    with suppress(SpecError):
        eps = convert(size, float, "eps")
        if norm in ("linf", "l2") and eps > 0:
            return _Ball(norm, eps)
    raise SpecError(
        f"threat of adversarial is {threat!r}; it must be the norm and the largest size of a change, above 0 in units "
        "of a pixel's range: linf@8/255, l2@0.5."
    )
