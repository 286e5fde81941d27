"""The datasets that ``jembench`` brings. What each one needs is imported when it is asked for."""

from __future__ import annotations

from jembench.catalog.spec import content_of, incidental
from jembench.data.folders import files_of_celeba, files_of_imagefolder
from jembench.interfaces import Dataset


def digits() -> Dataset:
    """scikit-learn's handwritten digits, bundled: 1,400 training and 397 test images of 8x8, 10 classes."""
    from jembench.data import digits

    return digits.digits()


@incidental("root", "download")
def cifar10(*, root: str = "", download: bool = False) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 3x32x32, 10 classes.

    ``root`` is the folder that holds ``cifar-10-batches-py`` ($JEMBENCH_DATA or ~/.cache/jembench/data by default);
    ``download=true`` fetches what is missing there.
    """
    from jembench.data import torchvision_sets

    return torchvision_sets.cifar10(root, download=download)


@incidental("root", "download")
def cifar100(*, root: str = "", download: bool = False) -> Dataset:
    """CIFAR-100: 50,000 training and 10,000 test images of 3x32x32, 100 classes.

    ``root`` is the folder that holds ``cifar-100-python`` ($JEMBENCH_DATA or ~/.cache/jembench/data by default);
    ``download=true`` fetches what is missing there.
    """
    from jembench.data import torchvision_sets

    return torchvision_sets.cifar100(root, download=download)


@incidental("root", "download")
def svhn(*, root: str = "", download: bool = False) -> Dataset:
    """Street View House Numbers: 73,257 training and 26,032 test images of 3x32x32, 10 classes.

    ``root`` is the folder that holds ``train_32x32.mat`` and ``test_32x32.mat`` ($JEMBENCH_DATA or
    ~/.cache/jembench/data by default); ``download=true`` fetches what is missing there.
    """
    from jembench.data import torchvision_sets

    return torchvision_sets.svhn(root, download=download)


@content_of("root", listing=files_of_imagefolder)
def imagefolder(*, root: str, size: int = 0, grey: bool = False, name: str = "") -> Dataset:
    """Your own images: a folder root with train/<class>/* and test/<class>/*.

    All images have one size, unless ``size`` is given: then each is cropped to its central square and resized to
    ``size`` x ``size``. They become RGB, or one channel with ``grey=true``. ``name`` is what results are filed under,
    by default the folder's own name. The names of the files below root and their content make it what it is: a copy
    elsewhere is the same data set, and a folder in which an image was changed is another.
    """
    from jembench.data import imagefolder

    return imagefolder.imagefolder(root, size=size, grey=grey, name=name)


@incidental("root")
@content_of("root", listing=files_of_celeba)
def celeba(*, root: str = "", size: int = 32) -> Dataset:
    """CelebA's aligned faces without labels: cropped to the central square, resized to ``size`` pixels.

    ``root`` is the folder that holds ``celeba/img_align_celeba`` and ``celeba/list_eval_partition.txt`` ($JEMBENCH_DATA
    or ~/.cache/jembench/data by default).
    """
    from jembench.data import celeba

    return celeba.celeba(root, size=size)
