"""The attacks that core registers, as metrics. Imports nothing heavy until one is made.

``budget`` names what an attack may spend: ``paper`` (300 images, 20 restarts, 40 steps, 5 chains) or ``quick``, for a
look on a CPU. ``images``, ``restarts``, ``steps``, ``eot`` and ``queries`` replace a number of it. ``refine`` is the
steps of the model's own chain from each image before it is classified, and ``eot`` the chains whose mean counts.
``data_noise`` is that of the reference code before each chain (standard deviation on [-1, 1]); ``smooth`` is that of
randomised smoothing (on [0, 1]), with ``eot`` noisy copies in place of chains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jembench.catalog.spec import added_later
from jembench.metrics.budgets import BUDGETS

if TYPE_CHECKING:
    from jembench.interfaces import Metric

CHECKED = 100
"""Images of a budget on which the gradients are checked."""


@added_later(data_noise=0.0, smooth=0.0)
def pgd(
    *,
    norm: Literal["linf", "l2"] = "linf",
    eps: str = "",
    refine: int = 0,
    grad: Literal["through", "bpda"] = "through",
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    restarts: int | None = None,
    steps: int | None = None,
    eot: int | None = None,
    resamples: int = 1000,
    data_noise: float = 0.0,
    smooth: float = 0.0,
) -> Metric:
    """Projected gradient descent: the median distance, in levels of 255, to the nearest image of another class.

    Beside it the accuracy within some eps; with ``eps`` (8/255, of a pixel's range) the accuracy within it alone.
    """
    from jembench.metrics.defence import Defence
    from jembench.metrics.robustness import PGDRobustness

    spent = BUDGETS[budget].but(images=images, restarts=restarts, steps=steps, eot=eot)
    return PGDRobustness(
        norm=norm,
        eps=eps,
        defence=Defence(refine=refine, eot=spent.eot, grad=grad, data_noise=data_noise, smooth=smooth),
        images=spent.images,
        restarts=spent.restarts,
        steps=spent.steps,
        tolerance=spent.tolerance,
        resamples=resamples,
    )


@added_later(data_noise=0.0, smooth=0.0)
def boundary(
    *,
    refine: int = 0,
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    queries: int | None = None,
    eot: int | None = None,
    resamples: int = 1000,
    data_noise: float = 0.0,
    smooth: float = 0.0,
) -> Metric:
    """The boundary attack, which sees classes alone: the median distances to the nearest image of another class.

    It begins at a test image of the class ranked second; ``queries`` are the answers that it may ask for, an image.
    """
    return _by_decisions("boundary", refine, budget, images, queries, eot, resamples, data_noise, smooth)


@added_later(data_noise=0.0, smooth=0.0)
def pointwise(
    *,
    refine: int = 0,
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    queries: int | None = None,
    eot: int | None = None,
    resamples: int = 1000,
    data_noise: float = 0.0,
    smooth: float = 0.0,
) -> Metric:
    """The pointwise attack, which sees classes alone: the median distances to the nearest image of another class.

    It sets pixels back, one after the other, from a test image of the class ranked second.
    """
    return _by_decisions("pointwise", refine, budget, images, queries, eot, resamples, data_noise, smooth)


def _by_decisions(
    name: Literal["boundary", "pointwise"],
    refine: int,
    budget: Literal["paper", "quick"],
    images: int | None,
    queries: int | None,
    eot: int | None,
    resamples: int,
    data_noise: float,
    smooth: float,
) -> Metric:
    from jembench.metrics.decision_robustness import DecisionRobustness
    from jembench.metrics.defence import Defence

    spent = BUDGETS[budget].but(images=images, queries=queries, eot=eot)
    defence = Defence(refine=refine, eot=spent.eot, grad="none", data_noise=data_noise, smooth=smooth)
    return DecisionRobustness(
        name=name, defence=defence, images=spent.images, queries=spent.queries, resamples=resamples
    )


@added_later(data_noise=0.0, smooth=0.0)
def ensemble(
    *,
    norm: Literal["linf", "l2"] = "linf",
    eps: str,
    refine: int = 0,
    grad: Literal["through", "bpda"] = "through",
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    restarts: int | None = None,
    steps: int | None = None,
    queries: int | None = None,
    eot: int | None = None,
    data_noise: float = 0.0,
    smooth: float = 0.0,
) -> Metric:
    """Accuracy in % under the worst of automatic PGD, on two losses, and the boundary attack, all within ``eps``.

    In the spirit of AutoAttack. Needs the Adversarial Robustness Toolbox: `pip install 'jembench[ensemble]'`.
    """
    from jembench.metrics.defence import Defence
    from jembench.metrics.ensemble import EnsembleRobustness

    spent = BUDGETS[budget].but(images=images, restarts=restarts, steps=steps, queries=queries, eot=eot)
    return EnsembleRobustness(
        norm=norm,
        eps=eps,
        defence=Defence(refine=refine, eot=spent.eot, grad=grad, data_noise=data_noise, smooth=smooth),
        images=spent.images,
        restarts=spent.restarts,
        steps=spent.steps,
        queries=spent.queries,
    )


@added_later(data_noise=0.0)
def transfer(
    *,
    norm: Literal["linf", "l2"] = "linf",
    refine: int = 10,
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    restarts: int | None = None,
    steps: int | None = None,
    eot: int | None = None,
    data_noise: float = 0.0,
) -> Metric:
    """Adversarial images of the model as it is, shown to it with refinement: the share in % that deceives it still."""
    from jembench.metrics.transfer import Transfer

    spent = BUDGETS[budget].but(images=images, restarts=restarts, steps=steps, eot=eot)
    return Transfer(
        norm=norm,
        refine=refine,
        eot=spent.eot,
        images=spent.images,
        restarts=spent.restarts,
        steps=spent.steps,
        tolerance=spent.tolerance,
        data_noise=data_noise,
    )


@added_later(data_noise=0.0)
def distal(
    *,
    target: str = "all",
    refine: int = 0,
    grad: Literal["through", "bpda"] = "through",
    budget: Literal["paper", "quick"] = "paper",
    images: int = 100,
    steps: int = 200,
    threshold: float = 0.9,
    eot: int | None = None,
    resamples: int = 1000,
    data_noise: float = 0.0,
) -> Metric:
    """Noise made into images of a class: the share in % of which the model becomes sure, and in how many steps.

    ``target`` is a class by its name, or ``all``, each as often. A budget says the number of chains alone.
    """
    from jembench.metrics.defence import Defence
    from jembench.metrics.distal import DistalAdversarials

    spent = BUDGETS[budget].but(eot=eot)
    return DistalAdversarials(
        target=target,
        defence=Defence(refine=refine, eot=spent.eot, grad=grad, data_noise=data_noise),
        images=images,
        steps=steps,
        threshold=threshold,
        resamples=resamples,
    )


@added_later(data_noise=0.0, smooth=0.0)
def gradient_checks(
    *,
    norm: Literal["linf", "l2"] = "linf",
    refine: int = 0,
    grad: Literal["through", "bpda"] = "through",
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    restarts: int | None = None,
    steps: int | None = None,
    eot: int | None = None,
    queries: int | None = None,
    resamples: int = 1000,
    data_noise: float = 0.0,
    smooth: float = 0.0,
) -> Metric:
    """Whether attacks by gradients can be believed: sanity checks in %, all of them 0 at best.

    A check that fails is told as suspicious, with the reason. Of the paper's 300 images the first 100 are looked at.
    """
    from jembench.metrics.defence import Defence
    from jembench.metrics.gradient_checks import GradientChecks

    named = BUDGETS[budget]
    checked = min(CHECKED, named.images) if images is None else images
    spent = named.but(images=checked, restarts=restarts, steps=steps, eot=eot, queries=queries)
    return GradientChecks(
        norm=norm,
        defence=Defence(refine=refine, eot=spent.eot, grad=grad, data_noise=data_noise, smooth=smooth),
        images=spent.images,
        restarts=spent.restarts,
        steps=spent.steps,
        tolerance=spent.tolerance,
        queries=spent.queries,
        resamples=resamples,
    )


def certified(
    *,
    sigma: float = 0.25,
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    copies: int | None = None,
    alpha: float = 0.001,
    resamples: int = 1000,
) -> Metric:
    """Randomised smoothing: the accuracy in % that is certified within sizes of a change in L2, and the mean radius.

    ``sigma`` is that of the noise, on [0, 1]; ``copies`` are the noisy images that certify one: 100,000, quick 1,000.
    """
    from jembench.metrics.certified import CertifiedRobustness

    spent = BUDGETS[budget].but(images=images, copies=copies)
    return CertifiedRobustness(sigma=sigma, images=spent.images, copies=spent.copies, alpha=alpha, resamples=resamples)
