"""Feature networks and what they say of a dataset, shared by all fits of a run and kept between runs."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor

from jembench.catalog import registry
from jembench.catalog.spec import slug
from jembench.data.pixels import content_hash
from jembench.errors import CheckpointError, Fallback
from jembench.files import is_taken
from jembench.interfaces import Dataset, FeatureNetwork, Features
from jembench.store import checkpoint


class FeatureBank:
    """The feature networks for one dataset, and the features of its images: computed once, whatever asks for them.

    Args:
        dataset: what networks may be trained on.
        folder: where they and their features are kept.
        device: where they run.
    """

    def __init__(self, dataset: Dataset, folder: Path, device: torch.device) -> None:
        self.dataset = dataset
        self.folder = folder
        self.device = device
        self._networks: dict[str, FeatureNetwork] = {}
        self._features: dict[Path, Features] = {}

    def network(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, ready for use.

        Raises:
            Unavailable: if its weights are missing.
        """
        if spec not in self._networks:
            network: FeatureNetwork = registry.resolve("features", spec).make()
            network.prepare(self.dataset, self.folder, self.device)
            self._networks[spec] = network
        return self._networks[spec]

    def of_images(self, spec: str, images: Tensor) -> Features:
        """The features of images, uint8 (N, C, H, W): remembered by what the images are, not by their name."""
        network = self.network(spec)
        path = self.folder / "of-images" / f"{slug(network.identity)}-{content_hash(images)}.safetensors"
        if path not in self._features:
            self._features[path] = _read(path) or self._compute(network, images, path)
        return self._features[path]

    def _compute(self, network: FeatureNetwork, images: Tensor, path: Path) -> Features:
        features = network.features(images)
        if not is_taken(path):
            checkpoint.write(path, features._asdict())
        return features


def _read(path: Path) -> Features | None:
    """Features that were kept; a damaged file gives a warning and None."""
    try:
        return Features(**checkpoint.read(path, "The features are computed again.")) if path.exists() else None
    except (CheckpointError, TypeError) as error:
        warnings.warn(str(error), Fallback, stacklevel=2)
        return None
