"""From image files to pixels: decoded in threads, cropped and resized, and kept in the user's cache folder.

Legend: N files, C channels, H height, W width.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from jembench.catalog import limits
from jembench.catalog.contents import content
from jembench.catalog.spec import slug
from jembench.data.headers import cannot_decode, opened
from jembench.errors import CheckpointError, Fallback, JembenchError, StoreError
from jembench.files import cache_folder, sweep_beside
from jembench.store import tensors

_CHUNK = 256  # images a thread decodes at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The size and colours that every image file is turned into."""

    mode: Literal["RGB", "L"]
    height: int
    width: int
    square: bool  # crop to the central square and resize; False: the images have that size


def decoded(name: str, place: Path, files: Mapping[str, Path], form: Form) -> UInt8[Tensor, "N C H W"]:
    """The pixels of image files, in their order, from the user's cache folder if they were decoded before.

    A cache that cannot be read or written costs time and nothing else.

    Args:
        name: a readable part of the cache file's name.
        place: the folder of the images. It has one cache file, which is replaced when the images change.
        files: the images by their names.
        form: what each image is turned into.

    Raises:
        JembenchError: if a file cannot be decoded.
    """
    try:
        fingerprint = f"{content(files)} {form}"
    except OSError as error:
        raise cannot_decode(error.filename, error) from error
    key = hashlib.sha256(f"{place}\0{form}".encode(errors="surrogateescape")).hexdigest()[:16]
    cache = cache_folder() / "decoded" / f"{slug(name)}-{key}.safetensors"
    images = _cached(cache, fingerprint)
    if images is None:
        images = decode_all(list(map(str, files.values())), form)
        with contextlib.suppress(StoreError):
            sweep_beside(cache)
            tensors.write(cache, {"images": images}, {"fingerprint": fingerprint})
    return images


def _cached(file: Path, fingerprint: str) -> Tensor | None:
    remedy = "The images are decoded again."
    try:
        if not file.exists() or tensors.read_seal(file, remedy).record.get("fingerprint") != fingerprint:
            return None
        return tensors.read(file, remedy).tensors["images"]
    except (CheckpointError, KeyError) as error:
        warnings.warn(str(error), Fallback, stacklevel=2)
        return None


def decode_all(paths: Sequence[str], form: Form) -> UInt8[Tensor, "N C H W"]:
    """The pixels of the files, in their order. Threads help: Pillow releases the interpreter while it decodes.

    Raises:
        JembenchError: if a file cannot be decoded.
    """
    shape = (len(paths), form.height, form.width, len(form.mode))
    limits.check_bytes(f"{len(paths):,} images of {form.width}x{form.height} pixels", math.prod(shape))
    pixels = np.empty(shape, dtype=np.uint8)

    def decode_chunk(start: int) -> None:
        for index in range(start, min(start + _CHUNK, len(paths))):
            pixels[index] = _decode(paths[index], form).reshape(pixels.shape[1:])

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(decode_chunk, range(0, len(paths), _CHUNK)))  # raises what a thread raised
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def _decode(path: str, form: Form) -> np.ndarray:
    with opened(path) as image:
        if image.mode.startswith(("I", "F")):  # Pillow would cut these off at 255
            raise JembenchError(f"{path} has more than 8 bits a channel. Save it as an 8-bit image.")
        picture = image.convert(form.mode)
    if form.square:
        return np.asarray(central_square(picture, form.height))
    return np.asarray(picture)


def central_square(image: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle, resized with bicubic interpolation to ``size`` x ``size``."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Image.Resampling.BICUBIC)
