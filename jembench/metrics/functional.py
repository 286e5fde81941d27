"""Metrics as functions of tensors, with the same values and intervals as the metrics of a run.

Each function makes the registered metric and calls its computation.

For FID, KID and other metrics of images, use torch-fidelity or torchmetrics.

Legend: N examples, K classes.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from jembench.catalog.validation import check_value
from jembench.errors import Diverged, Remark, SpecError
from jembench.interfaces import Value
from jembench.metrics import classification
from jembench.metrics.base import PROBABILITIES, are_probabilities, bootstrap_rng, value_of

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    Array = Tensor | np.ndarray[Any, Any]

Made = TypeVar("Made")

# --- of a classifier ------------------------------------------------------------------------------


def accuracy(logits: Array, labels: Array) -> Value:
    """Return the accuracy in %, with Wilson's 95 % interval.

    It is the share of examples whose largest logit is the label's.

    Args:
        logits: floats (N, K), finite.
        labels: whole numbers (N,) in 0..K-1.

    Raises:
        SpecError: if the shapes or the labels do not fit.
        Diverged: if a logit is not finite.

    Example:
        >>> value = accuracy(torch.eye(3), torch.tensor([0, 1, 1]))
        >>> f"{value.value:.1f} [{value.low:.1f}, {value.high:.1f}] {value.unit}"
        '66.7 [20.8, 93.9] %'
    """
    return _of_logits(classification.Accuracy, logits, labels)


def nll(logits: Array, labels: Array, *, resamples: int = 1000) -> Value:
    """Return the mean of -log p(y|x) in nats, with a 95 % bootstrap interval.

    Errors as for :func:`accuracy`.

    Args:
        logits: floats (N, K), finite.
        labels: whole numbers (N,) in 0..K-1.
        resamples: of the bootstrap; 0: no interval.

    Example:
        >>> round(nll(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).value, 4)
        0.6931
    """
    return _of_logits(classification.NLL, logits, labels, resamples=resamples)


def brier(logits: Array, labels: Array, *, resamples: int = 1000) -> Value:
    """Return the Brier score, the squared error of p(y|x) over classes, 0 to 2.

    Arguments are those of :func:`nll`.

    Brier (1950), Monthly Weather Review 78(1), equation 2.

    Example:
        >>> brier(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).value
        0.5
    """
    return _of_logits(classification.Brier, logits, labels, resamples=resamples)


def ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """Return the expected calibration error in equal-width bins, in %.

    It compares the confidence in the predicted class with its accuracy. Arguments are those of
    :func:`nll`.

    Guo et al. (2017), arXiv:1706.04599, equation 3; 20 bins as in Grathwohl et al. (2020), section
    5.2.

    Example:
        >>> round(ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).value, 1)
        25.0
    """
    return _of_logits(classification.ECE, logits, labels, bins=bins, resamples=resamples)


def adaptive_ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """Return the calibration error in bins with equal numbers of examples, in %.

    Arguments are those of :func:`ece`.

    Nguyen & O'Connor (2015), arXiv:1508.05154, section 3.2.

    Example:
        >>> round(adaptive_ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]), bins=1).value, 1)
        25.0
    """
    return _of_logits(classification.AdaptiveECE, logits, labels, bins=bins, resamples=resamples)


def classwise_ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """Return the calibration error of p(k|x), averaged over classes, in %.

    Arguments are those of :func:`ece`.

    Kull et al. (2019), arXiv:1910.12656, definition 2.

    Example:
        >>> round(classwise_ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).value, 1)
        25.0
    """
    return _of_logits(classification.ClasswiseECE, logits, labels, bins=bins, resamples=resamples)


# --- of scores ------------------------------------------------------------------------------------


def auroc(inside: Array, outside: Array, *, resamples: int = 1000) -> Value:
    """Return the AUROC, 0 to 1, with a 95 % bootstrap interval.

    It is P(a score inside is higher than a score outside); ties count half.

    Args:
        inside: scores (N,) of in-distribution images, finite; higher means more likely
            in-distribution.
        outside: scores (M,) of other images.
        resamples: of the bootstrap; 0: no interval.

    Raises:
        SpecError: if there are no scores.
        Diverged: if a score is not finite.

    Example:
        >>> auroc(torch.tensor([2.0, 3.0]), torch.tensor([0.0, 1.0])).value
        1.0
    """
    import numpy as np

    from jembench.metrics.ood import OutOfDistribution

    metric = _made(OutOfDistribution, set="given", resamples=resamples)
    first = _tensor(inside).double().numpy()
    second = _tensor(outside).double().numpy()
    are_lists = first.ndim == second.ndim == 1
    if not are_lists or not (len(first) and len(second)):
        raise SpecError(
            f"The scores have the shapes {first.shape} and {second.shape}; they must be (N,) and "
            "(M,)."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise Diverged("A score is not finite, so that the scores cannot be ranked.")
    estimates = metric.estimates({"inside": np.sort(first), "outside": np.sort(second)})
    return value_of(estimates["auroc"], np.random.default_rng(0), metric.resamples or 0)


# --- the computations of the metrics, on tensors --------------------------------------------------


def _made(metric: type[Made], **options: Any) -> Made:
    """Return a metric with options that are checked as in a run.

    Raises:
        SpecError: if an option has another type, or is out of range.
    """
    hints = get_type_hints(metric, include_extras=True)
    checked = {name: check_value(value, hints[name], name) for name, value in options.items()}
    return metric(**checked)


def _of_logits(
    kind: type[classification.Classification], logits: Array, labels: Array, **options: Any
) -> Value:
    from jembench import seeds

    metric = _made(kind, **options)
    # tensors of the shapes that metrics expect
    outputs, classes = _tensor(logits), _tensor(labels)
    is_table = outputs.ndim == 2 and outputs.is_floating_point()
    if not is_table or classes.shape != outputs.shape[:1] or not len(outputs):
        raise SpecError(
            f"The logits are {outputs.dtype} {tuple(outputs.shape)} and the labels "
            f"{tuple(classes.shape)}; they must be floats (N, K) and (N,)."
        )
    highest = outputs.shape[1] - 1
    out_of_range = bool(((classes < 0) | (classes > highest)).any())
    if classes.is_floating_point() or out_of_range:
        raise SpecError(f"The labels must be whole numbers from 0 to {highest}.")
    classification.require_finite(outputs, "logits", "examples")
    if are_probabilities(outputs) and not isinstance(metric, classification.Accuracy):
        warnings.warn(f"jembench.metrics: {PROBABILITIES}.", Remark, stacklevel=3)

    arrays = metric.scores(outputs.double(), classes.long())
    (estimate,) = metric.estimates(arrays).values()
    # the random numbers of the fit with seed 0
    rng = bootstrap_rng(seeds.generator(0, f"evaluation/bootstrap {metric.name}"))
    return value_of(estimate, rng, metric.resamples or 0)


def _tensor(values: Array) -> Tensor:
    import torch

    try:
        return torch.as_tensor(values).detach().cpu()
    except Exception as error:
        raise SpecError(
            f"Tensors or arrays are needed; {type(values).__name__} is given: {error}."
        ) from error
