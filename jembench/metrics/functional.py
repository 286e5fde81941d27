"""Metrics of one's own tensors: the values and intervals that the metrics of a run give.

Each function makes the registered metric and calls its computation, so there is one implementation.

Legend: N examples, K classes, C channels, H height, W width, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import Diverged, NotApplicable, SpecError
from jembench.interfaces import DataSpec, FeatureNetwork, Features, Split, SplitName, Value
from jembench.metrics.base import Metric
from jembench.metrics.classification import classification_values, require_finite
from jembench.metrics.estimates import Estimate, bootstrap_rng, value_of
from jembench.metrics.feature_scores import score
from jembench.metrics.generation import Generated, canonical_order, finite
from jembench.metrics.generative import FID, IS, KID, PRC, FeatureMetric
from jembench.metrics.ood import OutOfDistribution
from jembench.metrics.predictive import ECE, NLL, Accuracy, AdaptiveECE, Brier, ClasswiseECE, Predictive

if TYPE_CHECKING:
    Array = Tensor | np.ndarray[Any, Any]

# --- of a classifier --------------------------------------------------------------------------------------------------


def accuracy(logits: Array, labels: Array) -> Value:
    """The share of examples whose largest logit is that of the label, in %, with Wilson's 95 % interval.

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
    return _of_logits(Accuracy(), logits, labels)


def nll(logits: Array, labels: Array, *, resamples: int = 1000) -> Value:
    """The mean of -log p(y|x) in nats, with a 95 % bootstrap interval; arguments and errors as for :func:`accuracy`.

    Args:
        logits: floats (N, K), finite.
        labels: whole numbers (N,) in 0..K-1.
        resamples: of the bootstrap; 0: no interval.

    Example:
        >>> round(nll(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).value, 4)
        0.6931
    """
    return _of_logits(NLL(resamples=resamples), logits, labels)


def brier(logits: Array, labels: Array, *, resamples: int = 1000) -> Value:
    """The Brier score, the squared error of p(y|x) summed over classes, 0 to 2; arguments as for :func:`nll`.

    Brier (1950), Monthly Weather Review 78(1), equation 2.

    Example:
        >>> brier(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).value
        0.5
    """
    return _of_logits(Brier(resamples=resamples), logits, labels)


def ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """The expected calibration error of the predicted class in bins of equal width, in %; arguments as for :func:`nll`.

    Guo et al. (2017), arXiv:1706.04599, equation 3; 20 bins as in Grathwohl et al. (2020), section 5.2.

    Example:
        >>> round(ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).value, 1)
        25.0
    """
    return _of_logits(ECE(bins=bins, resamples=resamples), logits, labels)


def adaptive_ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """The calibration error of the predicted class in bins with the same number of examples, in %; as :func:`ece`.

    Nguyen & O'Connor (2015), arXiv:1508.05154, section 3.2.

    Example:
        >>> round(adaptive_ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]), bins=1).value, 1)
        25.0
    """
    return _of_logits(AdaptiveECE(bins=bins, resamples=resamples), logits, labels)


def classwise_ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """The calibration error of each p(k|x), averaged over the classes, in %; arguments as for :func:`ece`.

    Kull et al. (2019), arXiv:1910.12656, definition 2.

    Example:
        >>> round(classwise_ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).value, 1)
        25.0
    """
    return _of_logits(ClasswiseECE(bins=bins, resamples=resamples), logits, labels)


# --- of scores --------------------------------------------------------------------------------------------------------


