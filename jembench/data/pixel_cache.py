"""Files of decoded images, which are filled on demand and shared by processes.

A record is the checksum of an image, its flags, and its pixels. Each record is read and written by
one call at its own place in a sparse file, so that a kill leaves whole records behind, and
processes that decode the same image write the same bytes. A torn or changed record is not used.
"""

import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jembench.errors import Fallback

_HEAD = struct.Struct("<IHH")  # the checksum of the rest, flags, and _WRITTEN
_WRITTEN = 0x6A62


@dataclass(kw_only=True)
class PixelCache:
    """The decoded images of one folder.

    A file that cannot be read or written only costs time.

    Args:
        size: the number of bytes of an image.
        path: of the file; None: nothing is kept.
    """

    size: int
    path: Path | None = None
    _checked: set[int] = field(default_factory=set, init=False)  # rows that this process verified
    _is_full: bool = field(default=False, init=False)  # the disk, or its quota

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """Give the descriptor of the file; None: it cannot be opened."""
        if self.path is None:
            yield None
            return
        descriptor = None
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
            descriptor = os.open(self.path, flags, 0o666)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def read(self, descriptor: int | None, row: int, pixels: np.ndarray) -> int | None:
        """Read an image into ``pixels``.

        Returns:
            the image's flags; None: it is not in the file, or damaged.
        """
        if descriptor is None:
            return None
        head = bytearray(_HEAD.size)
        count = 0
        with suppress(OSError):
            count = os.preadv(descriptor, [head, pixels.data], self._place(row))
        checksum, flags, written = _HEAD.unpack(head)
        if not any(head):
            return None
        is_whole = count == len(head) + self.size and written == _WRITTEN
        if is_whole and row in self._checked:
            return int(flags)
        if not is_whole or checksum != _checksum(flags, pixels):
            warnings.warn(
                f"{self.path} is damaged at image {row}. The images are decoded again.",
                Fallback,
                stacklevel=2,
            )
            return None
        self._checked.add(row)
        return int(flags)

    def write(self, descriptor: int | None, row: int, pixels: np.ndarray, flags: int) -> None:
        """Write an image, unless an earlier one could not be written."""
        if descriptor is None or self._is_full:
            return
        head = _HEAD.pack(_checksum(flags, pixels), flags, _WRITTEN)
        try:
            count = os.pwritev(descriptor, [head, pixels.data], self._place(row))
        except OSError:
            count = 0
        self._is_full = count < len(head) + self.size
        if self._is_full and count:  # clear the head of half a record
            with suppress(OSError):
                os.pwrite(descriptor, bytes(_HEAD.size), self._place(row))
        if not self._is_full:
            self._checked.add(row)

    def _place(self, row: int) -> int:
        return row * (_HEAD.size + self.size)


def _checksum(flags: int, pixels: np.ndarray) -> int:
    return zlib.crc32(pixels.data, flags)
