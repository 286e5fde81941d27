"""Decoding of image files: in threads, cropped and resized, and kept in the user's cache folder.

Legend: N files, B files of a part, C channels, H height, W width. Imports no torch until pixels are
read.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from jembench import limits
from jembench.catalog.contents import content
from jembench.catalog.spec import slug
from jembench.data.pixel_cache import PixelCache
from jembench.errors import JembenchError, Remark, SpecError
from jembench.files import cache_folder, open_regular

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int, UInt8
    from PIL import Image
    from torch import Tensor

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The image formats that are read. Other formats of Pillow start programs: EPS starts Ghostscript.
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


_KINDS = tuple(_REMARKS)

_PART = 256
"""The number of images decoded at once: they take memory beside the images that are returned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The size and colours to which every image file is converted."""

    mode: Literal["RGB", "L"]
    height: int
    width: int
    square: bool  # True: as by :func:`resized`; False: refuse another size
    only_grey: bool = False  # True: refuse an image in colour; False: convert it
    method: Literal["bicubic", "bilinear"] = "bicubic"  # of the interpolation

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image, (C, H, W)."""
        return len(self.mode), self.height, self.width

    @property
    def size(self) -> int:
        """The number of bytes of an image."""
        return math.prod(self.shape)


@contextlib.contextmanager
def opened(path: str, encoded: bytes | None = None) -> Iterator[Image.Image]:
    """Open an image file of one of ``FORMATS``, reading only its header.

    Args:
        path: of the file, or a name for messages.
        encoded: the content; None: it is in the file.

    Raises:
        JembenchError: if it is no such image, or decoding it within the context fails.
        SpecError: if it is too large, or no regular file.
    """
    from PIL import Image  # imported here, since planning a run decodes nothing

    # Pillow warns above this number, and refuses twice as many pixels
    Image.MAX_IMAGE_PIXELS = limits.PIXELS.value // 2
    try:
        source: IO[bytes] = BytesIO(encoded or b"")
        if encoded is None:
            source = open_regular(Path(path))
        with source as stream, Image.open(stream, formats=FORMATS) as image:
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


def form_of(
    first: Image.Image,
    size: int,
    grey: bool | None,
    method: Literal["bicubic", "bilinear"] = "bicubic",
) -> Form:
    """Return the form of images by the first one.

    Args:
        first: the first image, opened.
        size: of the square to which images are cropped and resized; 0: that of the first.
        grey: True for one channel, False for RGB; None: as the first is stored.
        method: of the interpolation.
    """
    width, height = (size, size) if size else first.size
    only_grey = grey is None and is_grey(first)
    mode: Literal["RGB", "L"] = "L" if grey or only_grey else "RGB"
    return Form(
        mode=mode,
        height=height,
        width=width,
        square=size > 0,
        only_grey=only_grey,
        method=method,
    )


def decoded(name: str, place: Path, files: Mapping[str, str | Path], form: Form) -> Tensor:
    """Return the pixels of image files, uint8 (N, C, H, W).

    Large ones are :class:`~jembench.data.images.Images`, whose files are read when they are
    indexed. Decoded images are kept in the user's cache folder. A cache that cannot be read or
    written only costs time. Each peculiarity of files is a remark.

    Args:
        name: a readable part of the cache file's name.
        place: the folder of the images. It has one cache file, which is replaced when the images
            change.
        files: the images by their names.
        form: of the pixels.

    Raises:
        JembenchError: if a file cannot be decoded, or has another size or colours; for large ones
            when it is read.
    """
    try:
        fingerprint = content(files)
    except OSError as error:
        raise _cannot_decode(error.filename, error) from error
    paths = list(map(str, files.values()))
    return cached(EncodedImages(len(paths), form, paths.__getitem__), name, place, fingerprint)


def cached(images: EncodedImages, name: str, place: Path, fingerprint: str) -> Tensor:
    """Return the pixels of encoded images, which are kept in the user's cache folder.

    Args:
        images: the encoded images.
        name: a readable part of the cache file's name.
        place: of the images; one cache file is kept for a place and a form.
        fingerprint: of the content of the images.
    """
    import torch

    from jembench.data.images import by_rows

    form = images.form
    if len(images) * form.size <= limits.CACHE.value * limits.GIB:
        stem = f"{slug(name)}-{_short_hash(f'{place} {form}')}"
        content_name = _short_hash(f"{fingerprint} {form}")
        images.cache.path = cache_folder() / "decoded" / f"{stem}-{content_name}.pixels"
        _remove_others(images.cache.path, stem)
    return by_rows(images.read, torch.arange(len(images)), form.shape)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _remove_others(cache: Path, stem: str) -> None:
    """Remove the cache files of the images that a folder had before."""
    for path in cache.parent.glob(f"{stem}*"):
        if path != cache:
            with contextlib.suppress(OSError):  # removed by another process
                path.unlink()


def _of_files(rows: Sequence[int]) -> Sequence[bytes | None]:
    return [None] * len(rows)