def auroc(inside: Array, outside: Array, *, resamples: int = 1000) -> Value:
    """P(a score inside is higher than one outside), ties counting half, 0 to 1, with a 95 % bootstrap interval.

    Args:
        inside: scores (N,) of in-distribution images, finite, higher for what is more likely inside.
        outside: scores (M,) of other images.
        resamples: of the bootstrap; 0: no interval.

    Raises:
        SpecError: if there are no scores.
        Diverged: if a score is not finite.

    Example:
        >>> auroc(torch.tensor([2.0, 3.0]), torch.tensor([0.0, 1.0])).value
        1.0
    """
    first, second = (np.sort(_tensor(values).double().numpy()) for values in (inside, outside))
    if first.ndim != 1 or second.ndim != 1 or not (len(first) and len(second)):
        raise SpecError(f"The scores have the shapes {first.shape} and {second.shape}; they must be (N,) and (M,).")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise Diverged("A score is not finite, and cannot be ranked.")
    estimate = OutOfDistribution(set=_GIVEN).estimates({"inside": first, "outside": second})["auroc"]
    return value_of(estimate, np.random.default_rng(0), resamples)


# --- of images --------------------------------------------------------------------------------------------------------


def inception_score(images: Array, *, splits: int = 10, features: str = "inception", resamples: int = 200) -> Value:
    """The Inception score of images, by torch-fidelity, with a 95 % bootstrap interval.

    Salimans et al. (2016), arXiv:1606.03498, section 4.

    Args:
        images: uint8 (N, C, H, W); or the logits of a classifier, floats (N, K).
        splits: into which the images are cut; the score is the mean over them.
        features: the feature network; ``inception:download=true`` fetches its weights.
        resamples: of the bootstrap; 0: no interval.

    Raises:
        Unavailable: if the weights are missing; with the remedy.
        NotApplicable: if there are too few images.

    Example:
        >>> round(inception_score(100 * torch.eye(10), splits=1, resamples=0).value, 3)
        10.0
    """
    return _of_images(IS(splits=splits, features=features, resamples=resamples), images)["is"]


def fid(images: Array, reference: Array, *, features: str = "inception", resamples: int | None = None) -> Value:
    """The Fréchet distance between features of images and of reference images, by torch-fidelity.

    Heusel et al. (2017), arXiv:1706.08500, equation 6. Numbers of different feature networks must not be compared.

    Args:
        images: uint8 (N, C, H, W); or features of them, floats (N, D), with N >= D.
        reference: the same of the images to compare with, M of them.
        features: the feature network of images; ``inception:download=true`` fetches its weights.
        resamples: of the bootstrap; None: 200 up to 512 features, else 0, which is without interval.

    Raises:
        Unavailable: if the weights are missing; with the remedy.
        NotApplicable: if there are too few images.

    Example:
        >>> features = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
        >>> round(fid(features + torch.tensor([3.0, 4.0]), features, resamples=0).value, 3)
        25.0
    """
    return _of_images(FID(features=features, resamples=resamples), images, reference)["fid"]


def kid(
    images: Array,
    reference: Array,
    *,
    features: str = "inception",
    subsets: int = 100,
    subset_size: int = 1000,
    resamples: int = 200,
) -> Value:
    """The kernel distance between features of images and of reference images, by torch-fidelity.

    Bińkowski et al. (2018), arXiv:1801.01401, section 4. Features that are given are standardised by the reference.

    Args:
        images: as for :func:`fid`.
        reference: as for :func:`fid`.
        features: as for :func:`fid`.
        subsets: how many subsets are compared.
        subset_size: images in each, at most as many as there are.
        resamples: of the bootstrap; 0: no interval.

    Raises:
        Unavailable: if the weights are missing; with the remedy.
        NotApplicable: if there are too few images.

    Example:
        >>> features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
        >>> kid(features + 5, features, subset_size=20, resamples=0).value > 1
        True
    """
    metric = KID(features=features, subsets=subsets, subset_size=subset_size, resamples=resamples)
    return _of_images(metric, images, reference)["kid"]


