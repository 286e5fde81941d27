"""The images for metrics of generated images: common options, selection, and features.

Legend: N generated images, n of them kept, M reference images, D features, K logits, C channels, H
    height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from jembench.catalog.options import Names, Neutral
from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import (
    Evaluation,
    FeatureNetwork,
    Features,
    Need,
    Planned,
    Source,
)
from jembench.metrics.base import Array, Needs, OptionalCount, Parts
from jembench.metrics.classification import log_odds, read_finite, require_finite
from jembench.metrics.pretrained import InceptionFeatures

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8
    from torch import Tensor

    from jembench.interfaces.evaluation import Data, Samples

SamplerSpec = Annotated[str | None, Names("samplers"), Neutral()]
_POOLING = {"one": "one-buffer", "five": "five-buffers", "mean": "mean-of-five-buffers"}


@dataclass(frozen=True, kw_only=True)
class SampleProtocol:
    """Options for the source of generated images and their selection.

    The Inception score of one model ranges from 5 to 22 depending on the share of images that is
    kept (the reproducibility report on JEM, Table 4). Grathwohl et al. (2020), Table 5, keep the 10
    % of the highest p(y|x), and pool the buffers of five epochs.

    Raises:
        SpecError: if options contradict one another, or would have no effect.
    """

    # kept: the buffer, or direct samples; fresh: the ends of new chains
    source: Literal["kept", "fresh"] = "kept"
    steps: OptionalCount = None  # of new chains; None: as many as in training
    images: OptionalCount = None  # of new chains, before selection; None: 1,000
    # new chains on E(x, y), with balanced classes; None: as in training
    conditional: bool | None = None
    # one buffer, those of five epochs, or their pixelwise mean
    pooling: Literal["one", "five", "mean"] = "one"
    # images are kept by the confidence max_y p(y|x) of the model or the feature network, or by the
    # model's log p(x)
    selection: Literal["none", "model", "features", "density"] = "none"
    per_class: bool = False  # keep equal numbers of each class that the selecting network predicts
    top: float = 1.0  # images to keep: a share of all in (0, 1], or a whole number above 1
    # of new chains on a differentiable energy; None: images of the model's own
    sampler: SamplerSpec = None
    of_classes = False  # the metric needs logits of the feature network

    def __post_init__(self) -> None:
        for contradiction in _contradictions(self):
            raise SpecError(contradiction)

    @property
    def wanted(self) -> Source:
        """The source of images to ask the evaluation for."""
        return Source(
            chains=self.source,
            steps=self.steps,
            images=self.images,
            conditional=self.conditional,
            pooling=self.pooling,
            sampler=self.sampler,
        )

    @property
    def requires(self) -> Needs:
        """The needs of this metric."""
        needs: set[Need] = set()
        if not self.sampler:  # a sampler needs no samples of the model
            needs.add("samples")
        if self.selection in ("model", "density"):
            needs.add("logits")
        if self.selection == "density":
            needs.add("energy")
        return frozenset(needs)

    def count(self, n: int) -> int:
        """Return the number of images to keep of n.

        Raises:
            NotApplicable: if the number is larger than n.
        """
        count = int(self.top)
        if self.top <= 1:
            count = max(1, round(self.top * n))
        if count > n:
            raise NotApplicable(
                f"{n} images are fewer than the {count} most confident to keep. Lower top."
            )
        return count

    def description(self, kept: int, drawn: int, source: str) -> Parts:
        """Return the protocol of ``kept`` images, selected from ``drawn`` of a ``source``."""
        parts: Parts = {"images": kept, "source": source}
        parts |= {"pooling": _POOLING[self.pooling], "selection": self.selection}
        if self.selection != "none":
            parts |= {"per_class": self.per_class, "top": f"{kept}/{drawn}"}
        return parts


def _contradictions(asked: SampleProtocol) -> Iterator[str]:
    """Yield a sentence for each contradiction between options, and each option without effect."""
    is_new = asked.source == "fresh" or asked.sampler is not None
    for name in ("steps", "images", "conditional"):
        value = getattr(asked, name)
        if value is not None and not is_new:
            yield (
                f"{name}={format_value(value)} sets how new chains run, and source={asked.source} "
                f"runs none. Add source=fresh, or leave {name} out."
            )
    if is_new and asked.pooling != "one":
        yield (
            f"pooling={asked.pooling} uses the chains that training kept, and source=fresh or a "
            "sampler runs new ones. Leave one of the two out."
        )
    top = format_value(asked.top)
    selecting = asked.selection != "none"
    is_whole = asked.top > 1 and asked.top % 1 == 0
    if not (0 < asked.top <= 1 or is_whole):
        yield (
            f"top is {top}; it must be a share of the images above 0 and up to 1, such as 0.1, or "
            "a whole number of them above 1, such as 1000."
        )
    if (asked.per_class or asked.top != 1) and not selecting:
        option = "per_class=true" if asked.per_class else f"top={top}"
        yield (
            f"{option} keeps the most confident images: say whose confidence, such as "
            "selection=model."
        )
    if asked.top == 1 and selecting:
        yield (
            f"selection={asked.selection} keeps the most confident images: say how many, for "
            "example top=0.1."
        )


ALL_KEPT = SampleProtocol()
"""All images of the buffer, or direct samples."""


def require_images(n: int | None, needed: int, what: str, metric: str, because: str) -> None:
    """Check that there are enough images for a metric; None: unknown.

    Raises:
        NotApplicable: if there are too few, with the number needed and the reason.
    """
    if n is not None and n < needed:
        raise NotApplicable(
            f"{metric} needs at least {needed} {what}, {because}; there are {n}. Generate more "
            "images, or lift the limit on the dataset."
        )


def features_spec(option: str, data: Data | Planned) -> str:
    """Return the spec of the option ``features``.

    ``auto`` is Inception for images of 32 pixels and more, and ``cnn`` for smaller ones, and for
    the user's own files where Inception's weights are missing. The identity of the network is part
    of protocols.
    """
    if option != "auto":
        return option
    if data.spec.shape[1] < 32:
        return "cnn"
    if data.content and not InceptionFeatures.published.cached.is_file():
        return "cnn"
    return "inception"


def foresee(
    planned: Planned, features: str, asked: SampleProtocol
) -> tuple[int | None, FeatureNetwork]:
    """Return the protocol's number of images, None if unknown, and the feature network.

    Raises:
        Unavailable: if the feature network is not available, or the model will have no such images,
            or too few.
        NotApplicable: if logits of the network are needed and it has none.
    """
    network = planned.features(features_spec(features, planned))
    _check_classifies(network, asked)
    n = planned.samples(asked.wanted)
    if n is not None:
        n = asked.count(n)
    if asked.per_class and asked.selection != "features":
        classes = planned.spec.num_classes
        because = f"one of each of {classes} classes"
        require_images(n, classes, "selected images", "per_class=true", because)
    return n, network


def _check_classifies(network: FeatureNetwork, asked: SampleProtocol) -> None:
    is_needed = asked.of_classes or asked.selection == "features"
    if is_needed and not getattr(network, "classifies", True):
        raise NotApplicable(
            f"The feature network {network.name} predicts no classes. Use one that does, such as "
            "features=inception."
        )


# --- images and their features --------------------------------------------------------------------


class Generated(NamedTuple):
    """Generated images and their features, float64 on the CPU."""

    images: Tensor  # uint8 (n, C, H, W)
    features: Features
    places: Tensor  # int64 (n,): the index of each among all of the model's images
    network: FeatureNetwork
    identity: Mapping[str, Scalar]  # the parts of a protocol that describe the images and features
    passes: float | None = None  # network passes per kept image; None: unknown

    @property
    def n(self) -> int:
        """The number of images."""
        return len(self.images)

    def label(self, metric: str) -> str:
        """Return ``fid`` under Inception, ``fid-digits-cnn`` under a network of another name."""
        if not self.network.name:
            return metric
        return f"{metric}-{self.network.name}"


def generated(evaluation: Evaluation, features: str, asked: SampleProtocol) -> Generated:
    """Return the images of a protocol with their features, sorted by the content of the images.

    The sorting removes an order by class, which would bias splits and subsets.

    Raises:
        Diverged: if a feature or a logit is not finite.
        Unavailable: if the model has no such images, or too few.
        NotApplicable: if logits of the network are needed and it has none.
    """
    import torch

    # all images of the source, and their features
    spec = features_spec(features, evaluation.data)
    samples = evaluation.samples(asked.wanted)
    images = samples.images
    network = evaluation.services.features(spec)
    _check_classifies(network, asked)
    of_images = evaluation.services.features_of(spec, images)
    pool = finite(of_images.pool, "samples")
    logits = finite(of_images.logits, "samples")

    # the kept images, sorted; of images with equal scores the first are kept
    kept = torch.from_numpy(canonical_order(images))
    if asked.selection == "features":
        kept = kept[selected(asked, logits[kept])]
    elif asked.selection != "none":
        density = None
        if asked.selection == "density":
            density = -read_finite(evaluation, "energy", images).double()[kept]
        confidences = read_finite(evaluation, "logits", images).double()[kept]
        kept = kept[selected(asked, confidences, density)]

    identity: Parts = {"features": network.identity}
    identity |= asked.description(len(kept), len(images), samples.source)
    cost = passes(samples)
    if cost is not None:
        cost = cost * len(images) / len(kept)  # passes of all images, per kept image
    of_kept = Features(pool[kept], logits[kept])
    return Generated(images[kept], of_kept, kept, network, identity, cost)


def passes(samples: Samples) -> float | None:
    """Return the mean network passes of a sample.

    They are the steps of the sample's chain, or 1 if it was drawn directly.

    None: the ages of the chains are unknown, or each fit has selected its own number of steps.
    """
    if samples.ages is not None:
        return float(samples.ages.double().mean()) or None  # ages of imported chains are 0
    if samples.source == "direct":
        return 1.0
    steps = Spec(samples.source).options.get("steps")
    if not steps or steps == "selected":
        return None
    return float(steps)


def selected(
    asked: SampleProtocol, logits: Float[Tensor, "N K"], scores: Float[Tensor, " N"] | None = None
) -> Int[Tensor, " n"]:
    """Return the indices of the images to keep, in ascending order; of equal scores the first.

    Args:
        asked: the number of images, in total or per class.
        logits: of the selecting network.
        scores: the highest are kept; None: keep the highest confidence.

    Raises:
        NotApplicable: if there are too few, in total or of some class.
    """
    import torch

    count, num_classes = asked.count(len(logits)), logits.shape[1]
    if scores is None:
        scores = log_odds(logits)
    ranking = scores.argsort(descending=True, stable=True)
    if not asked.per_class:
        return ranking[:count].sort().values

    of_class = count // num_classes
    classes = logits.argmax(dim=1)[ranking]
    sizes = classes.bincount(minlength=num_classes)
    if of_class == 0 or int(sizes.min()) < of_class:
        rarest = int(sizes.argmin())
        raise NotApplicable(
            f"The {count} most confident images, equally many of each of {num_classes} classes, "
            f"are {of_class} per class, and the selecting network predicts class {rarest} for "
            f"{int(sizes[rarest])}. Choose another top, or per_class=false."
        )
    kept = [ranking[classes == number][:of_class] for number in range(num_classes)]
    return torch.cat(kept).sort().values


def pool_of(
    evaluation: Evaluation, features: str, images: Literal["train", "test"] | Tensor, what: str
) -> Tensor:
    """Return the pooled features of images, float64 (M, D) on the CPU.

    ``what`` names the images in errors.

    Raises:
        Diverged: if a feature is not finite.
    """
    spec = features_spec(features, evaluation.data)
    return finite(evaluation.services.features_of(spec, images).pool, what)


def canonical_order(images: UInt8[Tensor, "N C H W"]) -> Array:
    """Return the indices (N,) that sort images by their bytes."""
    import numpy as np

    rows = np.ascontiguousarray(images.cpu().numpy().reshape(len(images), -1))
    content = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    return np.argsort(content, kind="stable")


def finite(features: Tensor, what: str) -> Tensor:
    """Convert features to float64 on the CPU; ``what`` names the images in errors.

    Raises:
        Diverged: if a feature is not finite.
    """
    features = features.cpu().double()
    require_finite(features, "features", what, "the images cannot be compared.")
    return features
