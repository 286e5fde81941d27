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
from typing import TYPE_CHECKING, Literal, NamedTuple

from jembench import limits
from jembench.catalog.contents import content
from jembench.catalog.spec import slug
from jembench.errors import CheckpointError, Fallback, JembenchError, Remark, SpecError, StoreError
from jembench.files import cache_folder, open_regular, sweep
from jembench.store import tensors

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The image formats that are read. Others that Pillow supports start programs: EPS starts
Ghostscript.
"""

# prefixes of Pillow's modes of one channel: LA is grey with transparency
_GREY = ("1", "L", "I", "F")

_ORIENTATION = 0x0112  # the EXIF tag; 1: upright

_REMARKS = {
    "pages": "have several frames or pages, of which the first is read",
    "turned": "are turned in viewers by their EXIF orientation, and are read as they are stored",
    "transparent": "have transparent pixels, which are read in the colours stored for them",
    "deep": "have more than 8 bits a channel, and are read with 8",
    "profile": "are CMYK or Lab, and become RGB without a colour profile of their own",
}
"""Peculiarities of an image file that change what is read of it."""


class Decoded(NamedTuple):
    """The pixels of image files, and remarks about the files, one for each peculiarity."""

    images: Tensor  # uint8 (N, C, H, W)
    remarks: list[str]


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

    # Pillow warns there, and refuses twice as many
    Image.MAX_IMAGE_PIXELS = limits.PIXELS.value // 2
    try:
        with open_regular(Path(path)) as stream, Image.open(stream, formats=FORMATS) as image:
            yield image
    except Image.DecompressionBombError as error:
        raise SpecError(
            f"{path} is too large: {error} Replace or remove it. If so large an image is meant, "
            f"raise the limit: set the environment variable {limits.PIXELS.variable}."
        ) from error
    # Pillow raises SyntaxError for a damaged PNG
    except (OSError, SyntaxError, ValueError) as error:
        raise _cannot_decode(path, error) from error


def is_grey(image: Image.Image) -> bool:
    """Return whether an image is stored in one channel."""
    return image.mode.startswith(_GREY) and image.mode != "LAB"


def decoded(name: str, place: Path, files: Mapping[str, Path], form: Form) -> Tensor:
    """Return the pixels of image files, uint8 (N, C, H, W).

    They come from the user's cache folder if they were decoded before.

    A cache that cannot be read or written only costs time. Each peculiarity of files is a remark.

    Args:
        name: a readable part of the cache file's name.
        place: the folder of the images. It has one cache file, which is replaced when the images
            change.
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
        pixels = _read_cache(cache, fingerprint, remedy)
    except CheckpointError as error:
        warnings.warn(str(error), Fallback, stacklevel=2)
        pixels = None
    if pixels is None:
        pixels = decode_all(list(map(str, files.values())), form)
        record = {"fingerprint": fingerprint, "remarks": pixels.remarks}
        with contextlib.suppress(StoreError):
            sweep(cache.parent, below=False)
            tensors.write(cache, {"images": pixels.images}, record)
    for remark in pixels.remarks:
        warnings.warn(remark, Remark, stacklevel=2)
    return pixels.images


def _read_cache(cache: Path, fingerprint: str, remedy: str) -> Decoded | None:
    """Return the pixels in a cache file; None if there are none, or those of other files.

    Raises:
        CheckpointError: if the file is damaged; it ends with ``remedy``.
    """
    if not cache.exists():
        return None
    record = tensors.read_seal(cache, remedy).record
    if record.get("fingerprint") != fingerprint or "remarks" not in record:
        return None
    return Decoded(tensors.read(cache, remedy).tensors["images"], record["remarks"])


def decode_all(paths: Sequence[str], form: Form) -> Decoded:
    """Decode the files in threads, since Pillow releases the GIL.

    Raises:
        JembenchError: if a file cannot be decoded, or has another size or colours.
    """
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import torch

    shape = (len(paths), form.height, form.width, len(form.mode))
    limits.check_bytes(
        f"{len(paths):,} images of {form.width}x{form.height} pixels", math.prod(shape)
    )
    pixels = np.empty(shape, dtype=np.uint8)
    peculiar: dict[str, list[str]] = {kind: [] for kind in _REMARKS}  # paths by peculiarity
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for place, (image, kinds) in enumerate(pool.map(lambda path: _decode(path, form), paths)):
            pixels[place] = image.reshape(shape[1:])
            for kind in kinds:
                peculiar[kind].append(paths[place])
    remarks = [
        f"{len(few):,} of {len(paths):,} images {_REMARKS[kind]}. The first is {few[0]}."
        for kind, few in peculiar.items()
        if few
    ]
    return Decoded(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), remarks)


def _decode(path: str, form: Form) -> tuple[np.ndarray, list[str]]:
    """Return the pixels of a file, and its peculiarities."""
    import numpy as np

    with opened(path) as image:
        if image.mode.startswith(("I", "F")):  # Pillow would clip these at 255
            raise JembenchError(
                f"{path} has more than 8 bits a channel. Save it as an 8-bit image."
            )
        if form.only_grey and not is_grey(image):
            raise JembenchError(
                f"{path} is in colour, and the folder's first image is grey. Add grey=false to "
                "make all images RGB, or grey=true to make them grey."
            )
        if not form.square and image.size != (form.width, form.height):
            raise JembenchError(
                f"{path} has {image.width}x{image.height} pixels (width x height), and the "
                f"folder's first image {form.width}x{form.height}. Add size=32 (or another size) "
                "to crop each image to its central square and resize it."
            )
        is_deep = _is_deep(image)  # decoding forgets it
        picture: Image.Image = image
        if image.mode == "LAB":  # Pillow converts it to RGB alone
            picture = image.convert("RGB")
        picture = picture.convert(form.mode)
        kinds = _peculiarities(image)
    if is_deep:
        kinds.append("deep")
    if form.square:
        picture = central_square(picture, form.height, form.method)
    return np.asarray(picture), kinds


def _is_deep(image: Image.Image) -> bool:
    """Return whether an image whose mode has 8 bits a channel is stored with more."""
    tiles = getattr(image, "tile", ())
    stored = tiles[0].args if tiles else ()
    if ";16" in str(stored):
        return True
    if image.format != "PPM" or not isinstance(stored, tuple):
        return False
    return any(isinstance(level, int) and level > 255 for level in stored)


def _peculiarities(image: Image.Image) -> list[str]:
    """Return the keys of ``_REMARKS`` that a decoded image has."""
    kinds: list[str] = []
    # damaged metadata raises errors of any class, and does not concern the pixels
    with contextlib.suppress(Exception):
        if getattr(image, "n_frames", 1) > 1:
            kinds.append("pages")
    with contextlib.suppress(Exception):
        if image.getexif().get(_ORIENTATION, 1) not in (0, 1):
            kinds.append("turned")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        opacity = image.convert("RGBA").getchannel("A")
        if opacity.getextrema() != (255, 255):
            kinds.append("transparent")
    if image.mode in ("CMYK", "LAB"):
        kinds.append("profile")
    return kinds


def _cannot_decode(path: str, error: Exception) -> JembenchError:
    cause: object = error
    if isinstance(error, OSError) and error.strerror:
        cause = error.strerror
    return JembenchError(
        f"{path} cannot be decoded as an image: {cause}. Replace or remove the file."
    )


def central_square(
    image: Image.Image, size: int, method: Literal["bicubic", "bilinear"] = "bicubic"
) -> Image.Image:
    """Crop the largest central square, and resize it to ``size`` x ``size``."""
    from PIL.Image import Resampling

    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Resampling[method.upper()])