def prc(
    images: Array, reference: Array, *, features: str = "inception", neighbours: int = 3, resamples: int = 200
) -> dict[str, Value]:
    """Precision and recall of images among features of reference images, by torch-fidelity, in %.

    Kynkäänniemi et al. (2019), arXiv:1904.06991, equations 1 and 2.

    Args:
        images: as for :func:`fid`.
        reference: as for :func:`fid`.
        features: as for :func:`fid`.
        neighbours: whose distance is the radius of an image.
        resamples: of the bootstrap; 0: no interval.

    Raises:
        Unavailable: if the weights are missing; with the remedy.
        NotApplicable: if there are too few images.

    Example:
        >>> features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
        >>> found = prc(features, features, resamples=0)
        >>> {name: value.value for name, value in found.items()}
        {'precision': 100.0, 'recall': 100.0}
    """
    return _of_images(PRC(features=features, neighbours=neighbours, resamples=resamples), images, reference)


# --- the computations of the metrics, on tensors ----------------------------------------------------------------------

_GIVEN = "given"


@dataclass(frozen=True)
class _NoDataset:
    """The dataset of given images, of which only the shape is known."""

    spec: DataSpec

    def split(self, name: SplitName) -> Split:
        """Images to train a feature network on: there are none."""
        raise NotApplicable("This feature network is trained on a dataset, and images are given here. Use inception.")


def _of_logits(metric: Predictive, logits: Array, labels: Array) -> Value:
    given, classes = _tensor(logits), _tensor(labels)
    if given.ndim != 2 or not given.is_floating_point() or classes.shape != given.shape[:1] or not len(given):
        raise SpecError(
            f"The logits are {given.dtype} {tuple(given.shape)} and the labels {tuple(classes.shape)}; they must be "
            "floats (N, K) and (N,)."
        )
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) >= given.shape[1]:
        raise SpecError(f"The labels must be whole numbers from 0 to {given.shape[1] - 1}.")
    require_finite(given, "logits", "examples")
    (value,) = _values(metric, classification_values(metric, given.double(), classes.long())).values()
    return value


def _of_images(metric: FeatureMetric, images: Array, reference: Array | None = None) -> dict[str, Value]:
    both = [_tensor(part) for part in (images, images if reference is None else reference)]
    kinds = {(part.ndim, part.dtype == torch.uint8, tuple(part.shape[1:])) for part in both}
    as_images = kinds <= {(4, True, tuple(both[0].shape[1:]))}
    as_features = len(kinds) == 1 and both[0].ndim == 2 and all(part.is_floating_point() for part in both)
    if not (as_images or as_features):
        shapes = " and ".join(f"{part.dtype} {tuple(part.shape)}" for part in both)
        raise SpecError(f"Given are {shapes}; both must be images, uint8 (N, C, H, W), or features, floats (N, D).")
    given, name = both[0], _GIVEN
    if as_images:
        network = _network(metric.features, given)
        found, real, name = network.features(given), network.features(both[1]).pool, network.name
    else:
        found, real = Features(given, given), both[1]
        given = given.contiguous().view(torch.uint8)[:, None, None]  # bytes that are equal where the features are
    order = torch.from_numpy(canonical_order(given))
    sample = Generated.of(given, found, order, name, {"features": name})
    metric, scored = score(metric, sample, None if reference is None else finite(real, "reference images"))
    return _values(metric, scored.estimates)


def _network(spec: str, images: Tensor) -> FeatureNetwork:
    network: FeatureNetwork = registry.resolve("features", spec).make()
    channels, height, width = images.shape[1:]
    data = DataSpec(name=_GIVEN, shape=(channels, height, width), num_classes=0)
    network.prepare(_NoDataset(data), Path(), torch.device("cpu"))
    return network


def _values(metric: Metric, estimates: Mapping[str, Estimate]) -> dict[str, Value]:
    """The values with the intervals of the fit of seed 0."""
    rng = bootstrap_rng(seeds.generator(0, f"evaluation/bootstrap {metric.name}"))
    resamples = getattr(metric, "resamples", 0)
    return {label: value_of(estimate, rng, resamples) for label, estimate in estimates.items()}


def _tensor(values: Array) -> Tensor:
    return torch.as_tensor(values).detach().cpu()
