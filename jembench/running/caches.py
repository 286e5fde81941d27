"""Caches that outlive a run: models' predictions and images' features."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from jembench import progress
from jembench.catalog import registry
from jembench.catalog.spec import slug
from jembench.data.pixels import content_hash
from jembench.errors import CheckpointError, Fallback, PluginError
from jembench.interfaces import Dataset, FeatureNetwork, Features
from jembench.store import tensors
from jembench.store.store import OF_IMAGES, Store
from jembench.store.tensors import Tensors

WAIT = 0.2
"""Seconds between two attempts to get a lease that another process holds."""


@contextmanager
def when_free(store: Store, lease: str) -> Iterator[None]:
    """Hold a lease, after waiting for other processes to release it.

    The results of those processes can be read then.
    """
    while True:
        with store.lease(lease) as mine:
            if mine:
                yield
                return
        with progress.phase("waiting for another process"):
            time.sleep(WAIT)


@dataclass(frozen=True)
class TensorCache:
    """A cache of tensors on disk, with one file per name.

    The folder and the name identify everything that the tensors depend on. Each file records both,
    so that no file is read for other weights or images.

    Args:
        folder: of the files; None: nothing is cached.
    """

    folder: Path | None

    def recall(self, name: str) -> Tensors:
        """Return the tensors of a name; {} without a valid file.

        A damaged or exchanged file gives a warning.
        """
        path = self._path(name)
        if not path or not path.exists():
            return {}
        try:
            return tensors.read(path, "It is computed again.", placed=True).tensors
        except CheckpointError as error:
            warnings.warn(str(error), Fallback, stacklevel=2)
            return {}

    def keep(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Write the tensors of a name, unless its path is no regular file.

        Raises:
            StoreError: if they cannot be written.
        """
        path = self._path(name)
        if path and (path.is_file() or not path.exists()):
            tensors.write(path, values, {}, placed=True)

    def once(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return the tensors of a name, computed and kept unless cached."""
        values = self.recall(name)
        if not values:
            values = compute()
            self.keep(name, values)
        return values

    def _path(self, name: str) -> Path | None:
        return self.folder / f"{name}.safetensors" if self.folder else None


@dataclass(frozen=True)
class FeatureBank:
    """A dataset's feature networks, and images' features, each computed once.

    Args:
        dataset: the dataset that networks may be trained on.
        store: keeps the networks and features.
        device: of the networks.
    """

    dataset: Dataset
    store: Store
    device: torch.device
    _networks: dict[str, FeatureNetwork] = field(default_factory=dict, init=False)
    _features: dict[str, Features] = field(default_factory=dict, init=False)

    def network(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, ready for use.

        Only one process of a store trains a network.

        Raises:
            Unavailable: if the network's weights are missing.
            StoreError: if a trained network cannot be written.
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
        """Return the features of images, uint8 (N, C, H, W), cached by content."""
        network = self.network(spec)
        name = f"{slug(network.identity)}-{content_hash(images)}"
        if name not in self._features:
            cache = TensorCache(self.store.features / OF_IMAGES)

            def compute() -> Tensors:
                return _checked(network.features(images), len(images), spec)._asdict()

            self._features[name] = Features(**cache.once(name, compute))
        return self._features[name]


def _checked(features: Features, count: int, spec: str) -> Features:
    """Return features of ``count`` images, after a check of shapes and types.

    Raises:
        PluginError: if there is no row of real floating-point numbers for each image.
    """
    for name, values in features._asdict().items():
        if values.ndim != 2 or len(values) != count or not values.is_floating_point():
            raise PluginError(
                f"The feature network {spec} gives {name} {tuple(values.shape)} {values.dtype} "
                f"for {count} images; it must give a row of real floating-point numbers for each "
                f"image, ({count}, D)."
            )
    return features
