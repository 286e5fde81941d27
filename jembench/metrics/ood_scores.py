"""Scores for out-of-distribution detection.

A higher score means more likely in-distribution.

A score is a component (``jembench list scores``), registered by an entry point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Need, Quantity
from jembench.interfaces.models import Capability
from jembench.metrics.classification import log_odds

if TYPE_CHECKING:
    from torch import Tensor


class PredictionScore(NamedTuple):
    """An OOD score that is a function of one quantity of a pass."""

    capability: Capability
    quantity: Quantity
    function: Callable[[Tensor], Tensor]  # float64 (N,) or (N, K) -> (N,)

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score."""
        return frozenset({self.capability})

    @property
    def reads(self) -> frozenset[Quantity]:
        """The quantities read of test images and outliers."""
        return frozenset({self.quantity})

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        return self.of(lambda quantity: evaluation.predictions.read(quantity, images, noise))

    def of(self, read: Callable[[Quantity], Tensor]) -> Tensor:
        """Return the score of each image, float64 (N,), from the quantity."""
        return self.function(read(self.quantity).double())


class Refinement(NamedTuple):
    """Minus the fall of energy in the model's chain: likely images hardly change."""

    steps: int
    requires: frozenset[Need] = frozenset({"energy", "samples", "chains", "memory"})
    reads: frozenset[Quantity] = frozenset({"energy"})

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        refined = evaluation.predictions.refined(images, self.steps, noise)
        energy = evaluation.predictions.read("energy", images, noise)
        return refined.double() - energy.double()


def log_px() -> PredictionScore:
    """Log p(x), up to a constant.

    For a classifier it is logsumexp of the logits, the energy score of Liu et al. (2020),
    arXiv:2010.03759. Grathwohl et al. (2020), arXiv:1912.03263, section 5.3, Tables 3 and 7, use
    log-px, max-py and grad-norm.
    """
    return PredictionScore("energy", "energy", lambda energy: -energy)


def max_py() -> PredictionScore:
    """The largest p(y|x), ranked by its log-odds.

    Log-odds have the order of p(y|x), and do not round to one value where p(y|x) is close to 1.
    """

    def score(logits: Tensor) -> Tensor:
        if logits.shape[1] < 2:
            raise NotApplicable("With one class, p(y|x) is 1 for every image and cannot rank them.")
        return log_odds(logits)

    return PredictionScore("logits", "logits", score)


def grad_norm() -> PredictionScore:
    """Negative L2 norm of the gradient of log p(x)."""
    return PredictionScore("energy", "grad-norm", lambda norm: -norm)


def max_logit() -> PredictionScore:
    """The largest logit: Hendrycks et al. (2022), arXiv:1911.11132."""
    return PredictionScore("logits", "logits", lambda logits: logits.amax(dim=1))


def refinement(*, steps: int = 10) -> Refinement:
    """Minus the fall of an image's energy in ``steps`` steps of the model's chain."""
    return Refinement(steps)
