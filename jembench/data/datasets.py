"""Datasets whose images are read when they are first needed, and what is known of them before.

Legend: N images, C channels, H height, W width. Imports no torch until images are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jembench.catalog.registry import Resolved
from jembench.interfaces import Dataset, DataSpec, Split, SplitName


class LazyDataset:
    """A :class:`~jembench.interfaces.Dataset` made from its description and a function that reads one split.

    Each split is read once. Every call gives a copy on the CPU, which may be written to. ``train_size`` and
    ``test_size`` are the numbers of images where they are known without reading them.
    """

    def __init__(
        self,
        spec: DataSpec,
        load: Callable[[SplitName], Split],
        *,
        train_size: int | None = None,
        test_size: int | None = None,
    ) -> None:
        self.spec = spec
        self.train_size = train_size
        self.test_size = test_size
        self._load = load
        self._loaded: dict[SplitName, Split] = {}

    def split(self, name: SplitName) -> Split:
        """The images of one split: uint8 (N, C, H, W), and their labels: int64 (N,)."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        images, labels = self._loaded[name]
        return Split(images.clone(), None if labels is None else labels.clone())


def count(dataset: Dataset, name: SplitName) -> int:
    """The number of images of a split. They are read only if it is not known without them."""
    return _stated_size(dataset, name) or len(dataset.split(name).images)


def _stated_size(dataset: Dataset, name: SplitName) -> int | None:
    stated: int | None = getattr(dataset, f"{name}_size", None)
    return stated


def present(dataset: Resolved) -> Dataset:
    """The dataset from the files that are here; nothing is downloaded.

    Raises:
        Unavailable: if files are missing.
    """
    return _made(dataset, download=False)


def unread(dataset: Resolved) -> Dataset:
    """The dataset without its images: one that may be downloaded looks for its files only when it is read."""
    return _made(dataset, download=True)


def _made(dataset: Resolved, *, download: bool) -> Dataset:
    given = dataset.bound.arguments
    made: Dataset = dataset.factory(**{**given, "download": download} if "download" in given else given)
    return made


class BlankDataset:
    """A dataset whose images are missing: as many blank ones, equally many of each class. It takes no memory."""

    def __init__(self, spec: DataSpec, sizes: Mapping[SplitName, int]) -> None:
        self.spec = spec
        self.sizes = sizes

    def split(self, name: SplitName) -> Split:
        """The blank images of one split, all in the memory of one."""
        import torch

        n, classes = self.sizes[name], self.spec.num_classes
        images = torch.zeros((1, *self.spec.shape), dtype=torch.uint8).expand(n, -1, -1, -1)
        return Split(images, torch.arange(n) % classes if classes else None)


def absent(dataset: Resolved) -> BlankDataset | None:
    """Blank images in place of a dataset whose files are missing; None if its shape and size are not known."""
    if "download" not in dataset.bound.arguments:
        return None
    described = unread(dataset)
    train, test = (_stated_size(described, name) for name in ("train", "test"))
    return BlankDataset(described.spec, {"train": train, "test": test}) if train and test else None
