"""Metrics of the images that a model generates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from jembench.catalog.options import added_later
from jembench.catalog.validation import Range
from jembench.errors import NotApplicable
from jembench.interfaces import Capability
from jembench.metrics.base import MOST, Bootstrapped, Comparable, Count, Metric, Resamples
from jembench.metrics.sample_protocol import ALL_KEPT, SampleProtocol, require_images

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec, FeatureNetwork, Planned

SHOWN = 64
"""Confident samples that are shown: a sheet of eight by eight."""

PERCENTILE = 1
"""Of the test images' distances to training images: as many of them count as memorised, and as many fresh samples."""

_INCEPTION_FROM_HEIGHT = 32

Reference = Literal["train", "test"]
Implementation = Literal["torch-fidelity", "barratt-sharma"]


@dataclass(frozen=True, kw_only=True)
class FeatureMetric(SampleProtocol, Comparable):
    """A metric of features of generated images, computed by torch-fidelity or by us."""

    features: str = "auto"
    computed_by: ClassVar[str] = "jembench.metrics.feature_scores:feature_score"

    def __post_init__(self) -> None:
        SampleProtocol.__post_init__(self)
        Metric.__post_init__(self)

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """How many images are needed of each kind, and why.

        Args:
            network: the identity of the feature network.
            dimensions: the number of its pooled features; 0: not known.
        """
        raise NotImplementedError

    def require(self, n: int | None, real: int | None, network: str, dimensions: int) -> None:
        """Refuse too few generated images, or too few of the dataset; None: it is not known how many."""
        least, because = self.least(network, dimensions)
        require_images(n, least, "generated images", self.name, because)
        require_images(real, least, f"{getattr(self, 'reference', '')} images", self.name, because)

    def check(self, planned: Planned) -> None:
        """Whether there will be enough images."""
        n, network = foreseen(planned, self.features, self)
        real = planned.count(self.reference) if isinstance(self, ReferenceMetric) else None
        self.require(n, real, network.identity, getattr(network, "dimensions", 0))


@added_later(implementation="torch-fidelity")
@dataclass(frozen=True, kw_only=True)
class IS(FeatureMetric):
    """Inception score of the model's samples, by torch-fidelity.

    ``features`` is a feature network, for example ``inception:weights=/a/file.pth``; ``auto`` is Inception for images
    of 32 pixels and more, and ``cnn``, trained on the dataset itself, for smaller ones.
    ``implementation=barratt-sharma`` cuts the images into splits in their own order, where torch-fidelity shuffles them
    first. The options from ``source`` to ``top`` say which images are scored; all metrics of samples have them.
    """

    splits: Count = 10
    resamples: Resamples = 200
    implementation: Implementation = "torch-fidelity"
    name: ClassVar[str] = "is"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """An image for each split."""
        return self.splits, "one in each split"


@dataclass(frozen=True, kw_only=True)
class ReferenceMetric(FeatureMetric):
    """A metric that compares generated images with a part of the dataset."""

    reference: Reference = "train"


@dataclass(frozen=True, kw_only=True)
class FID(ReferenceMetric):
    """Fréchet distance between features of the model's samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``. ``resamples`` is 200 by default, and 0 for Inception: each takes half a minute. FID of
    equal distributions is above 0, the more the fewer images; the interval is of its mean over as many images.
    """

    resamples: Annotated[int | None, Range(least=0, most=MOST)] = None
    name: ClassVar[str] = "fid"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """As many images as the network has features."""
        because = f"as many as {network} has features, or the fitted Gaussian is degenerate"
        return dimensions, because


