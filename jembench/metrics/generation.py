"""What every metric of generated images needs: the samples that a protocol asks for, features of
them and of the dataset, and an order of their own.

Legend: N generated images, M reference images, D features, K logits, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from jembench.catalog.spec import Scalar
from jembench.errors import Diverged, NotApplicable
from jembench.interfaces import DataSpec, Evaluation, FeatureNetwork, Features, Measurement, Planned
from jembench.metrics.classified import require_finite
from jembench.metrics.estimates import Estimate, values_of
from jembench.metrics.generative import FeatureMetric, Reference, ReferenceMetric
from jembench.metrics.protocol import protocol_id
from jembench.metrics.sample_protocol import SampleProtocol
from jembench.metrics.selection import selected

_INCEPTION_FROM_HEIGHT = 32


class Generated(NamedTuple):
    """Images of a model that are scored, with their features, float64 on the CPU, in canonical order."""

    images: Tensor  # uint8 (N, C, H, W)
    network: FeatureNetwork
    features: Features
    identity: Mapping[str, Scalar]  # what a protocol must say of which images these are
    places: Tensor  # int64 (N,): where each stood among all of the model's images

    @property
    def n(self) -> int:
        """The number of images."""
        return len(self.images)

    def label(self, metric: str) -> str:
        """``fid`` under Inception, ``fid-digits-cnn`` under a network of another name."""
        return f"{metric}-{self.network.name}" if self.network.name else metric

    def protocol(
        self, metric: str, evaluation: Evaluation, implementation: str = "torch-fidelity", **parts: Scalar
    ) -> str:
        """The protocol id."""
        named = {"implementation": implementation, "features": self.network.identity, **self.identity, **parts}
        return protocol_id(metric, evaluation, **named)


def features_spec(option: str, data: DataSpec) -> str:
    """The feature network that the option ``features`` of a metric means; ``auto`` goes by the size of the images."""
    if option != "auto":
        return option
    return "inception" if data.shape[1] >= _INCEPTION_FROM_HEIGHT else "cnn"


def generated(evaluation: Evaluation, features: str, asked: SampleProtocol) -> Generated:
    """The images that a protocol asks for, with their features, sorted by the content of the images.

    Sorting first makes every value exactly independent of the order of the samples: which of equally confident ones
    are kept does not depend on it, nor how IS and KID shuffle. Images that come sorted by class are shuffled as well.

    Raises:
        Diverged: if a feature or a logit is not finite.
        Unavailable: if the model has no such images, or too few.
    """
    spec = features_spec(features, evaluation.data.spec)
    samples = evaluation.samples(asked.wanted)
    all_features = Features(
        *(_finite(part, "samples") for part in evaluation.services.features_of(spec, samples.images))
    )
    kept = torch.from_numpy(canonical_order(samples.images))
    if asked.selection == "features":
        kept = kept[selected(asked, all_features.logits[kept])]
    elif asked.selection != "none":
        scores = _log_density(evaluation, samples.images)[kept] if asked.selection == "density" else None
        kept = kept[selected(asked, _logits(evaluation, samples.images)[kept], scores)]
    return Generated(
        samples.images[kept],
        evaluation.services.features(spec),
        Features(*(part[kept] for part in all_features)),
        asked.parts(len(kept), len(samples.images), samples.source),
        kept,
    )


class Foreseen(NamedTuple):
    """What is known of :class:`Generated` before training."""

    n: int | None  # images; None: not known
    network: FeatureNetwork

    @property
    def dimensions(self) -> int:
        """Of the pooled features; 0: not known."""
        known: int = getattr(self.network, "dimensions", 0)
        return known


def foreseen(planned: Planned, features: str, asked: SampleProtocol) -> Foreseen:
    """The images that a protocol will have.

    Raises:
        Unavailable: if the feature network cannot be had, or the model will have no such images, or too few.
    """
    network = planned.features(features_spec(features, planned.spec))
    drawn = planned.samples(asked.wanted)
    n = None if drawn is None else asked.count(drawn)
    if asked.per_class and asked.selection != "features" and n is not None:
        classes = planned.spec.num_classes
        require_images(n, classes, "selected images", "per_class=true", f"one of each of {classes} classes")
    return Foreseen(n, network)


class Scored(NamedTuple):
    """What a metric finds by comparing generated images with real ones."""

    estimates: Mapping[str, Estimate]  # by label
    resamples: int
    parts: Mapping[str, Scalar] = {}  # of the protocol
    details: Mapping[str, Any] = {}


def check(metric: FeatureMetric, planned: Planned) -> None:
    """Whether there will be enough images.

    Raises:
        NotApplicable: if not.
        Unavailable: if the feature network cannot be had.
    """
    n, network = seen = foreseen(planned, metric.features, metric)
    real = planned.count(metric.reference) if isinstance(metric, ReferenceMetric) else None
    _require(metric, n, real, network, seen.dimensions)


def _require(metric: FeatureMetric, n: int | None, real: int | None, network: FeatureNetwork, dimensions: int) -> None:
    least, because = metric.least(network, dimensions)
    require_images(n, least, "generated images", metric.name, because)
    if isinstance(metric, ReferenceMetric):
        require_images(real, least, f"{metric.reference} images", metric.name, because)


def score(
    metric: FeatureMetric, evaluation: Evaluation, compute: Callable[[Generated], Scored], implementation: str
) -> Measurement:
    """Score generated images by themselves."""
    sample = generated(evaluation, metric.features, metric)
    _require(metric, sample.n, None, sample.network, sample.features.pool.shape[1])
    return _measurement(metric, evaluation, sample, compute(sample), implementation)


def compare(
    metric: ReferenceMetric, evaluation: Evaluation, compute: Callable[[Generated, Tensor], Scored]
) -> Measurement:
    """Score generated images by the pooled features of real ones (M, D)."""
    sample = generated(evaluation, metric.features, metric)
    real = reference_pool(evaluation, metric.features, metric.reference)
    _require(metric, sample.n, len(real), sample.network, real.shape[1])
    scored = compute(sample, real)
    parts = {"reference": metric.reference, "reference_images": len(real), **scored.parts}
    return _measurement(metric, evaluation, sample, scored._replace(parts=parts))


def _measurement(
    metric: FeatureMetric,
    evaluation: Evaluation,
    sample: Generated,
    scored: Scored,
    implementation: str = "torch-fidelity",
) -> Measurement:
    values = values_of(scored.estimates, evaluation, metric.name, scored.resamples)
    return Measurement(
        protocol=sample.protocol(metric.name, evaluation, implementation, **scored.parts),
        values={sample.label(label): value for label, value in values.items()},
        details=scored.details,
    )


def _logits(evaluation: Evaluation, samples: Tensor) -> Tensor:
    logits = evaluation.predictions.read("logits", samples).cpu().double()
    require_finite(logits, "samples")
    return logits


def _log_density(evaluation: Evaluation, samples: Tensor) -> Tensor:
    """log p(x) + log Z, float64 (N,)."""
    energies = evaluation.predictions.read("energy", samples).cpu().double()
    require_finite(energies[:, None], "samples")
    return -energies


def reference_pool(evaluation: Evaluation, features: str, split: Reference) -> Tensor:
    """The pooled features of a part of the dataset, float64 (M, D) on the CPU."""
    return pool_of(evaluation, features, split, f"{split} images")


def pool_of(evaluation: Evaluation, features: str, images: Reference | Tensor, what: str) -> Tensor:
    """The pooled features of images, float64 (M, D) on the CPU; ``what`` they are, for errors.

    Raises:
        Diverged: if one is not finite.
    """
    return _finite(evaluation.services.features_of(features_spec(features, evaluation.data.spec), images).pool, what)


def canonical_order(images: UInt8[Tensor, "N C H W"]) -> NDArray[np.int64]:
    """The order in which images stand when sorted by their bytes."""
    rows = np.ascontiguousarray(images.cpu().numpy().reshape(len(images), -1))
    content: NDArray[Any] = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    return np.argsort(content, kind="stable")


def _finite(features: Tensor, what: str) -> Tensor:
    features = features.cpu().double()
    bad = int((~features.isfinite()).any(dim=1).sum())
    if bad:
        raise Diverged(f"The features of {bad} of {len(features)} {what} are not finite, so nothing can be compared.")
    return features


def require_images(n: int | None, needed: int, what: str, metric: str, because: str) -> None:
    """Refuse a metric for which there are too few images; None: it is not known how many.

    Raises:
        NotApplicable: with what the metric needs, and why.
    """
    if n is not None and n < needed:
        raise NotApplicable(
            f"{metric} needs at least {needed} {what}, {because}; there are {n}. Generate more images, or lift the "
            "limit on the dataset."
        )
