"""Datasets and out-of-distribution sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DataSpec", "Dataset", "OODSet", "Split", "SplitName"]

SplitName = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """A dataset's name, image shape, classes and pixel range, from which models are made."""

    name: str
    shape: tuple[int, int, int]  #: (C, H, W)
    num_classes: int  #: 0: unlabelled
    class_names: tuple[str, ...] = ()
    bounds: tuple[float, float] = (-1.0, 1.0)  #: the values of pixel 0 and pixel 255 as float

    @property
    def dimensions(self) -> int:
        """The number of pixels times channels of an image."""
        channels, height, width = self.shape
        return channels * height * width


class Split(NamedTuple):
    """The images of one part of a dataset, with their labels."""

    #: uint8 (N, C, H, W); of many image files, a tensor that is read in parts: index it by rows
    images: Tensor
    labels: Tensor | None  #: int64 (N,) in 0..K-1; None: unlabelled


@runtime_checkable
class Truth(Protocol):
    """The exact density of synthetic images, a mixture of one mode or more."""

    @property
    def shares(self) -> Sequence[float]:
        """The probability of each mode, (K,)."""

    def log_joint(self, x: Tensor) -> Tensor:
        """Return log p(x, k) of every mode k: (B, C, H, W) -> (B, K), nats.

        log p(x) is its logsumexp over modes, normalised over the cells of all levels of the images.
        """


@runtime_checkable
class Dataset(Protocol):
    """Images, with labels or without.

    It is deterministic: the same spec gives the same images in the same order.

    Validation images are held out of ``train`` by the recipe. Without images in ``train``, models
    that were trained elsewhere are measured, and none is trained.

    The attributes ``train_size: int`` and ``test_size: int`` may give the number of images without
    reading them, ``side: int`` an image's smaller side where ``spec`` would download files, and
    ``truth:`` :class:`Truth` the images' density. A factory with the attribute ``never_mirrored:
    bool`` says that mirrored images are of no class, such as mirrored digits: recipes that flip
    images then do not.
    """

    @property
    def spec(self) -> DataSpec: ...
    def split(self, name: SplitName) -> Split: ...


@runtime_checkable
class OODSet(Protocol):
    """Out-of-distribution images for a dataset. Deterministic.

    The attribute ``noise: float`` is the standard deviation of their data noise in units of the
    test images' data noise, 1 by default. ``parts: Sequence[str]`` are the specs of the sets that a
    mixture draws from in turn.
    """

    def draw(self, test: Split, data: DataSpec) -> Tensor | Split:
        """Return images of the dataset's shape, uint8 (N, C, H, W).

        N is as a rule the number of test images under evaluation.

        Images of the dataset's own classes may be returned with their labels, as a :class:`Split`.

        Raises:
            Unavailable: if images are missing, with the remedy, or the set is not defined for such
                a dataset.
        """
