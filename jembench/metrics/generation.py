"""What every metric of generated images needs: the samples that a protocol asks for, features of
them and of the dataset, and an order of their own.

Legend: N generated images, n of them kept, M reference images, D features, K logits, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from jembench.catalog.spec import Scalar
from jembench.errors import Diverged, NotApplicable
from jembench.interfaces import Evaluation, Features, Quantity
from jembench.metrics.classification import log_odds, require_finite
from jembench.metrics.generative import Reference, features_spec
from jembench.metrics.sample_protocol import SampleProtocol


class Generated(NamedTuple):
    """Images of a model that are scored, with their features, float64 on the CPU, in canonical order."""

    images: Tensor  # uint8 (N, C, H, W)
    features: Features
    places: Tensor  # int64 (N,): where each stood among all of the model's images
    network: str  # the name of the feature network; "": Inception
    identity: Mapping[str, Scalar]  # what a protocol must say of which images and features these are

    @classmethod
    def of(
        cls, images: Tensor, features: Features, kept: Tensor, network: str, identity: Mapping[str, Scalar]
    ) -> Generated:
        """The images of ``kept``, int64 (N,), with their features, which must be finite."""
        pool, logits = (finite(part, "samples")[kept] for part in features)
        return cls(images[kept], Features(pool, logits), kept, network, identity)

    @property
    def n(self) -> int:
        """The number of images."""
        return len(self.images)

    def label(self, metric: str) -> str:
        """``fid`` under Inception, ``fid-digits-cnn`` under a network of another name."""
        return f"{metric}-{self.network}" if self.network else metric


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
    found = evaluation.services.features_of(spec, samples.images)
    network = evaluation.services.features(spec)
    kept = torch.from_numpy(canonical_order(samples.images))
    if asked.selection == "features":
        kept = kept[selected(asked, finite(found.logits, "samples")[kept])]
    elif asked.selection != "none":
        density = _read(evaluation, "energy", samples.images)[kept].neg() if asked.selection == "density" else None
        kept = kept[selected(asked, _read(evaluation, "logits", samples.images)[kept], density)]
    identity = {"features": network.identity, **asked.parts(len(kept), len(samples.images), samples.source)}
    return Generated.of(samples.images, found, kept, network.name, identity)


def _read(evaluation: Evaluation, quantity: Quantity, samples: Tensor) -> Tensor:
    values = evaluation.predictions.read(quantity, samples).cpu().double()
    require_finite(values, "energies" if quantity == "energy" else quantity, "samples")
    return values


def selected(
    asked: SampleProtocol, logits: Float[Tensor, "N K"], scores: Float[Tensor, " N"] | None = None
) -> Int[Tensor, " n"]:
    """Which images are kept, in ascending order; of equals the first.

    Args:
        asked: how many, and whether as many of each class.
        logits: those of the selecting network.
        scores: the highest are kept; None: the highest confidence.

    Raises:
        NotApplicable: if there are too few, in total or of some class.
    """
    count = asked.count(len(logits))
    ranking = (log_odds(logits) if scores is None else scores).argsort(descending=True, stable=True)
    if asked.per_class:
        classes = logits.argmax(dim=1)[ranking]
        return _as_many_of_each(ranking, classes, logits.shape[1], count).sort().values
    return ranking[:count].sort().values


def _as_many_of_each(
    ranking: Int[Tensor, " N"], classes: Int[Tensor, " N"], num_classes: int, count: int
) -> Int[Tensor, " n"]:
    each = count // num_classes
    sizes = classes.bincount(minlength=num_classes)
    if each == 0 or int(sizes.min()) < each:
        rarest = int(sizes.argmin())
        raise NotApplicable(
            f"The {count} most confident images, as many of each of {num_classes} classes, are {each} a class, and the "
            f"network that selects sees {int(sizes[rarest])} of class {rarest}. Choose another top, or "
            "per_class=false."
        )
    return torch.cat([ranking[classes == number][:each] for number in range(num_classes)])


def pool_of(evaluation: Evaluation, features: str, images: Reference | Tensor, what: str) -> Tensor:
    """The pooled features of images, float64 (M, D) on the CPU; ``what`` they are, for errors.

    Raises:
        Diverged: if one is not finite.
    """
    return finite(evaluation.services.features_of(features_spec(features, evaluation.data.spec), images).pool, what)


def canonical_order(images: UInt8[Tensor, "N C H W"]) -> NDArray[np.int64]:
    """The order in which images stand when sorted by their bytes."""
    rows = np.ascontiguousarray(images.cpu().numpy().reshape(len(images), -1))
    content: NDArray[Any] = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    return np.argsort(content, kind="stable")


def finite(features: Tensor, what: str) -> Tensor:
    """Features in float64 on the CPU.

    Raises:
        Diverged: if one is not finite; ``what`` they are of.
    """
    features = features.cpu().double()
    bad = int((~features.isfinite()).any(dim=1).sum())
    if bad:
        raise Diverged(f"The features of {bad} of {len(features)} {what} are not finite, so nothing can be compared.")
    return features
