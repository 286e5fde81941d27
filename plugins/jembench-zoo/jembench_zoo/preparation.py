"""The preparation of images for a pretrained network, read from its library.

A library prepares an image by a function from a picture to a tensor. The normalisation is read off
its results for pictures of one colour, so that no option is missed; resizing and cropping are read
from the library's settings. Normalisation and sizes are compared with the function itself on one
picture.

Legend: C channels, H height, W width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from jembench.errors import Remark
from jembench.models.preparation import Preparation

if TYPE_CHECKING:
    from PIL.Image import Image

Reference = Callable[["Image"], Tensor]
"""The function of a library from an RGB picture to a tensor (3, H, W)."""

_LEVEL = 1.0
"""The largest mean difference from the library's own preparation that needs no remark, in levels of
255.

Libraries round to whole levels after each pass of a resize; here pixels stay numbers with a
gradient.
"""

_METHODS = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}
"""PyTorch's names of Pillow's filters. Those that PyTorch lacks are replaced by bicubic."""


def read_colours(reference: Reference, shape: Sequence[int]) -> Mapping[str, Any]:
    """Return a library's mean, standard deviation and order of channels.

    Args:
        reference: the library's preparation.
        shape: of the images, (C, H, W).
    """
    primaries = [(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255)]
    black, *colours = [_centre(reference(_plain(shape, primary))) for primary in primaries]
    slopes = torch.stack(colours, dim=1) - black[:, None]  # (3 outputs, 3 channels)
    order = slopes.abs().argmax(dim=1)
    slope = slopes.gather(1, order[:, None]).squeeze(1)
    std = 1 / slope
    mean = 0 - black * std
    named = {"mean": mean, "std": std, "order": order}
    return {name: tuple(values.tolist()) for name, values in named.items()}


def remark_on(
    name: str, preparation: Preparation, reference: Reference | None, shape: Sequence[int]
) -> None:
    """Say how images are prepared, and whether the library prepares otherwise.

    Args:
        name: of the model.
        preparation: of its images.
        reference: the library's preparation; None: there is none, or the user chose another size.
        shape: of the images of the dataset, (C, H, W).
    """
    _, height, width = shape
    warnings.warn(f"{name} sees images of {height}x{width} pixels as: {preparation}.", Remark, 2)
    if reference is None:
        return
    generator = torch.Generator().manual_seed(0)
    size = (height, width, 3)
    levels = torch.randint(256, size, generator=generator, dtype=torch.uint8)
    theirs = reference(_picture(levels)).float()
    picture = levels.permute(2, 0, 1)[None] / 255
    (fitted,) = preparation.fit(picture, (0, 1))
    mean = torch.tensor(preparation.mean).view(3, 1, 1)
    std = torch.tensor(preparation.std).view(3, 1, 1)
    ours = (fitted[list(preparation.order)] - mean) / std
    if ours.shape != theirs.shape:
        wrong = f"makes {tuple(theirs.shape)} of them, and here they are {tuple(ours.shape)}"
    else:
        error = (ours - theirs) * std * 255
        difference = float(error.abs().mean())
        if difference <= _LEVEL:
            return
        wrong = f"differs by {difference:.3g} of 255 levels on average, on random pixels"
    warnings.warn(
        f"The library's own preparation of images for {name} {wrong}. Prepare the images as the "
        "library does, and give size= to have them taken as they are.",
        Remark,
        2,
    )


# --- the libraries --------------------------------------------------------------------------------


def of_processor(processor: Any, shape: Sequence[int]) -> tuple[Preparation, Reference]:
    """Return the preparation of an image processor of transformers."""

    def reference(picture: Image) -> Tensor:
        pixels: Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        return pixels

    size = getattr(processor, "size", None) or {}
    crop = getattr(processor, "crop_size", None) or {}
    edge = _get(size, "shortest_edge")
    sides = (_get(size, "height"), _get(size, "width"))
    resize: int | tuple[int, int] | None = edge or sides
    cropped = (_get(crop, "height"), _get(crop, "width"))
    central = cropped if getattr(processor, "do_center_crop", None) and all(cropped) else None
    share = getattr(processor, "crop_pct", None)
    if not getattr(processor, "do_resize", True) or resize == (0, 0):
        resize = None
    elif edge and share and not central:  # ConvNeXt's processor, which crops only small images
        if edge < 384:
            resize, central = int(edge / share), (edge, edge)
        else:
            resize, central = (edge, edge), None
    number = int(getattr(processor, "resample", None) or 0)
    method = _METHODS.get(number, "bicubic")
    colours = read_colours(reference, shape)
    return Preparation(resize=resize, crop=central, method=method, **colours), reference


def of_transform(
    reference: Reference,
    resize: int | tuple[int, int],
    crop: int,
    method: str,
    shape: Sequence[int],
) -> tuple[Preparation, Reference]:
    """Return the preparation by a transform of timm or torchvision."""
    method = method if method in _METHODS.values() else "bicubic"
    colours = read_colours(reference, shape)
    preparation = Preparation(
        resize=resize, crop=(crop, crop), method=method, rounds=True, **colours
    )
    return preparation, reference


def _get(size: Any, name: str) -> int:
    """Return one entry of a size of transformers; 0 if missing.

    Sizes are dictionaries or objects.
    """
    if isinstance(size, Mapping):
        return int(size.get(name) or 0)
    return int(getattr(size, name, None) or 0)


def _plain(shape: Sequence[int], colour: tuple[int, int, int]) -> Image:
    pixel = torch.tensor(colour, dtype=torch.uint8)
    return _picture(pixel.expand(*shape[1:], 3))


def _picture(levels: Tensor) -> Image:
    from PIL import Image

    return Image.fromarray(levels.contiguous().numpy())


def _centre(prepared: Tensor) -> Tensor:
    _, height, width = prepared.shape
    return prepared[:, height // 2, width // 2].double()