class EncodedImages:
    """Encoded images that are decoded in threads, since Pillow releases the GIL.

    Args:
        count: the number of images.
        form: of the pixels.
        name: returns the path of a row's file, or the name of its image for messages.
        encoded: returns the contents of rows; None for an image that is read from its file.
    """

    def __init__(
        self,
        count: int,
        form: Form,
        name: Callable[[int], str],
        encoded: Callable[[Sequence[int]], Sequence[bytes | None]] = _of_files,
    ) -> None:
        self.count, self.form, self.name, self.encoded = count, form, name, encoded
        self.cache = PixelCache(size=form.size)
        self._remarked: set[str] = set()  # peculiarities

    def __len__(self) -> int:
        return self.count

    def read(self, rows: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
        """Return the pixels of rows, from the cache or else decoded.

        Raises:
            JembenchError: if a file cannot be decoded, or has another size or colours.
        """
        import torch

        height, width = self.form.height, self.form.width
        size = len(rows) * self.form.size
        limits.check_bytes(f"{len(rows):,} images of {width}x{height} pixels", size)
        images = torch.empty((len(rows), *self.form.shape), dtype=torch.uint8)
        flags: list[int] = []
        for start in range(0, len(rows), _PART):
            part = slice(start, start + _PART)
            flags += self._fill(images[part].numpy(), rows[part].tolist())
        if any(flags):
            self._remark([self.name(row) for row in rows.tolist()], flags)
        return images

    def _fill(self, images: np.ndarray, rows: Sequence[int]) -> list[int]:
        """Set the pixels of rows, and return their flags: which peculiarities they have."""
        with self.cache.opened() as file:
            kept = [self.cache.read(file, row, images[place]) for place, row in enumerate(rows)]
            missing = [place for place, flags in enumerate(kept) if flags is None]
            decoding = self._decode([rows[place] for place in missing])
            for place, (pixels, kinds) in zip(missing, decoding, strict=True):
                images[place] = pixels.transpose(2, 0, 1)
                flags = sum(1 << _KINDS.index(kind) for kind in kinds)
                self.cache.write(file, rows[place], images[place], flags)
                kept[place] = flags
        return [flags or 0 for flags in kept]

    def _decode(self, rows: Sequence[int]) -> Iterator[tuple[np.ndarray, list[str]]]:
        """Yield the pixels of rows, (H, W, C), and their peculiarities."""
        from concurrent.futures import ThreadPoolExecutor

        if not rows:
            return
        names = [self.name(row) for row in rows]
        forms = [self.form] * len(rows)
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            yield from pool.map(_decode, names, self.encoded(rows), forms)

    def _remark(self, names: Sequence[str], flags: Sequence[int]) -> None:
        """Remark on each peculiarity of images where it is first seen."""
        number = f"{len(names):,} images"
        if len(names) < len(self):
            number = f"the first {number} that were read"
        for index, kind in enumerate(_KINDS):
            few = [name for name, bits in zip(names, flags, strict=True) if bits >> index & 1]
            if few and kind not in self._remarked:
                self._remarked.add(kind)
                text = f"{len(few):,} of {number} {_REMARKS[kind]}. The first is {few[0]}."
                warnings.warn(text, Remark, stacklevel=2)


def _decode(path: str, encoded: bytes | None, form: Form) -> tuple[np.ndarray, list[str]]:
    """Return the pixels of an image, and its peculiarities."""
    import numpy as np

    with opened(path, encoded) as image:
        if image.mode.startswith(("I", "F")):  # Pillow would clip these at 255
            raise JembenchError(
                f"{path} has more than 8 bits a channel. Save it as an 8-bit image."
            )
        if form.only_grey and not is_grey(image):
            raise JembenchError(
                f"{path} is in colour, and the first image is grey. Add grey=false to make all "
                "images RGB, or grey=true to make them grey."
            )
        if not form.square and image.size != (form.width, form.height):
            raise JembenchError(
                f"{path} has {image.width}x{image.height} pixels (width x height), and the "
                f"first image {form.width}x{form.height}. Add size=32 (or another size) to crop "
                "each image to its central square and resize it."
            )
        is_deep = _is_deep(image)  # decoding discards this
        picture: Image.Image = image
        if image.mode == "LAB":  # Pillow converts it only to RGB
            picture = image.convert("RGB")
        picture.load()
        if picture.mode != form.mode:  # a copy otherwise
            picture = picture.convert(form.mode)
        if form.square:
            picture = resized(picture, form.height, form.width, form.method)
        pixels = np.asarray(picture).reshape(form.height, form.width, len(form.mode))
        kinds = _peculiarities(image)  # the last, since it may turn to another page
    if is_deep:
        kinds.append("deep")
    return pixels, kinds


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
    return JembenchError(f"{path} cannot be decoded as an image: {cause}. Replace or remove it.")


def resized(
    image: Image.Image,
    height: int,
    width: int,
    method: Literal["bicubic", "bilinear"] = "bicubic",
) -> Image.Image:
    """Resize an image; for a square result, crop to its largest central square before."""
    from PIL.Image import Resampling

    if height == width:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    return image.resize((width, height), Resampling[method.upper()])
