"""Datasets whose images are read when they are first needed.

Legend: N images, C channels, H height, W width. Imports no torch until images are read.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from jembench.catalog.registry import Resolved
from jembench.data.labels import check_labels
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Dataset, DataSpec, Split, SplitName
from jembench.interfaces.data import Truth

SPLIT = 0.8
"""The share of images for training, of data without a test part."""


@dataclass(eq=False)
class LazyDataset:
    """A dataset made from its description and a function that reads one split.

    It is a :class:`~jembench.interfaces.Dataset`.

    Each split is read once, and every call returns a copy of it on the CPU, which may be changed.
    A copy of images takes memory only once it is changed.
    """

    spec: DataSpec
    load: Callable[[SplitName], Split]
    _: KW_ONLY
    train_size: int | None = None  # number of images; None: only known by reading them
    test_size: int | None = None
    truth: Truth | None = None  # of synthetic images
    _loaded: dict[SplitName, Split] = field(default_factory=dict, init=False, repr=False)

    def split(self, name: SplitName) -> Split:
        """Return the images of one split, uint8 (N, C, H, W), and their labels, int64 (N,)."""
        from jembench.data.images import copied

        if name not in self._loaded:
            self._loaded[name] = self.load(name)
        images, labels = self._loaded[name]
        if labels is not None:
            labels = labels.clone()
        return Split(copied(images), labels)


def count(dataset: Dataset, name: SplitName) -> int:
    """Return a split's number of images, reading them only if need be."""
    return getattr(dataset, f"{name}_size", None) or len(dataset.split(name).images)


def no_images(spec: DataSpec) -> Split:
    """Return the training split of a dataset with only test images."""
    import torch

    labels = torch.empty(0, dtype=torch.int64) if spec.num_classes else None
    return Split(torch.empty((0, *spec.shape), dtype=torch.uint8), labels)


def share_out(what: str, count: int, split: float) -> dict[SplitName, int]:
    """Return the numbers of images for training and for tests.

    Args:
        what: the data, for messages.
        count: the number of all images.
        split: the share for training.

    Raises:
        SpecError: if there is one image.
    """
    if count < 2:
        raise SpecError(f"{what} has one image, and needs two: one for training, one for tests.")
    train = min(max(round(split * count), 1), count - 1)
    return {"train": train, "test": count - train}


def hold_out(whole: Split, size: int, seed: int) -> dict[SplitName, Split]:
    """Hold test images out, the same share of each class.

    Raises:
        SpecError: if a class has no training image left.
    """
    from jembench.data.holdout import holdout

    train, test = holdout(whole, size, seed, stratified=whole.labels is not None)
    assert test is not None
    check_labels("the images, split into train and test,", {"train": train.labels})
    return {"train": train, "test": test}


def no_training_images(name: str, purpose: str) -> NotApplicable:
    """Return the error for a dataset without training images, and for what needs them."""
    return NotApplicable(
        f"{name} has test images alone, and {purpose}. Add training images, or measure a network "
        "with weights of its own: `jembench import weights FILE` names it, and from Python a "
        "torch.nn.Module is measured as it is."
    )


def make(dataset: Resolved, *, download: bool) -> Dataset:
    """Make the dataset with its option ``download``, if any, replaced.

    False: only local files are read. True: missing files are downloaded when a split is read.

    Raises:
        Unavailable: if files are missing that must be there now.
    """
    options = dict(dataset.arguments)
    if "download" in options:
        options["download"] = download
    made: Dataset = dataset.factory(**options)
    return made


def blank(dataset: Dataset) -> Dataset | None:
    """Return a dataset of blank images in place of another dataset.

    None if that dataset's numbers of images are unknown.
    """
    sizes = {name: getattr(dataset, f"{name}_size", None) for name in ("train", "test")}
    if not all(sizes.values()):
        return None
    spec = dataset.spec

    def load(name: str) -> Split:
        import torch

        n = sizes[name] or 0
        image, labels = torch.zeros((1, *spec.shape), dtype=torch.uint8), None
        if spec.num_classes:
            labels = torch.arange(n) % spec.num_classes
        return Split(image.expand(n, -1, -1, -1), labels)

    return LazyDataset(spec, load, train_size=sizes["train"], test_size=sizes["test"])
