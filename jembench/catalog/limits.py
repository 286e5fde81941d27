"""Limits on what a spec, an option or a file may ask for, checked before anything is allocated or read.

A number that is too large by mistake is refused in a sentence. Each limit is raised by an environment variable, which
the sentence names.
"""

from __future__ import annotations

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

    @property
    def value(self) -> int:
        """The number that holds here.

        Raises:
            SpecError: if the variable is no whole number from 1 up.
        """
        text = os.environ.get(self.variable) or str(self.default)
        if not text.isdecimal() or len(text) > 18 or int(text) < 1:
            raise SpecError(f"{self.variable} is {text[:40]!r}; it must be a whole number from 1 up, of {self.unit}.")
        return int(text)


MEMORY = Limit("JEMBENCH_MAX_GIB", 8, "GiB")
"""The memory that the images of a split, or an archive, may take."""

UNPACKED = Limit("JEMBENCH_MAX_UNPACKED_GIB", 1, "GiB")
"""What a compressed file may unpack to."""

TENSORS = Limit("JEMBENCH_MAX_TENSORS", 10_000, "tensors")
"""The number of tensors in a file of weights."""

PIXELS = Limit("JEMBENCH_MAX_PIXELS", 178_956_970, "pixels")
"""What an image file may hold: by default where Pillow suspects a decompression bomb."""


def check(what: str, number: int, limit: Limit) -> None:
    """Compare a size with its limit.

    Raises:
        SpecError: if it is above.
    """
    if number > limit.value:
        raise SpecError(
            f"{what} takes {number:,} {limit.unit}, and the limit is {limit.value:,}. Ask for less, or "
            f"raise the limit with the environment variable {limit.variable}."
        )


def check_bytes(what: str, number: int, limit: Limit = MEMORY) -> None:
    """Compare a size in bytes with a limit in GiB, as :func:`check`."""
    check(what, -(-number // GIB), limit)


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a zip archive that unpacks to far more than it holds, by its directory alone.

    Raises:
        SpecError: if it does, or is compressed by a method that ``zipfile`` does not unpack block by block.
    """
    if odd := {info.compress_type for info in archive.infolist()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise SpecError(f"{path} is compressed by method {min(odd)} of zip. Compress it by deflate, or not at all.")
    unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > path.stat().st_size:
        check_bytes(f"{path}, unpacked,", unpacked, UNPACKED)
