"""Limits on sizes in specs, options and files, which are checked before allocation and reading.

The error names the environment variable that raises the limit.
"""

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

from jembench.errors import SpecError

GIB = 2**30


class Limit(NamedTuple):
    """A limit, and the environment variable that raises it."""

    variable: str
    default: int
    unit: str
    least: int = 1

    @property
    def value(self) -> int:
        """The value of the limit.

        Raises:
            SpecError: if the variable is no whole number from ``least`` up.
        """
        text = os.environ.get(self.variable) or str(self.default)
        if not text.isdecimal() or len(text) > 18 or int(text) < self.least:
            raise SpecError(
                f"{self.variable} is {text[:40]!r}; it must be a whole number from {self.least} "
                f"up, of {self.unit}."
            )
        return int(text)


MEMORY = Limit("JEMBENCH_MAX_GIB", 8, "GiB")
"""The largest memory of the images of a split, or of an archive."""

IMAGES = Limit("JEMBENCH_IMAGES_GIB", 1, "GiB", least=0)
"""The largest size of a split's images in memory; larger splits are read in parts.

No result depends on this limit.
"""

CACHE = Limit("JEMBENCH_CACHE_GIB", 32, "GiB", least=0)
"""The largest cache of a split's decoded images; larger splits are decoded at each reading."""

UNPACKED = Limit("JEMBENCH_MAX_UNPACKED_GIB", 1, "GiB")
"""The largest size of an unpacked file."""

TENSORS = Limit("JEMBENCH_MAX_TENSORS", 10_000, "tensors")
"""The largest number of tensors in a file of weights."""

PIXELS = Limit("JEMBENCH_MAX_PIXELS", 178_956_970, "pixels")
"""The largest number of pixels of an image file; by default Pillow's limit for decompression bombs.
"""


def check(what: str, number: int, limit: Limit) -> None:
    """Check that a size is within its limit.

    Raises:
        SpecError: if it is larger.
    """
    if number > limit.value:
        raise SpecError(
            f"{what} takes {number:,} {limit.unit}, and the limit is {limit.value:,}. Ask for "
            f"less, or raise the limit with the environment variable {limit.variable}."
        )


def check_bytes(what: str, number: int, limit: Limit = MEMORY) -> None:
    """Check that a size in bytes is within a limit in GiB; errors as for :func:`check`."""
    check(what, -(-number // GIB), limit)


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Check a zip archive's unpacked size and compression.

    Both are read from the archive's directory; nothing is unpacked.

    Raises:
        SpecError: if the archive is too large, or compressed by a method that ``zipfile`` does not
            unpack block by block.
    """
    if odd := {info.compress_type for info in archive.infolist()} - {
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    }:
        raise SpecError(
            f"{path} is compressed by method {min(odd)} of zip. Compress it by deflate, or not at "
            "all."
        )
    unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > path.stat().st_size:
        check_bytes(f"{path}, unpacked,", unpacked, UNPACKED)
