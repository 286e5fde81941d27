"""The metrics and feature networks that ``jembench`` brings. What each one needs is imported when it is asked for."""

from __future__ import annotations

from typing import Literal

from jembench.interfaces import FeatureNetwork, Metric


def accuracy() -> Metric:
    """Share of test images classified rightly, in %, with Wilson's interval."""
    from jembench.metrics.classification import Accuracy

    return Accuracy()


def nll(*, resamples: int = 1000) -> Metric:
    """Mean negative log-likelihood -log p(y|x) on the test images, in nats."""
    from jembench.metrics import classification

    return classification.nll(resamples=resamples)


def brier(*, resamples: int = 1000) -> Metric:
    """Brier score on the test images: squared error of p(y|x), summed over classes, 0 to 2."""
    from jembench.metrics import classification

    return classification.brier(resamples=resamples)


def ece(*, bins: int = 20, resamples: int = 1000) -> Metric:
    """Expected calibration error of the predicted class, equal-width bins, in %."""
    from jembench.metrics.calibration import ExpectedCalibrationError

    return ExpectedCalibrationError(bins=bins, resamples=resamples)


def energy_gap(*, resamples: int = 1000) -> Metric:
    """Mean energy of the test images minus that of the model's samples, in nats; near 0 is good."""
    from jembench.metrics.energy import EnergyGap

    return EnergyGap(resamples=resamples)


def inception_score(*, features: str = "auto", splits: int = 10, resamples: int = 200) -> Metric:
    """Inception score of the model's samples, by torch-fidelity.

    ``features`` is a feature network, for example ``inception:weights=/a/file.pth``; ``auto`` is Inception for images
    of 32 pixels and more, and ``cnn``, trained on the dataset itself, for smaller ones.
    """
    from jembench.metrics.inception_score import InceptionScore

    return InceptionScore(features=features, splits=splits, resamples=resamples)


def fid(
    *, features: str = "auto", reference: Literal["train", "test"] = "train", resamples: int | None = None
) -> Metric:
    """Fréchet distance between features of the model's samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``. ``resamples`` is 200 by default, and 0 for Inception: each takes half a minute.
    """
    from jembench.metrics.frechet_distance import FrechetDistance

    return FrechetDistance(features=features, reference=reference, resamples=resamples)


def kid(
    *,
    features: str = "auto",
    reference: Literal["train", "test"] = "train",
    subsets: int = 100,
    subset_size: int = 1000,
    resamples: int = 200,
) -> Metric:
    """Kernel distance between features of the model's samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``.
    """
    from jembench.metrics.kernel_distance import KernelDistance

    return KernelDistance(
        features=features, reference=reference, subsets=subsets, subset_size=subset_size, resamples=resamples
    )


def prc(
    *,
    features: str = "auto",
    reference: Literal["train", "test"] = "train",
    neighbours: int = 3,
    resamples: int = 200,
) -> Metric:
    """Precision and recall of the model's samples among features of the dataset, by torch-fidelity, in %.

    ``features``: as for ``is``.
    """
    from jembench.metrics.precision_recall import PrecisionAndRecall

    return PrecisionAndRecall(features=features, reference=reference, neighbours=neighbours, resamples=resamples)


def iteration_time(*, resamples: int = 1000) -> Metric:
    """Median seconds of a training iteration."""
    from jembench.metrics.timing import IterationTime

    return IterationTime(resamples=resamples)


def cnn_features() -> FeatureNetwork:
    """A small convolutional network trained on the dataset itself; its numbers are named after it."""
    from jembench.metrics.cnn_features import CnnFeatures

    return CnnFeatures()


def inception_features(*, weights: str = "", download: bool = False) -> FeatureNetwork:
    """The Inception network of the published IS and FID; needs 96 MB of weights.

    ``weights`` is a file that holds them (torch hub's cache by default); ``download=true`` fetches them there.
    """
    from jembench.metrics.inception_features import InceptionFeatures

    return InceptionFeatures(weights=weights, download=download)
