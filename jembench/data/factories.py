"""The datasets that core registers. A dataset's module is imported when it is made."""

from typing import Annotated

from jembench.catalog.options import Incidental, never_mirrored
from jembench.catalog.validation import Range
from jembench.data.celeba import celeba as celeba
from jembench.data.digits import digits as digits
from jembench.data.folders import imagefolder as imagefolder
from jembench.data.npz import npz as npz
from jembench.data.toys import toy as toy
from jembench.interfaces import Dataset

Root = Annotated[str, Incidental()]
Download = Annotated[bool, Incidental()]


def cifar10(*, root: Root = "", download: Download = False) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 3x32x32, 10 classes.

    ``root`` is the folder that holds ``cifar-10-batches-py`` ($JEMBENCH_DATA or
    ~/.cache/jembench/data by default); ``download=true`` fetches what is missing there.
    """
    from jembench.data import torchvision_sets

    return torchvision_sets.dataset("cifar10", root, download=download)


def cifar100(*, root: Root = "", download: Download = False) -> Dataset:
    """CIFAR-100: 50,000 training and 10,000 test images of 3x32x32, 100 classes.

    ``root`` is the folder that holds ``cifar-100-python`` ($JEMBENCH_DATA or ~/.cache/jembench/data
    by default); ``download=true`` fetches what is missing there.
    """
    from jembench.data import torchvision_sets

    return torchvision_sets.dataset("cifar100", root, download=download)


def torchvision(
    *,
    name: str,
    root: Root = "",
    download: Download = False,
    size: Annotated[int, Range(least=0)] = 0,
) -> Dataset:
    """A classification set of torchvision, by its class: torchvision:name=FashionMNIST.

    It is any class of torchvision.datasets with ``train=`` or ``split=`` whose items are an image
    and the number of its class. ``root`` is the folder that torchvision reads ($JEMBENCH_DATA or
    ~/.cache/jembench/data by default); ``download=true`` fetches what is missing there. ``size``
    crops each image to its central square and resizes it. The name is the identity, not the files.
    """
    from jembench.data.torchvision_door import TorchvisionDataset

    return TorchvisionDataset(name, root, download=download, size=size)


@never_mirrored
def svhn(*, root: Root = "", download: Download = False) -> Dataset:
    """Street View House Numbers: 73,257 training and 26,032 test images of 3x32x32, 10 classes.

    ``root`` is the folder that holds ``train_32x32.mat`` and ``test_32x32.mat`` ($JEMBENCH_DATA or
    ~/.cache/jembench/data by default); ``download=true`` fetches what is missing there.
    """
    from jembench.data import torchvision_sets

    return torchvision_sets.dataset("svhn", root, download=download)
