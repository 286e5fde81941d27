"""Metrics of features of generated images: IS, FID and KID.

The values are torch-fidelity's; :mod:`jembench.metrics.feature_scores` computes the statistics of
resamples.

Legend: N generated images, M reference images, D features, K logits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from jembench.catalog.options import Names
from jembench.catalog.spec import Scalar
from jembench.catalog.validation import Range
from jembench.interfaces import Evaluation, Measurement, Planned, Resampling
from jembench.metrics.base import (
    MOST,
    NOT_NEGATIVE,
    Count,
    Estimate,
    Metric,
    OptionalResamples,
    Parts,
    Resamples,
)
from jembench.metrics.sample_protocol import (
    Generated,
    SampleProtocol,
    foresee,
    generated,
    pool_of,
    require_images,
)

if TYPE_CHECKING:
    from torch import Tensor


class Scores(NamedTuple):
    """The scores of generated images."""

    estimates: Mapping[str, Estimate]  # by label
    parts: Mapping[str, Scalar] = {}  # of the protocol


@dataclass(frozen=True, kw_only=True)
class FeatureMetric(SampleProtocol, Metric):
    """A metric of features of generated images."""

    features: Annotated[str, Names("features")] = "auto"

    def __post_init__(self) -> None:
        SampleProtocol.__post_init__(self)
        Metric.__post_init__(self)

    @property
    def protocol_options(self) -> Parts:
        """The implementation; the description of samples has the options of images."""
        return {"implementation": getattr(self, "implementation", "torch-fidelity")}

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return the smallest sufficient number of images, and the reason.

        The number holds for generated and for reference images; the reason is for errors.

        Args:
            network: the identity of the feature network.
            dimensions: the number of its pooled features; 0: unknown.
        """
        raise NotImplementedError

    def require(self, n: int | None, real: int | None, network: str, dimensions: int) -> None:
        """Check that there are enough generated images and reference images; None: unknown.

        Raises:
            NotApplicable: if there are too few.
        """
        least, because = self.least(network, dimensions)
        reference = f"{getattr(self, 'reference', '')} images"
        require_images(n, least, "generated images", self.name, because)
        require_images(real, least, reference, self.name, because)

    def check(self, planned: Planned) -> None:
        """Check that the feature network is available, and that there will be enough images."""
        n, network = foresee(planned, self.features, self)
        real = None
        if isinstance(self, ReferenceMetric):
            real = self.foresee_reference(planned)
        dimensions = getattr(network, "dimensions", 0)
        self.require(n, real, network.identity, dimensions)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure generated images.

        Raises:
            NotApplicable: if there are too few images.
        """
        from jembench.metrics import feature_scores

        # generated images, and the reference images
        sample = generated(evaluation, self.features, self)
        dimensions = sample.features.pool.shape[1]
        parts: Parts = {}
        real, reference_images = None, None
        if isinstance(self, ReferenceMetric):
            images, parts = self.references(evaluation)
            real = pool_of(evaluation, self.features, images, f"{self.reference} images")
            reference_images = len(real)
            parts["reference_images"] = reference_images
        network = str(sample.identity["features"])
        self.require(sample.n, reference_images, network, dimensions)

        scored = self.scores(sample, real)
        estimates = {sample.label(label): estimate for label, estimate in scored.estimates.items()}
        parts |= {**sample.identity, **scored.parts}

        metric = self
        if self.resamples is None:
            resamples = 200 if dimensions <= feature_scores.SMALL else 0
            metric = dataclasses.replace(self, resamples=resamples)
        details = {"sample_passes": sample.passes}
        return metric.measurement(evaluation, {}, estimates=estimates, parts=parts, details=details)

    def scores(self, sample: Generated, real: Any) -> Scores:
        """Score generated images.

        ``real`` are the pooled features of reference images (M, D), or None.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class IS(FeatureMetric):
    """Inception score of the model's samples, by torch-fidelity.

    ``features`` is a feature network, for example ``inception:weights=/a/file.pth``; ``auto`` is
    Inception for images of 32 pixels and more, and ``cnn``, trained on the dataset itself, for
    smaller images and, if Inception's weights are missing, for the user's own images.
    ``implementation=barratt-sharma`` divides the images into splits in the model's order;
    torch-fidelity shuffles them first. The options from ``source`` to ``top``, which all metrics of
    samples have, choose the images. ``sampler`` draws images from a model's differentiable energy,
    in place of the model's own samples.
    """

    splits: Count = 10
    resamples: Resamples = 200
    implementation: Literal["torch-fidelity", "barratt-sharma"] = "torch-fidelity"
    of_classes = True
    name = "is"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return one image per split."""
        return self.splits, "one in each split"

    def scores(self, sample: Generated, real: None) -> Scores:
        """Return the mean score over splits."""
        from jembench.metrics.feature_scores import (
            inception_score,
            inception_score_in_order,
            resampled_score,
        )

        logits = sample.features.logits
        even = self.implementation == "barratt-sharma"
        if even:
            in_order = logits[sample.places.argsort()]
            score = inception_score_in_order(in_order, self.splits)
        else:
            score = inception_score(logits, self.splits)

        statistic = resampled_score(logits, self.splits, even=even)
        within = (1.0, float(logits.shape[1]))
        resampling = Resampling(statistic, (sample.n,), within)
        estimate = Estimate(resampling, "", "higher", value=score)
        return Scores({"is": estimate}, {"splits": self.splits})


_SPLITS: Mapping[str, Literal["train", "test"]] = {"train": "train", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class ReferenceMetric(FeatureMetric):
    """A metric that compares generated images with a part of the dataset, or with another.

    ``reference`` is ``train``, ``test``, or the spec of another dataset. Of another dataset its
    test images are used, in the size and colours of the dataset, and at most as many as the dataset
    has test images.
    """

    reference: Annotated[str, Names("ood_sets", "datasets")] = "train"

    def foresee_reference(self, planned: Planned) -> int | None:
        """Return the number of reference images; None: unknown.

        Raises:
            Unavailable: with the remedy, if they are missing.
        """
        split = _SPLITS.get(self.reference)
        if split:
            return planned.count(split)
        planned.check_ood_set(self.reference)
        return None

    def references(self, evaluation: Evaluation) -> tuple[Literal["train", "test"] | Tensor, Parts]:
        """Return the reference images, and their description for the protocol.

        Raises:
            Unavailable: with the remedy, if they are missing.
        """
        from jembench.data.ood_sets.resolve import resolve
        from jembench.data.pixels import content_hash

        split = _SPLITS.get(self.reference)
        if split:
            return split, {"reference": split}
        images = evaluation.data.images(self.reference)
        content = content_hash(images)[:10]
        return images, {"reference": str(resolve(self.reference)), "content": content}


@dataclass(frozen=True, kw_only=True)
class FID(ReferenceMetric):
    """Fréchet distance between features of samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``. ``reference`` is ``train``, ``test`` or another dataset, of which
    test images are taken as for an OOD set. ``resamples`` is 200 by default, and 0 for networks of
    more than 512 features: with Inception a resample takes seconds. Even equal distributions have
    an FID above 0, larger for fewer images; the interval is of the mean FID over samples of as many
    images.
    """

    resamples: OptionalResamples = None
    name = "fid"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return the number of features of the network."""
        because = f"as many as {network} has features, or the fitted Gaussian is degenerate"
        return dimensions, because

    def scores(self, sample: Generated, real: Tensor) -> Scores:
        """Return the distance."""
        from jembench.metrics.feature_scores import fid, resampled_fid

        pool = sample.features.pool
        distance = fid(pool, real)
        sizes = (sample.n, len(real))
        resampling = Resampling(resampled_fid(pool, real), sizes, NOT_NEGATIVE)
        return Scores({"fid": Estimate(resampling, "", "lower", sample.n, distance)})


@dataclass(frozen=True, kw_only=True)
class KID(ReferenceMetric):
    """Kernel distance between features of samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``. Features of published networks are unchanged. Features of other
    networks are standardised, since their arbitrary scale would dominate the cubic kernel; the
    protocol says so.
    """

    subsets: Count = 100
    subset_size: Annotated[int, Range(least=2, most=MOST)] = 1000
    resamples: Resamples = 200
    name = "kid"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return 2, for a pair."""
        return 2, "to compare them with one another"

    def scores(self, sample: Generated, real: Tensor) -> Scores:
        """Return the mean distance over subsets."""
        from jembench.metrics.feature_scores import kid, resampled_kid, standardised

        images = sample.features.pool
        standardise = not getattr(sample.network, "published", None)
        if standardise:
            images, real = standardised(images, real)

        sizes = (sample.n, len(real))
        size = min(self.subset_size, *sizes)
        distance = kid(images, real, self.subsets, size)
        resampling = Resampling(resampled_kid(images, real), sizes)
        estimate = Estimate(resampling, "", "lower", sample.n, distance)
        parts: Parts = {"subsets": self.subsets, "subset_size": size, "standardised": standardise}
        return Scores({"kid": estimate}, parts)
