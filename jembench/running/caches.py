"""Caches that outlive a run: predictions of trained models, and features of feature networks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from jembench import progress
from jembench.catalog import registry
from jembench.catalog.spec import slug
from jembench.data.pixels import content_hash
from jembench.errors import CheckpointError, Fallback
from jembench.files import is_taken
from jembench.interfaces import Dataset, FeatureNetwork, Features
from jembench.store import checkpoint
from jembench.store.store import Store

WAIT = 0.2
"""Seconds between two attempts to get a lease that another process holds."""


@contextmanager
def when_free(store: Store, lease: str) -> Iterator[None]:
    """Hold the lease of that id as soon as no other process does. What that process has kept can be read then."""
    while True:
        with store.lease(lease) as mine:
            if mine:
                yield
                return
        with progress.phase("waiting for another process"):
            time.sleep(WAIT)


@dataclass(frozen=True)
class TensorCache:
    """Tensors by name, one file a name, in a folder that names all else that they depend on.

    So no file can outlive the weights of a model or the images: others are looked up under another name.

    Args:
        folder: where they are kept; None: they are not.
        remedy: what a warning about a damaged file says will happen.
    """

    folder: Path | None
    remedy: str = "The model is asked again."

    def recall(self, name: str) -> dict[str, Tensor]:
        """Return the tensors that are kept under a name; a damaged file gives a warning and nothing."""
        path = self._path(name)
        try:
            return dict(checkpoint.read(path, self.remedy)) if path and path.exists() else {}
        except (CheckpointError, TypeError, ValueError) as error:
            warnings.warn(str(error), Fallback, stacklevel=2)
            return {}

    def keep(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Keep tensors under a name, in place of what was there; not where something other than a file lies.

        Raises:
            StoreError: if they cannot be written.
        """
        path = self._path(name)
        if path and not is_taken(path):
            checkpoint.write(path, dict(values))

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the tensors that are kept under a name, or compute and keep them."""
        values = self.recall(name)
        if not values:
            values = compute()
            self.keep(name, values)
        return values

    def _path(self, name: str) -> Path | None:
        return self.folder / f"{name}.safetensors" if self.folder else None


class FeatureBank:
    """The feature networks for one dataset, and the features of images: computed once, whatever asks for them.

    Args:
        dataset: what networks may be trained on.
        store: where they and their features are kept.
        device: where they run.
    """

    def __init__(self, dataset: Dataset, store: Store, device: torch.device) -> None:
        self.dataset = dataset
        self.store = store
        self.device = device
        self._networks: dict[str, FeatureNetwork] = {}
        self._features: dict[str, Features] = {}
        self._cache = TensorCache(store.features / "of-images", "The features are computed again.")

    def network(self, spec: str) -> FeatureNetwork:
        """Return the feature network of that spec, ready for use; one process of a store trains it, if it is trained.

        Raises:
            Unavailable: if its weights are missing.
            StoreError: if it cannot be kept.
        """
        if spec not in self._networks:
            network: FeatureNetwork = registry.resolve("features", spec).make()
            with progress.phase(f"feature network {spec}"), ExitStack() as alone:
                if getattr(network, "trained_here", False):
                    lease = f"features-{slug(f'{self.dataset.spec.name}-{spec}')}"
                    alone.enter_context(when_free(self.store, lease))
                network.prepare(self.dataset, self.store.features, self.device)
            self._networks[spec] = network
        return self._networks[spec]

    def of_images(self, spec: str, images: Tensor) -> Features:
        """Return the features of images, uint8 (N, C, H, W), remembered by the content of the images."""
        network = self.network(spec)
        name = f"{slug(network.identity)}-{content_hash(images)}"
        if name not in self._features:
            self._features[name] = Features(**self._cache.once(name, lambda: network.features(images)._asdict()))
        return self._features[name]
