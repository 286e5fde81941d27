"""Metrics of one's own tensors: the values and intervals that the metrics of a run give.

Each function makes the registered metric and hands it the tensors in the place of a trained model, so there is one
implementation. Legend: N examples, K classes, C channels, H height, W width, D features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.catalog.spec import Spec, format_value
from jembench.errors import Diverged, NotApplicable, SpecError
from jembench.interfaces import (
    KEPT,
    Dataset,
    DataSpec,
    Evaluation,
    FeatureNetwork,
    Features,
    Quantity,
    Samples,
    Source,
    Split,
    SplitName,
    TrainingRecord,
    Value,
)
from jembench.stats import interval_of, ranking, wilson

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
    return _of_logits("accuracy", logits, labels)


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
    return _of_logits("nll", logits, labels, resamples=resamples)


def brier(logits: Array, labels: Array, *, resamples: int = 1000) -> Value:
    """The Brier score, the squared error of p(y|x) summed over classes, 0 to 2; arguments as for :func:`nll`.

    Brier (1950), Monthly Weather Review 78(1), equation 2.

    Example:
        >>> brier(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).value
        0.5
    """
    return _of_logits("brier", logits, labels, resamples=resamples)


def ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """The expected calibration error of the predicted class in bins of equal width, in %; arguments as for :func:`nll`.

    Guo et al. (2017), arXiv:1706.04599, equation 3; 20 bins as in Grathwohl et al. (2020), section 5.2.

    Example:
        >>> round(ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).value, 1)
        25.0
    """
    return _of_logits("ece", logits, labels, bins=bins, resamples=resamples)


def adaptive_ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """The calibration error of the predicted class in bins with the same number of examples, in %; as :func:`ece`.

    Nguyen & O'Connor (2015), arXiv:1508.05154, section 3.2.

    Example:
        >>> round(adaptive_ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]), bins=1).value, 1)
        25.0
    """
    return _of_logits("adaptive-ece", logits, labels, bins=bins, resamples=resamples)


def classwise_ece(logits: Array, labels: Array, *, bins: int = 20, resamples: int = 1000) -> Value:
    """The calibration error of each p(k|x), averaged over the classes, in %; arguments as for :func:`ece`.

    Kull et al. (2019), arXiv:1910.12656, definition 2.

    Example:
        >>> round(classwise_ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).value, 1)
        25.0
    """
    return _of_logits("classwise-ece", logits, labels, bins=bins, resamples=resamples)


# --- of scores --------------------------------------------------------------------------------------------------------


def auroc(inside: Array, outside: Array, *, resamples: int = 1000) -> Value:
    """P(a score inside is higher than one outside), ties counting half, 0 to 1, with a 95 % bootstrap interval.

    Args:
        inside: scores (N,) of in-distribution images, finite, higher for what is more likely inside.
        outside: scores (M,) of other images.
        resamples: of the bootstrap; 0: no interval. Of sets that do not overlap the interval is Wilson's.

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
    n, value = min(len(first), len(second)), ranking.detection(first, second)["auroc"]
    resampling, rng = ranking.auroc_resampling(first, second), np.random.default_rng(0)
    interval = interval_of(value, resampling, rng=rng, resamples=resamples)
    if interval and interval.low == interval.high:  # sets that do not overlap: n pairs without a common score
        interval = wilson(round(value * n), n) if value in (0, 1) else None
    low, high = interval or (None, None)
    return Value(value, low, high, n, "", "higher")


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
    return _single(_of_images("is", images, images, features, splits=splits, resamples=resamples))


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
    return _single(_of_images("fid", images, reference, features, resamples=resamples))


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
    options = {"subsets": subsets, "subset_size": subset_size, "resamples": resamples}
    return _single(_of_images("kid", images, reference, features, **options))


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
    found = _of_images("prc", images, reference, features, neighbours=neighbours, resamples=resamples)
    return {label.removesuffix(f"-{_GIVEN}"): value for label, value in found.items()}


# --- the tensors in the place of a trained model ----------------------------------------------------------------------

_GIVEN = "given"


@dataclass(frozen=True)
class _NoDataset:
    """The dataset of given images, of which only the shape is known."""

    spec: DataSpec

    def split(self, name: SplitName) -> Split:
        """Images to train a feature network on: there are none."""
        raise NotApplicable("This feature network is trained on a dataset, and images are given here. Use inception.")


class GivenFeatures:
    """A :class:`jembench.interfaces.FeatureNetwork` whose features are given instead of images."""

    name = identity = _GIVEN

    def prepare(self, dataset: Dataset, cache: Any, device: torch.device) -> None:
        """Nothing to load."""

    def features(self, images: Tensor) -> Features:
        """Features (N, D) as they are."""
        return Features(images, images)


