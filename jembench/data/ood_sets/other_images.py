"""The images of another dataset in the shape of this one.

Legend: N images, M test images of the other dataset, C channels, H height, W width.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from jembench import seeds
from jembench.data.decoding import resized
from jembench.data.images import changed, parts, taken
from jembench.errors import NotApplicable, Remark
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherDataset:
    """The images of another dataset as an OOD set.

    As many as there are test images are drawn at random; all, if there are fewer.

    Each is cropped to its central square, if the test images are square, and resized with
    Pillow's bicubic filter; grey and RGB become each other as Pillow converts them (ITU-R 601).
    They have labels if both datasets have classes of the same names.
    """

    make: Callable[[], Dataset]
    name: str  # of the component, which seeds the random choice
    part: SplitName = "test"

    def draw(self, test: Split, data: DataSpec) -> Split:
        dataset = self.make()
        images, labels = dataset.split(self.part)
        if not data.class_names or data.class_names != dataset.spec.class_names:
            labels = None
        if _holds(images, test.images):
            raise NotApplicable(f"{dataset.spec.name} is the in-distribution dataset itself.")
        if len(images) > len(test.images):
            generator = seeds.generator(0, f"outliers/{self.name}")
            chosen = torch.randperm(len(images), generator=generator)[: len(test.images)]
            images = taken(images, chosen)
            if labels is not None:
                labels = labels[chosen]
        if images.shape[1:] != data.shape:
            images = _reshaped(images, dataset.spec, data)
        return Split(images, labels)


def _holds(images: Tensor, test: Tensor) -> bool:
    """Return whether the first five images of ``test`` are all among ``images``."""
    if test.shape[1:] != images.shape[1:]:
        return False
    missing = test[:5]
    for part in parts(images):
        absent = [not (part == image).flatten(1).all(1).any() for image in missing]
        missing = missing[torch.tensor(absent, dtype=torch.bool)]
        if not len(missing):
            return True
    return False


def _reshaped(images: Tensor, theirs: DataSpec, data: DataSpec) -> UInt8[Tensor, "N C H W"]:
    for spec in (theirs, data):
        if spec.shape[0] not in _MODES:
            raise NotApplicable(
                f"Images of {theirs.name} cannot be given the shape of {data.name}: {spec.name} "
                f"has {spec.shape[0]} channels, and only grey and RGB become each other."
            )

    shapes = ["x".join(map(str, spec.shape)) for spec in (theirs, data)]
    text = (
        f"Images of {theirs.name} of {shapes[0]} are resized to {shapes[1]}, those of {data.name}."
    )
    if theirs.shape[1:] != data.shape[1:]:
        warnings.warn(text, Remark, stacklevel=2)

    def reshape(part: Tensor, places: Tensor) -> Tensor:
        return _resized(part, data)

    return changed(images, reshape, data.shape)


def _resized(images: Tensor, data: DataSpec) -> UInt8[Tensor, "N C H W"]:
    channels, height, width = data.shape
    pixels: list[np.ndarray] = []
    for image in images.permute(0, 2, 3, 1).numpy():
        if image.shape[2] == 1:
            image = image.squeeze(2)
        picture = Image.fromarray(image).convert(_MODES[channels])
        pixels.append(np.asarray(resized(picture, height, width)))
    stacked = torch.from_numpy(np.stack(pixels))
    return stacked.reshape(-1, height, width, channels).permute(0, 3, 1, 2).contiguous()
