"""Decoding of image files: in threads, cropped and resized, and kept in the user's cache folder.

Legend: N files, C channels, H height, W width. Imports no torch until pixels are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jembench import limits
from jembench.catalog.contents import content
from jembench.catalog.spec import slug
from jembench.errors import CheckpointError, Fallback, JembenchError, SpecError, StoreError
from jembench.files import cache_folder, open_regular, sweep
from jembench.store import tensors

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The image formats that are read. Others that Pillow supports start programs: EPS starts Ghostscript."""

_GREY = ("1", "L", "I", "F")  # prefixes of Pillow's modes of one channel: LA is grey with transparency


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The size and colours to which every image file is converted."""

    mode: Literal["RGB", "L"]
    height: int
    width: int
    square: bool  # True: crop to the central square and resize; False: refuse another size
    only_grey: bool = False  # True: refuse an image in colour; False: convert it
    method: Literal["bicubic", "bilinear"] = "bicubic"  # of the interpolation


@contextlib.contextmanager
def opened(path: str) -> Iterator[Image.Image]:
    """Open an image file of one of ``FORMATS``, reading only its header.

    Raises:
        JembenchError: if it is no such image, or decoding it within the context fails.
        SpecError: if it is too large, or no regular file.
    """
    from PIL import Image  # imported here, since planning a run decodes nothing

    Image.MAX_IMAGE_PIXELS = limits.PIXELS.value // 2  # Pillow warns there, and refuses twice as many
    try:
        with open_regular(Path(path)) as stream, Image.open(stream, formats=FORMATS) as image:
            yield image
    except Image.DecompressionBombError as error:
        raise SpecError(
            f"{path} is too large: {error} Replace or remove it. If so large an image is meant, raise the "
            f"limit: set the environment variable {limits.PIXELS.variable}."
        ) from error
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises SyntaxError for a damaged PNG
        raise _cannot_decode(path, error) from error


def is_grey(image: Image.Image) -> bool:
    """Return whether an image is stored in one channel."""
    return image.mode.startswith(_GREY)


def decoded(name: str, place: Path, files: Mapping[str, Path], form: Form) -> Tensor:
    """Return the pixels of image files, uint8 (N, C, H, W), from the user's cache folder if they were decoded before.

    A cache that cannot be read or written only costs time.

    Args:
        name: a readable part of the cache file's name.
        place: the folder of the images. It has one cache file, which is replaced when the images change.
        files: the images by their names.
        form: of the pixels.

    Raises:
        JembenchError: if a file cannot be decoded, or has another size or colours.
    """
    try:
        fingerprint = f"{content(files)} {form}"
    except OSError as error:
        raise _cannot_decode(error.filename, error) from error
    key = hashlib.sha256(f"{place}\0{form}".encode(errors="surrogateescape")).hexdigest()[:16]
    cache = cache_folder() / "decoded" / f"{slug(name)}-{key}.safetensors"
    remedy = "The images are decoded again."
    try:
        if cache.exists() and tensors.read_seal(cache, remedy).record.get("fingerprint") == fingerprint:
            return tensors.read(cache, remedy).tensors["images"]
    except CheckpointError as error:
        warnings.warn(str(error), Fallback, stacklevel=2)
    images = decode_all(list(map(str, files.values())), form)
    with contextlib.suppress(StoreError):
        sweep(cache.parent, below=False)
        tensors.write(cache, {"images": images}, {"fingerprint": fingerprint})
    return images


def decode_all(paths: Sequence[str], form: Form) -> Tensor:
    """Return the pixels of the files, uint8 (N, C, H, W), decoded in threads, since Pillow releases the GIL.

    Raises:
        JembenchError: if a file cannot be decoded, or has another size or colours.
    """
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import torch

    shape = (len(paths), form.height, form.width, len(form.mode))
    limits.check_bytes(f"{len(paths):,} images of {form.width}x{form.height} pixels", math.prod(shape))
    pixels = np.empty(shape, dtype=np.uint8)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for place, image in enumerate(pool.map(lambda path: _decode(path, form), paths)):
            pixels[place] = image.reshape(shape[1:])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def _decode(path: str, form: Form) -> np.ndarray:
    import numpy as np

    with opened(path) as image:
        if image.mode.startswith(("I", "F")):  # Pillow would clip these at 255
            raise JembenchError(f"{path} has more than 8 bits a channel. Save it as an 8-bit image.")
        if form.only_grey and not is_grey(image):
            raise JembenchError(
                f"{path} is in colour, and the folder's first image is grey. Add grey=false to make all images RGB, "
                "or grey=true to make them grey."
            )
        if not form.square and image.size != (form.width, form.height):
            raise JembenchError(
                f"{path} has {image.width}x{image.height} pixels (width x height), and the folder's first image "
                f"{form.width}x{form.height}. Add size=32 (or another size) to crop each image to its central square "
                "and resize it."
            )
        picture = image.convert(form.mode)
    return np.asarray(central_square(picture, form.height, form.method) if form.square else picture)


def _cannot_decode(path: str, error: Exception) -> JembenchError:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else error
    return JembenchError(f"{path} cannot be decoded as an image: {cause}. Replace or remove the file.")


def central_square(image: Image.Image, size: int, method: Literal["bicubic", "bilinear"] = "bicubic") -> Image.Image:
    """Crop the largest central square, and resize it to ``size`` x ``size``."""
    from PIL.Image import Resampling

    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Resampling[method.upper()])
