"""Scores that tell test images from images of another kind; higher for what a model takes to be in-distribution.

A score is a component of its own (``jembench list scores``): another one is a function here and an entry point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jembench.interfaces import Evaluation, Need, Quantity
from jembench.interfaces.models import Capability

if TYPE_CHECKING:
    from torch import Tensor


class OfPrediction(NamedTuple):
    """A function of what one pass through the network gives; the :class:`~jembench.interfaces.OODScore` of most."""

    capability: Capability
    quantity: Quantity
    function: Callable[[Tensor], Tensor]  # float64 (N,) or (N, K) -> (N,)

    @property
    def requires(self) -> frozenset[Need]:
        """Return what a model must give."""
        return frozenset({self.capability})

    @property
    def reads(self) -> frozenset[Quantity]:
        """Return what is read of test images and outliers."""
        return frozenset({self.quantity})

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        return self.function(evaluation.predictions.read(self.quantity, images, noise).double())


class Refinement(NamedTuple):
    """How little energy the model's own chain takes off an image: what is likely already stays as it is."""

    steps: int
    requires: frozenset[Need] = frozenset({"energy", "samples", "chains"})
    reads: frozenset[Quantity] = frozenset({"energy"})

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        refined = evaluation.predictions.refined(images, self.steps, noise).double()
        return refined - evaluation.predictions.read("energy", images, noise).double()


def log_px() -> OfPrediction:
    """Log p(x), up to a constant.

    Of a classifier that is logsumexp of the logits, the energy score of Liu et al. (2020), arXiv:2010.03759. This one,
    max-py and grad-norm are those of Grathwohl et al. (2020), arXiv:1912.03263, section 5.3, Tables 3 and 7.
    """
    return OfPrediction("energy", "energy", lambda energy: -energy)


def max_py() -> OfPrediction:
    """The largest p(y|x)."""
    return OfPrediction("logits", "logits", lambda logits: logits.softmax(dim=1).amax(dim=1))


def grad_norm() -> OfPrediction:
    """Minus the L2 norm of the gradient of log p(x)."""
    return OfPrediction("energy", "grad-norm", lambda norm: -norm)


def max_logit() -> OfPrediction:
    """The largest logit: Hendrycks et al. (2022), arXiv:1911.11132."""
    return OfPrediction("logits", "logits", lambda logits: logits.amax(dim=1))


def refinement(*, steps: int = 10) -> Refinement:
    """How little energy the model's own chain of ``steps`` takes off an image."""
    return Refinement(steps)
