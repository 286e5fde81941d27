"""What is known of a dataset without its images: enough to plan with.

Legend: N images.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from jembench.catalog.registry import Resolved
from jembench.interfaces import Dataset, DataSpec, Split, SplitName


class AbsentDataset:
    """A dataset whose images are missing: blank ones in their place, equally many of each class."""

    def __init__(self, spec: DataSpec, sizes: Mapping[SplitName, int]) -> None:
        self.spec = spec
        self.sizes = sizes

    def split(self, name: SplitName) -> Split:
        """As many blank images as there are."""
        n, classes = self.sizes[name], self.spec.num_classes
        blank = torch.zeros((1, *self.spec.shape), dtype=torch.uint8).expand(n, -1, -1, -1)
        return Split(blank, torch.arange(n) % classes if classes else None)


def count(dataset: Dataset, name: SplitName) -> int:
    """The number of images of a split; they are read only if it is not known without them."""
    return size_of(dataset, name) or len(dataset.split(name).images)


def size_of(dataset: Dataset, name: SplitName) -> int | None:
    """The number of images of a split that a dataset states, in ``train_size`` and ``test_size``; None: it does not."""
    stated: int | None = getattr(dataset, f"{name}_size", None)
    return stated


def unread(dataset: Resolved) -> Dataset:
    """The dataset without its images: one that may be downloaded does not look for its files before it is read."""
    return _made(dataset, download=True)


def absent(dataset: Resolved) -> AbsentDataset | None:
    """The dataset with blank images, for one whose files are missing; None: nothing is known of it without them."""
    if "download" not in dataset.bound.arguments:
        return None
    described = unread(dataset)
    train, test = (size_of(described, name) for name in ("train", "test"))
    return AbsentDataset(described.spec, {"train": train, "test": test}) if train and test else None


def present(dataset: Resolved) -> Dataset:
    """The dataset as it is here: nothing is downloaded.

    Raises:
        Unavailable: if its files are missing.
    """
    return _made(dataset, download=False)


def _made(dataset: Resolved, *, download: bool) -> Dataset:
    given = dataset.bound.arguments
    made: Dataset = dataset.factory(**{**given, "download": download} if "download" in given else given)
    return made