@dataclass(frozen=True, kw_only=True)
class FIDInfinity(FID):
    """Fréchet distance extrapolated to infinitely many images, by a line through FID against 1 / n.

    The line goes through the FID of all images and the mean FIDs of halves and of thirds of both sets. Chong & Forsyth
    (2020), arXiv:1911.07023, reduce the generated images alone. ``features`` and ``resamples``: as for ``fid``.
    """

    name: ClassVar[str] = "fid-infinity"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Six times as many images as the network has features."""
        return 6 * dimensions, f"six times as many as {network} has features, or FID is not linear in 1 / n"


@dataclass(frozen=True, kw_only=True)
class KID(ReferenceMetric):
    """Kernel distance between features of the model's samples and of the dataset, by torch-fidelity.

    ``features``: as for ``is``. Inception's features are taken as they are; those of other networks, whose scale is
    arbitrary and would rule the cubic kernel, are standardised, and the protocol says so.
    """

    subsets: Count = 100
    subset_size: Annotated[int, Range(least=2, most=MOST)] = 1000
    resamples: Resamples = 200
    name: ClassVar[str] = "kid"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """A pair."""
        return 2, "to compare them with one another"


@dataclass(frozen=True, kw_only=True)
class PRC(ReferenceMetric):
    """Precision and recall of the model's samples among features of the dataset, by torch-fidelity, in %.

    ``features``: as for ``is``.
    """

    neighbours: Count = 3
    resamples: Resamples = 200
    name: ClassVar[str] = "prc"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """An image and its neighbours."""
        return self.neighbours + 1, f"each with {self.neighbours} neighbours"


@dataclass(frozen=True, kw_only=True)
class Neighbours(FeatureMetric):
    """Memorisation: how near the model's samples are to training images, compared with test images.

    ``memorised`` is the share of samples, in %, that are as near to a training image as the nearest 1 % of test images:
    1 is expected of samples as fresh as test images, 100 of copies. ``nearest-ratio`` is the ratio of the median
    distances: near 0 for copies, above 1 for images that are unlike the dataset. ``features``: as for ``is``;
    distances between pixels are beside those between features.
    """

    resamples: Resamples = 200
    name: ClassVar[str] = "neighbours"
    computed_by: ClassVar[str] = "jembench.metrics.neighbours:neighbours"

    def check(self, planned: Planned) -> None:
        """Whether there will be enough images."""
        foreseen(planned, self.features, self)
        self.require_test_images(planned.count("test"))

    def require_test_images(self, n: int) -> None:
        """Refuse fewer than 100 test images."""
        require_images(n, 100 // PERCENTILE, "test images", self.name, "whose nearest 1 % set its threshold")


@dataclass(frozen=True, kw_only=True)
class ClassSamples(Bootstrapped, Comparable):
    """Random samples of each class, and what the model itself takes its samples for.

    Of chains on E(x, y), ``agreement`` is the share of samples that the model classifies as the class they were drawn
    for. Of chains on E(x), ``classes`` is the effective number of classes among them, and ``confident`` the share of
    samples whose max p(y|x) is above .9; ``classes-densest``, of a model with an energy, is the effective number of
    classes among the 100 samples of the highest log p(x), or a quarter of them if that is fewer. The labels end with
    where the samples come from: ``classes-fresh``.

    ``source=fresh`` runs new chains: ``images`` of them, of ``steps`` steps, on E(x, y) if ``conditional``.
    """

    source: Literal["kept", "fresh"] = "kept"
    steps: int | None = None
    images: int | None = None
    conditional: bool | None = None
    name: ClassVar[str] = "class-samples"
    computed_by: ClassVar[str] = "jembench.metrics.samples:class_samples"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits", "samples"})

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.samples  # which checks them

    @property
    def samples(self) -> SampleProtocol:
        """Which images are classified."""
        return SampleProtocol(source=self.source, steps=self.steps, images=self.images, conditional=self.conditional)

    def check(self, planned: Planned) -> None:
        """Whether there will be such samples."""
        planned.samples(self.samples.wanted)


@dataclass(frozen=True, kw_only=True)
class ConfidentSamples(Bootstrapped, Comparable):
    """The 64 samples that the model is surest of: their mean confidence and how many classes they are of.

    The intervals are over the samples: each resample has 64 most confident ones of its own.
    """

    name: ClassVar[str] = "confident-samples"
    computed_by: ClassVar[str] = "jembench.metrics.samples:confident_samples"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits", "samples"})

    def check(self, planned: Planned) -> None:
        """Whether there will be enough samples."""
        self.require(planned.samples(ALL_KEPT.wanted))

    def require(self, n: int | None) -> None:
        """Refuse fewer than 64 samples; None: it is not known how many there will be."""
        require_images(n, SHOWN, "samples", self.name, "the most confident of which it shows")


@dataclass(frozen=True, kw_only=True)
class ChainAge(Bootstrapped, Comparable):
    """Median age of the chains in the replay buffer, in steps, and how much of it their classes explain.

    ``age-dependence`` is epsilon squared, 0 to 1. The details give, class by class, the number of chains, their median
    age, and how many of the youngest and of the oldest tenth are of it (with all that are as old as the last of them);
    and the p-value of Kruskal and Wallis's test that the class does not depend on the age.
    """

    name: ClassVar[str] = "chain-age"
    computed_by: ClassVar[str] = "jembench.metrics.samples:chain_age"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits", "samples"})

    def check(self, planned: Planned) -> None:
        """Whether chains will be kept."""
        if planned.kept == 0:
            raise no_ages()


def no_ages() -> NotApplicable:
    """The error for a model without ages of chains."""
    return NotApplicable("The model keeps no chains, or not their ages: only a replay buffer does.")


def features_spec(option: str, data: DataSpec) -> str:
    """The feature network that the option ``features`` of a metric means; ``auto`` goes by the size of the images."""
    if option != "auto":
        return option
    return "inception" if data.shape[1] >= _INCEPTION_FROM_HEIGHT else "cnn"


def foreseen(planned: Planned, features: str, asked: SampleProtocol) -> tuple[int | None, FeatureNetwork]:
    """The number of images that a protocol will have, None if it is not known, and the feature network.

    Raises:
        Unavailable: if the feature network cannot be had, or the model will have no such images, or too few.
    """
    network = planned.features(features_spec(features, planned.spec))
    drawn = planned.samples(asked.wanted)
    n = None if drawn is None else asked.count(drawn)
    if asked.per_class and asked.selection != "features":
        classes = planned.spec.num_classes
        require_images(n, classes, "selected images", "per_class=true", f"one of each of {classes} classes")
    return n, network