@dataclass(kw_only=True)
class Given:
    """What metrics of tensors read of an evaluation's parts, from tensors on the CPU."""

    logits: Tensor | None = None  # (N, K)
    labels: Tensor | None = None  # (N,)
    generated: Tensor | None = None  # uint8 (N, C, H, W) or features (N, D)
    reference: Tensor | None = None
    content = ""
    networks: dict[str, FeatureNetwork] = field(default_factory=dict)

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation, of which each part is this."""
        it: Any = self
        parts = {"data": it, "predictions": it, "services": it, "samples": self.samples}
        return Evaluation(model=None, sampler=None, device=torch.device("cpu"), training=TrainingRecord(), **parts)

    @property
    def spec(self) -> DataSpec:
        """What is known of the images."""
        classes = 0 if self.logits is None else self.logits.shape[1]
        _, *shape = (1, 1, 1, 1) if self.generated is None or self.generated.ndim != 4 else self.generated.shape
        return DataSpec(name=_GIVEN, shape=(shape[0], shape[1], shape[2]), num_classes=classes)

    def part(self, name: str) -> Split:
        """The labels."""
        return Split(torch.empty((0, 1, 1, 1), dtype=torch.uint8), self.labels)

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """The logits."""
        assert self.logits is not None
        return self.logits

    def samples(self, source: Source = KEPT) -> Samples:
        """The images that are scored; of given features, their bytes."""
        assert self.generated is not None
        images = self.generated if self.generated.ndim == 4 else _as_pixels(self.generated)
        return Samples(images, None, _GIVEN)

    def features(self, spec: str) -> Any:
        """The feature network of images; of given features, their name alone."""
        if self.generated is not None and self.generated.ndim == 2:
            return GivenFeatures()
        if spec not in self.networks:
            network: FeatureNetwork = registry.resolve("features", spec).make()
            network.prepare(_NoDataset(self.spec), Path(), torch.device("cpu"))
            self.networks[spec] = network
        return self.networks[spec]

    def features_of(self, spec: str, images: str | Tensor) -> Features:
        """The features of the scored images, or of the reference."""
        wanted = self.generated if isinstance(images, Tensor) else self.reference
        assert wanted is not None
        found: Features = self.features(spec).features(wanted)
        return found

    def generator(self, purpose: str) -> Generator:
        """A generator for each purpose, always of the same numbers."""
        return seeds.generator(0, f"evaluation/{purpose}")


def _as_pixels(features: Tensor) -> Tensor:
    """The bytes of features (N, D) as images (N, 1, 1, .): equal where the features are, and in a fixed order."""
    return features.contiguous().view(torch.uint8)[:, None, None]


def _measured(name: str, given: Given, **options: Any) -> dict[str, Value]:
    texts = tuple((key, format_value(value)) for key, value in sorted(options.items()))
    return dict(registry.resolve("metrics", str(Spec(name, texts))).make().compute(given.evaluation).values)


def _single(values: dict[str, Value]) -> Value:
    (value,) = values.values()
    return value


def _of_logits(name: str, logits: Array, labels: Array, **options: Any) -> Value:
    given, classes = _tensor(logits), _tensor(labels)
    if given.ndim != 2 or not given.is_floating_point() or classes.shape != given.shape[:1] or not len(given):
        raise SpecError(
            f"The logits are {given.dtype} {tuple(given.shape)} and the labels {tuple(classes.shape)}; they must be "
            "floats (N, K) and (N,)."
        )
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) >= given.shape[1]:
        raise SpecError(f"The labels must be whole numbers from 0 to {given.shape[1] - 1}.")
    return _single(_measured(name, Given(logits=given, labels=classes.long()), **options))


def _of_images(name: str, images: Array, reference: Array, features: str, **options: Any) -> dict[str, Value]:
    both = [_tensor(part) for part in (images, reference)]
    kinds = {(part.ndim, part.dtype == torch.uint8, tuple(part.shape[1:])) for part in both}
    as_images = kinds <= {(4, True, tuple(both[0].shape[1:]))}
    as_features = len(kinds) == 1 and both[0].ndim == 2 and all(part.is_floating_point() for part in both)
    if not (as_images or as_features):
        shapes = " and ".join(f"{part.dtype} {tuple(part.shape)}" for part in both)
        raise SpecError(f"Given are {shapes}; both must be images, uint8 (N, C, H, W), or features, floats (N, D).")
    return _measured(name, Given(generated=both[0], reference=both[1]), features=features, **options)


def _tensor(values: Array) -> Tensor:
    return torch.as_tensor(values).detach().cpu()
