"""Scores for out-of-distribution detection, higher for images that the model takes to be in-distribution.

A score is a component (``jembench list scores``), registered by an entry point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Need, Quantity
from jembench.interfaces.models import Capability

if TYPE_CHECKING:
    from torch import Tensor


class PredictionScore(NamedTuple):
    """An :class:`~jembench.interfaces.OODScore` that is a function of one quantity from a pass through the network."""

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
        """Return the score of each image, float64 (N,), from its quantity."""
        return self.function(read(self.quantity).double())


class Refinement(NamedTuple):
    """Negative decrease of an image's energy by the model's own chain: likely images hardly change."""

    steps: int
    requires: frozenset[Need] = frozenset({"energy", "samples", "chains"})
    reads: frozenset[Quantity] = frozenset({"energy"})

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        refined = evaluation.predictions.refined(images, self.steps, noise).double()
        return refined - evaluation.predictions.read("energy", images, noise).double()


class GivenClass(NamedTuple):
    """Log p(x) minus the mean log p(x) of held-out images of the same predicted class.

    A :class:`~jembench.interfaces.metrics.FittedScore`. A class that is predicted for no held-out image has the mean
    of all of them.
    """

    offsets: Tensor | None = None  # float64 (K,): the mean of each class; None: not fitted
    requires: frozenset[Need] = frozenset({"logits", "energy"})
    reads: frozenset[Quantity] = frozenset({"logits", "energy"})

    def fit(self, evaluation: Evaluation, noise: float) -> tuple[GivenClass, dict[str, str | int]]:
        """Return the score with the offsets of the model, and the parts of the protocol."""
        import torch

        images = held_out(evaluation)
        energy, logits = (evaluation.predictions.read(each, images, noise).cpu() for each in ("energy", "logits"))
        log_px, predicted = -energy.double(), logits.argmax(dim=1)
        offsets = torch.full((evaluation.data.spec.num_classes,), float(log_px.mean()), dtype=torch.float64)
        offsets.scatter_reduce_(0, predicted, log_px, "mean", include_self=False)
        return self._replace(offsets=offsets), {"fitted_on": images, "fitted_images": len(log_px)}

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        return self.of(lambda quantity: evaluation.predictions.read(quantity, images, noise).cpu())

    def of(self, read: Callable[[Quantity], Tensor]) -> Tensor:
        """Return the score of each image, float64 (N,), from its energy and logits."""
        assert self.offsets is not None, "fit comes first"
        predicted = read("logits").argmax(dim=1)
        return -read("energy").double() - self.offsets.to(predicted.device)[predicted]


def held_out(evaluation: Evaluation) -> Literal["validation", "train"]:
    """Return the part that a score may be fitted on beside the test images: ``train`` if no images are held out."""
    try:
        evaluation.data.part("validation")
    except NotApplicable:
        return "train"
    return "validation"


def log_px() -> PredictionScore:
    """Log p(x), up to a constant.

    For a classifier it is logsumexp of the logits, the energy score of Liu et al. (2020), arXiv:2010.03759. This one,
    max-py and grad-norm are those of Grathwohl et al. (2020), arXiv:1912.03263, section 5.3, Tables 3 and 7.
    """
    return PredictionScore("energy", "energy", lambda energy: -energy)


def log_px_given_class() -> GivenClass:
    """Log p(x) minus its mean over the validation images of the same predicted class; without them, training images."""
    return GivenClass()


def max_py() -> PredictionScore:
    """The largest p(y|x)."""
    return PredictionScore("logits", "logits", lambda logits: logits.softmax(dim=1).amax(dim=1))


def grad_norm() -> PredictionScore:
    """Negative L2 norm of the gradient of log p(x)."""
    return PredictionScore("energy", "grad-norm", lambda norm: -norm)


def max_logit() -> PredictionScore:
    """The largest logit: Hendrycks et al. (2022), arXiv:1911.11132."""
    return PredictionScore("logits", "logits", lambda logits: logits.amax(dim=1))


def refinement(*, steps: int = 10) -> Refinement:
    """Negative decrease of an image's energy in ``steps`` steps of the model's own chain."""
    return Refinement(steps)
