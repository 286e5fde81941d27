"""Dual adversarial training (DAT, arXiv:2510.13872), as a jembench model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jembench.plugin import Names, Neutral, OnlyWith, Range, built_from, network

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench_dat.curriculum import Curriculum
    from jembench_dat.model import DAT

Count = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
Logit = Literal["code", "joint", "marginal"]


@built_from(network)
def dat(
    data: DataSpec,
    net: Module,
    *,
    freeze: Annotated[bool, OnlyWith("norm", "batch")] = True,
    logit: Logit = "code",
    marginal: Positive = 0.5,
    ramp: Annotated[int, Range(least=0), Neutral()] = 0,
    clean: Annotated[float, Range(least=0), Neutral()] = 0.0,
    eps: Positive = 0.5,
    steps: Count = 10,
    step_size: Positive = 0.1,
) -> DAT:
    """A classifier of attacked images whose energies tell data from ascended outliers.

    With ``logit="code"``, as in the authors' code, outliers ascend f(x)[y] and the curriculum ranks
    by f(x)[y], while the binary cross-entropy is on logsumexp f(x). All three are on f(x)[y] with
    ``joint``, and on logsumexp f(x), as in the paper, with ``marginal``.

    The option ``marginal`` is the weight of the binary cross-entropy: .5 in the authors' code, 1 in
    the paper; the weight rises linearly from 0 over the first ``ramp`` iterations. ``clean`` is the
    weight of a further cross-entropy, on the images before the attack. The attack takes ``steps``
    of ``step_size`` in L2 within ``eps``, in units of a pixel's range. ``freeze`` leaves the
    statistics of batch norm unchanged, for a second stage that starts from a trained fit.
    """
    from jembench.parts import threat
    from jembench_dat.model import DAT

    attack = threat.Attack("l2", eps, steps, step_size)
    weights = {"marginal": marginal, "ramp": ramp, "clean": clean}
    return DAT(net, data, attack, logit=logit, **weights, freeze=freeze)


def ascent_curriculum(
    data: DataSpec,
    *,
    auroc: Annotated[float, Range(least=0, most=1)] = 0.8,
    most: Count = 50,
    steps: Count = 0,
    step_size: Positive = 0.1,
    start: Annotated[str, Names("starts")] = "uniform",
) -> Curriculum:
    """The sampler ascent, which grows while training tells samples from data.

    Chains have ``steps`` steps at first, and at most ``most``. One step is added after each window
    of ``log_every`` iterations in which the mean AUROC of data against samples, by energy, is at
    least ``auroc``.
    """
    from jembench.parts import ascent
    from jembench_dat.curriculum import Curriculum

    first = ascent(data, steps=steps, step_size=step_size, start=start)
    return Curriculum(first, auroc=auroc, most=most)
