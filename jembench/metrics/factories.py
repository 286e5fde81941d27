"""The metrics and feature networks that ``jembench`` brings. What each one needs is imported when it is asked for."""

from __future__ import annotations

from typing import Literal

from jembench.catalog.spec import added_later, content_of, incidental
from jembench.interfaces import FeatureNetwork, Metric
from jembench.metrics.sample_protocol import SampleProtocol, of_samples


@added_later(data_noise=0.0)
def accuracy(*, data_noise: float = 0.0) -> Metric:
    """Share of test images classified rightly, in %, with Wilson's interval.

    ``data_noise`` is the standard deviation of Gaussian noise on the images, on [-1, 1]: .03 in the reference code of
    JEM. So it is for all metrics that have it.
    """
    from jembench.metrics.classification import Accuracy

    return Accuracy(data_noise=data_noise)


@added_later(data_noise=0.0)
def nll(*, scaling: Literal["none", "temperature"] = "none", resamples: int = 1000, data_noise: float = 0.0) -> Metric:
    """Mean negative log-likelihood -log p(y|x) on the test images, in nats.

    ``scaling=temperature`` divides the logits by a temperature fitted on validation images, which the recipe must hold
    out; so it does for all metrics of calibration.
    """
    from jembench.metrics import classification

    return classification.nll(scaling=scaling, resamples=resamples, data_noise=data_noise)


@added_later(data_noise=0.0)
def brier(
    *, scaling: Literal["none", "temperature"] = "none", resamples: int = 1000, data_noise: float = 0.0
) -> Metric:
    """Brier score on the test images: squared error of p(y|x), summed over classes, 0 to 2."""
    from jembench.metrics import classification

    return classification.brier(scaling=scaling, resamples=resamples, data_noise=data_noise)


@added_later(data_noise=0.0)
def ece(
    *,
    bins: int = 20,
    scaling: Literal["none", "temperature"] = "none",
    resamples: int = 1000,
    data_noise: float = 0.0,
) -> Metric:
    """Expected calibration error of the predicted class, equal-width bins, in %."""
    from jembench.metrics import calibration

    return calibration.ece(bins=bins, scaling=scaling, resamples=resamples, data_noise=data_noise)


@added_later(data_noise=0.0)
def adaptive_ece(
    *,
    bins: int = 20,
    scaling: Literal["none", "temperature"] = "none",
    resamples: int = 1000,
    data_noise: float = 0.0,
) -> Metric:
    """Adaptive calibration error: that of the predicted class in bins that hold as many images each, in %."""
    from jembench.metrics import calibration

    return calibration.adaptive_ece(bins=bins, scaling=scaling, resamples=resamples, data_noise=data_noise)


@added_later(data_noise=0.0)
def classwise_ece(
    *,
    bins: int = 20,
    scaling: Literal["none", "temperature"] = "none",
    resamples: int = 1000,
    data_noise: float = 0.0,
) -> Metric:
    """Classwise calibration error: that of each p(k|x) against how often the class is k, averaged over k, in %."""
    from jembench.metrics import calibration

    return calibration.classwise_ece(bins=bins, scaling=scaling, resamples=resamples, data_noise=data_noise)


def bits_per_dim(*, resamples: int = 1000) -> Metric:
    """Bits per dimension of the test images under a normalised density; uniform noise costs 8."""
    from jembench.metrics.bits_per_dim import BitsPerDim

    return BitsPerDim(resamples=resamples)


def energy_gap(*, resamples: int = 1000) -> Metric:
    """Mean energy of the test images minus that of the model's samples, in nats; near 0 is good."""
    from jembench.metrics.energy import EnergyGap

    return EnergyGap(resamples=resamples)


@added_later(implementation="torch-fidelity")
@of_samples
def inception_score(
    *,
    features: str = "auto",
    samples: SampleProtocol,
    splits: int = 10,
    resamples: int = 200,
    implementation: Literal["torch-fidelity", "barratt-sharma"] = "torch-fidelity",
) -> Metric:
    """Inception score of the model's samples, by torch-fidelity.

    ``features`` is a feature network, for example ``inception:weights=/a/file.pth``; ``auto`` is Inception for images
    of 32 pixels and more, and ``cnn``, trained on the dataset itself, for smaller ones.
    ``implementation=barratt-sharma`` cuts the images into splits in their own order, where torch-fidelity shuffles them
    first. The options from ``source`` on say which images are scored; all metrics of samples have them.
    """
    from jembench.metrics.inception_score import InceptionScore

    return InceptionScore(
        features=features, samples=samples, splits=splits, resamples=resamples, implementation=implementation
    )


