"""What the headers of image files say: sizes and colours, without decoding an image. Imports no torch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from jembench.catalog import limits
from jembench.catalog.contents import remembered
from jembench.errors import JembenchError, SpecError
from jembench.files import open_regular

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats in which images are read. Others of Pillow's start programs: EPS starts Ghostscript."""

_GREY = ("1", "L", "I", "F")  # what Pillow's modes of one channel begin with: LA is grey with transparency
_NAMED = 5  # damaged files that an error names


class Survey(NamedTuple):
    """The sizes and colours of a folder's images."""

    grey: bool  # whether each of them is stored in one channel
    sizes: dict[str, tuple[int, str]]  # "width x height" -> how many images, and the first of them


def survey(files: Mapping[str, Path]) -> Survey:
    """Look at the headers of all files, or remember what they said.

    Raises:
        JembenchError: if files are no images; it names them.
        SpecError: if one is too large.
    """
    grey, sizes = json.loads(remembered("surveys", files, _survey))
    return Survey(grey, {size: (count, first) for size, (count, first) in sizes.items()})


def _survey(files: Mapping[str, Path]) -> str:
    grey, sizes, damaged = True, dict[str, tuple[int, str]](), list[JembenchError]()
    for name, path in files.items():
        try:
            with opened(str(path)) as image:
                size = f"{image.width}x{image.height}"
                grey = grey and image.mode.startswith(_GREY)
        except SpecError:
            raise
        except JembenchError as error:
            damaged.append(error)
            continue
        count, first = sizes.get(size, (0, name))
        sizes[size] = count + 1, first
    if damaged:
        more = f" And {len(damaged) - _NAMED} more." if len(damaged) > _NAMED else ""
        raise JembenchError(" ".join(map(str, damaged[:_NAMED])) + more)
    return json.dumps([grey, sizes])


@contextlib.contextmanager
def opened(path: str) -> Iterator[Image.Image]:
    """Open an image file of one of ``FORMATS``, and read no more than its header.

    Raises:
        JembenchError: if it is no such image, or cannot be decoded within the context.
        SpecError: if it is too large, or no regular file.
    """
    Image.MAX_IMAGE_PIXELS = limits.PIXELS.value // 2  # Pillow warns there, and refuses twice as many
    try:
        with open_regular(Path(path)) as stream, Image.open(stream, formats=FORMATS) as image:
            yield image
    except Image.DecompressionBombError as error:
        raise SpecError(
            f"{path} is too large: {error} Replace or remove it. If so large an image is meant, raise the "
            f"limit: set the environment variable {limits.PIXELS.variable}."
        ) from error
    except (OSError, SyntaxError, ValueError) as error:  # SyntaxError: Pillow's word for a damaged PNG
        raise cannot_decode(path, error) from error


def cannot_decode(path: str, error: Exception) -> JembenchError:
    """The error for a file that is no image."""
    cause = error.strerror if isinstance(error, OSError) and error.strerror else error
    return JembenchError(f"{path} cannot be decoded as an image: {cause}. Replace or remove the file.")
