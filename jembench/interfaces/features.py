"""Feature networks for the comparison of generated images with a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from jembench.interfaces.data import Dataset

__all__ = ["FeatureNetwork", "Features"]


class Features(NamedTuple):
    """The output of a feature network."""

    pool: Tensor  #: float32 (N, D), for FID, KID, precision and recall
    #: float32 (N, K), for the Inception score; K = 0: the network predicts no classes
    logits: Tensor


@runtime_checkable
class FeatureNetwork(Protocol):
    """A fixed network that computes features for generation metrics.

    ``identity`` names the network *and* its weights, and is part of the protocols that use it. A
    network whose weights may be missing is also :class:`~jembench.interfaces.evaluation.Checked`.
    It may have more attributes: ``dimensions: int`` is the number of pooled features;
    ``trained_here: bool`` is True if ``prepare`` trains the network, so that one process at a time
    prepares it; ``classifies: bool`` is False if it has no logits; and ``published: tuple``
    describes its published weights: KID then does not scale the features.
    """

    @property
    def identity(self) -> str: ...
    @property
    def name(self) -> str:
        """The suffix of a metric's label; "" for Inception, whose label is ``fid``."""

    def prepare(self, dataset: Dataset, cache: Any, device: torch.device) -> None:
        """Load or train the network; ``cache`` is a folder (Path) that is kept after the run.

        Raises:
            Unavailable: with the remedy, if weights are missing.
        """

    def features(self, images: Tensor) -> Features:
        """Return the features of images, uint8 (N, C, H, W), computed in batches."""