@of_samples
def fid(
    *,
    features: str = "auto",
    samples: SampleProtocol,
    reference: Literal["train", "test"] = "train",
    resamples: int | None = None,
) -> Metric:
    """Fréchet distance between features of the model's samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``. ``resamples`` is 200 by default, and 0 for Inception: each takes half a minute.
    """
    from jembench.metrics.frechet_distance import FrechetDistance

    return FrechetDistance(features=features, samples=samples, reference=reference, resamples=resamples)


@of_samples
def kid(
    *,
    features: str = "auto",
    samples: SampleProtocol,
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
        features=features,
        samples=samples,
        reference=reference,
        subsets=subsets,
        subset_size=subset_size,
        resamples=resamples,
    )


@of_samples
def prc(
    *,
    features: str = "auto",
    samples: SampleProtocol,
    reference: Literal["train", "test"] = "train",
    neighbours: int = 3,
    resamples: int = 200,
) -> Metric:
    """Precision and recall of the model's samples among features of the dataset, by torch-fidelity, in %.

    ``features``: as for ``is``.
    """
    from jembench.metrics.precision_recall import PrecisionAndRecall

    return PrecisionAndRecall(
        features=features, samples=samples, reference=reference, neighbours=neighbours, resamples=resamples
    )


@of_samples
def neighbours(*, features: str = "auto", samples: SampleProtocol, resamples: int = 200) -> Metric:
    """Memorisation: how near the model's samples are to training images, compared with test images.

    ``features``: as for ``is``; distances between pixels are beside those between features.
    """
    from jembench.metrics.neighbours import Neighbours

    return Neighbours(features=features, samples=samples, resamples=resamples)


def class_samples(
    *,
    source: Literal["kept", "fresh"] = "kept",
    steps: int | None = None,
    images: int | None = None,
    conditional: bool | None = None,
    resamples: int = 1000,
) -> Metric:
    """Random samples of each class, and what the model itself takes its samples for.

    ``source=fresh`` runs new chains: so many ``images``, of so many ``steps``, on E(x, y) if ``conditional``.
    """
    from jembench.metrics.class_samples import ClassSamples

    samples = SampleProtocol(source=source, steps=steps, images=images, conditional=conditional)
    return ClassSamples(samples=samples, resamples=resamples)


def confident_samples(*, resamples: int = 1000) -> Metric:
    """The 64 samples that the model is surest of: their mean confidence and how many classes they are of."""
    from jembench.metrics.confident_samples import ConfidentSamples

    return ConfidentSamples(resamples=resamples)


def chain_age(*, resamples: int = 1000) -> Metric:
    """Median age of the chains in the replay buffer, in steps, and how much of it their classes explain."""
    from jembench.metrics.chain_age import ChainAge

    return ChainAge(resamples=resamples)


def log_density(*, resamples: int = 1000) -> Metric:
    """Log p(x) of the test images, in nats: its spread, and how its highest differ from its lowest."""
    from jembench.metrics.log_density import LogDensity

    return LogDensity(resamples=resamples)


def logit_shift(*, by: float = 10.0) -> Metric:
    """How exactly a constant added to all logits leaves p(y|x) and shifts log p(x) by itself."""
    from jembench.metrics.logit_shift import LogitShift

    return LogitShift(by=by)


@added_later(data_noise=0.0)
def ood(
    *,
    set: str,
    score: Literal["log-px", "max-py", "grad-norm", "max-logit", "refinement"] = "log-px",
    steps: int = 10,
    resamples: int = 1000,
    data_noise: float = 0.0,
) -> Metric:
    """Out-of-distribution detection: AUROC, FPR at 95 % TPR and average precision of a score against other images.

    ``set`` is an OOD set (`jembench list ood_sets`) or a dataset: interp, svhn, celeba:root=/data. ``steps`` are
    of the chain that the score ``refinement`` runs from each image. ``data_noise`` is on both kinds of images.
    """
    from jembench.metrics.ood import OutOfDistribution

    return OutOfDistribution(set=set, score=score, steps=steps, resamples=resamples, data_noise=data_noise)


def iteration_time(*, resamples: int = 1000) -> Metric:
    """Median seconds of a training iteration."""
    from jembench.metrics.timing import IterationTime

    return IterationTime(resamples=resamples)


def stability() -> Metric:
    """Iterations before training diverged, and interventions of the guard."""
    from jembench.metrics.stability import StabilityOfTraining

    return StabilityOfTraining()


def cnn_features() -> FeatureNetwork:
    """A small convolutional network trained on the dataset itself; its numbers are named after it."""
    from jembench.metrics.cnn_features import CnnFeatures

    return CnnFeatures()


@incidental("download")
@content_of("weights")
def inception_features(*, weights: str = "", download: bool = False) -> FeatureNetwork:
    """The Inception network of the published IS and FID; needs 96 MB of weights.

    ``weights`` is a file that holds them (torch hub's cache by default); ``download=true`` fetches them there.
    """
    from jembench.metrics.inception_features import InceptionFeatures

    return InceptionFeatures(weights=weights, download=download)
