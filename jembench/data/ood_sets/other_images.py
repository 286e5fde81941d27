"""Images of another source in the shape of a dataset: the test images of another one, and photographs.

Legend: N images, M test images of the other dataset, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Generator, Tensor

from jembench import seeds
from jembench.data.decoding import central_square
from jembench.errors import NotApplicable, Unavailable
from jembench.interfaces import Dataset, DataSpec, Split

_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherDataset:
    """As many of its test images as there are of this one's, drawn at random; all of them, if it has fewer.

    Each is cropped to its central square, where this dataset's images are square, and resized with Pillow's bicubic
    filter; grey and RGB become each other as Pillow converts them (ITU-R 601).
    """

    make: Callable[[], Dataset]
    name: str  # of the component, which decides which images are drawn

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        try:
            dataset = self.make()
        except NotApplicable:
            raise
        except Unavailable as error:  # its remedies are those of a dataset to train on
            raise Unavailable(str(error).replace("--dataset ", "--metrics ood:set=")) from error
        images = dataset.split("test").images
        if _all_among(test.images, images):
            raise NotApplicable(f"{dataset.spec.name} is the in-distribution dataset itself.")
        if len(images) > len(test.images):
            generator = seeds.generator(0, f"outliers/{self.name}")
            images = images[torch.randperm(len(images), generator=generator)[: len(test.images)]]
        return images if images.shape[1:] == data.shape else _reshaped(images, dataset.spec, data)


def _all_among(some: Tensor, images: Tensor) -> bool:
    """Whether each of some images is one of ``images``, whatever their data sets are called."""
    if some.shape[1:] != images.shape[1:]:
        return False
    known = {image.tobytes() for image in images.numpy()}
    return all(image.tobytes() in known for image in some.numpy())


def _reshaped(images: Tensor, theirs: DataSpec, data: DataSpec) -> Tensor:
    for spec in (theirs, data):
        if spec.shape[0] not in _MODES:
            raise NotApplicable(
                f"Images of {theirs.name} cannot be given the shape of {data.name}: {spec.name} has {spec.shape[0]} "
                "channels, and only grey and RGB become each other."
            )
    channels, height, width = data.shape
    pixels = images.permute(0, 2, 3, 1).numpy()
    pictures = (
        Image.fromarray(one.squeeze(2) if one.shape[2] == 1 else one).convert(_MODES[channels]) for one in pixels
    )
    if height == width:
        return _stacked([central_square(picture, height) for picture in pictures], data)
    return _stacked([picture.resize((width, height), Image.Resampling.BICUBIC) for picture in pictures], data)


def _stacked(pictures: Sequence[Image.Image], data: DataSpec) -> UInt8[Tensor, "N C H W"]:
    channels, height, width = data.shape
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    return pixels.reshape(-1, height, width, channels).permute(0, 3, 1, 2).contiguous()


def patches(n: int, data: DataSpec, zoom: int, generator: Generator) -> Tensor:
    """Crops at random places of scikit-learn's ``china.jpg`` and ``flower.jpg``, half of each, scaled by a box filter.

    Raises:
        NotApplicable: if they are larger than the photographs, or ``data`` is neither grey nor RGB.
    """
    from sklearn.datasets import load_sample_images

    channels, height, width = data.shape
    high, wide = zoom * height, zoom * width
    photographs = load_sample_images().images
    if any(high > photograph.shape[0] or wide > photograph.shape[1] for photograph in photographs):
        raise NotApplicable(
            f"patches of {zoom} x {height}x{width} pixels do not fit scikit-learn's photographs, which are "
            "427x640. Choose a smaller zoom: patches:zoom=1."
        )
    if channels not in _MODES:
        raise NotApplicable(f"patches are grey or RGB, and images of {data.name} have {channels} channels.")
    pictures = [Image.fromarray(photograph).convert(_MODES[channels]) for photograph in photographs]
    cut = []
    for number in range(n):
        picture = pictures[number % len(pictures)]
        across, down = torch.rand(2, generator=generator)
        left, top = int(across * (picture.width - wide + 1)), int(down * (picture.height - high + 1))
        box = (left, top, left + wide, top + high)
        cut.append(picture.resize((width, height), Image.Resampling.BOX, box))
    return _stacked(cut, data)
