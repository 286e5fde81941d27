"""What every metric of generated images needs: features of the samples and of the dataset, in an order of their own.

Legend: N generated images, M reference images, D features, K logits, C channels, H height, W width.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from jembench.errors import Diverged, Unavailable
from jembench.interfaces import Evaluation, FeatureNetwork, Features
from jembench.metrics.protocol import protocol_id
from jembench.spec import Scalar

Reference = Literal["train", "test"]
_INCEPTION_FROM_HEIGHT = 32


class Generated(NamedTuple):
    """The features of a model's samples, float64 on the CPU, in canonical order."""

    network: FeatureNetwork
    features: Features
    source: str

    @property
    def n(self) -> int:
        """The number of generated images."""
        return len(self.features.pool)

    def label(self, metric: str) -> str:
        """``fid`` under Inception, ``fid-digits-cnn`` under a network of another name."""
        return f"{metric}-{self.network.name}" if self.network.name else metric

    def protocol(self, metric: str, evaluation: Evaluation, **parts: Scalar) -> str:
        """The protocol id. All samples are scored as they are: none selected, none averaged."""
        return protocol_id(
            metric,
            evaluation,
            implementation="torch-fidelity",
            features=self.network.identity,
            images=self.n,
            selection="none",
            pooling="one-buffer",
            source=self.source,
            **parts,
        )


def features_spec(option: str, evaluation: Evaluation) -> str:
    """The feature network that the option ``features`` of a metric means; ``auto`` goes by the size of the images."""
    if option != "auto":
        return option
    return "inception" if evaluation.data.shape[1] >= _INCEPTION_FROM_HEIGHT else "cnn"


def generated(evaluation: Evaluation, features: str) -> Generated:
    """The features of the samples, sorted by the content of the images.

    Sorting first makes every value exactly independent of the order of the samples, although IS and KID shuffle.

    Raises:
        Diverged: if a feature is not finite.
    """
    spec = features_spec(features, evaluation)
    samples = evaluation.samples()
    order = torch.from_numpy(canonical_order(samples.images))
    raw = evaluation.features_of(spec, "samples")
    in_order = Features(*(_finite(part, "samples")[order] for part in raw))
    return Generated(evaluation.features(spec), in_order, samples.source)


def reference_pool(evaluation: Evaluation, features: str, split: Reference) -> Tensor:
    """The pooled features of a part of the dataset, float64 (M, D) on the CPU."""
    return _finite(evaluation.features_of(features_spec(features, evaluation), split).pool, f"{split} images")


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


def require_images(n: int, needed: int, what: str, metric: str, because: str) -> None:
    """Refuse a metric for which there are too few images.

    Raises:
        Unavailable: with what the metric needs, and why.
    """
    if n < needed:
        raise Unavailable(
            f"{metric} needs at least {needed} {what}, {because}; there are {n}. Generate more images, or lift the "
            "limit on the dataset."
        )
