"""The classifiers that hybrid models are measured against, as jembench models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jembench.errors import SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_wrn.adversarial_training import Adversarial
    from jembench_wrn.model import Baseline


def baseline(
    data: DataSpec,
    *,
    net: str = "auto",
    norm: Literal["none", "batch", "instance", "layer"] = "none",
    dropout: float = 0.0,
) -> Baseline:
    """The same network as JEM's, trained on p(y|x) alone."""
    from jembench.nets.build import build_net
    from jembench_wrn.model import Baseline

    return Baseline(build_net(net, data, norm=norm, dropout=dropout))


def adversarial(
    data: DataSpec,
    *,
    net: str = "auto",
    norm: Literal["none", "batch", "instance", "layer"] = "none",
    dropout: float = 0.0,
    threat: Literal["linf", "l2"] = "linf",
    eps: float | None = None,
    steps: int = 7,
    step_size: float | None = None,
    random_start: bool = True,
) -> Adversarial:
    """The same network, trained on p(y|x) of images that are moved against it within ``eps``, by ``threat``.

    ``eps`` is in units of a pixel's range, 0 to 1: 8/255 in L-inf and 0.5 in L2 unless it is given. ``step_size`` is in
    the same units; all steps together are 2.5 eps unless it is given.
    """
    from jembench.nets.build import build_net
    from jembench_wrn.adversarial_training import Adversarial, Attack

    eps = _EPS[threat] if eps is None else eps
    step_size = _STRIDE * eps / max(steps, 1) if step_size is None else step_size
    for option, value in {"eps": eps, "steps": steps, "step_size": step_size}.items():
        if value <= 0:
            raise SpecError(f"{option} of adversarial is {value}; it must be above 0.")
    attack = Attack(norm=threat, eps=eps, steps=steps, step_size=step_size, random_start=random_start)
    return Adversarial(build_net(net, data, norm=norm, dropout=dropout), data, attack)


_EPS = {"linf": 8 / 255, "l2": 0.5}
_STRIDE = 2.5  # all steps together, in units of eps: as far as Madry et al. (2018) go in their evaluation
