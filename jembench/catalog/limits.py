"""Limits on what a spec, an option or a file may ask for, checked before anything is allocated or read.

A number that is too large by mistake is refused in a sentence. Each limit is raised by an environment variable, which
the sentence names.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench.errors import SpecError

if TYPE_CHECKING:
    import zipfile

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
"""What a network, the chains of a sampler, or the images of a split may take."""

UNPACKED = Limit("JEMBENCH_MAX_UNPACKED_GIB", 1, "GiB")
"""What a compressed file may unpack to."""

TENSORS = Limit("JEMBENCH_MAX_TENSORS", 10_000, "tensors")
"""What a network or a file of weights may consist of."""

PIXELS = Limit("JEMBENCH_MAX_PIXELS", 178_956_970, "pixels")
"""What an image file may hold: by default where Pillow suspects a decompression bomb."""


def check(what: str, number: int, limit: Limit) -> None:
    """Compare a size with its limit.

    Raises:
        SpecError: if it is above.
    """
    if number > limit.value:
        shown = f"{number:,}" if number < 10**18 else "more than 10^18"
        raise SpecError(
            f"{what} takes {shown} {limit.unit}, and the limit is {limit.value:,}. Ask for less, or "
            f"raise the limit with the environment variable {limit.variable}."
        )


def check_bytes(what: str, number: int, limit: Limit = MEMORY) -> None:
    """Compare a size in bytes with a limit in GiB, as :func:`check`."""
    check(what, -(-number // GIB), limit)


class Size(NamedTuple):
    """What something takes, as far as that is known."""

    tensors: int = 0
    bytes: int = 0

    def check(self, what: str) -> None:
        """Compare both with their limits, as :func:`check`."""
        check(what, self.tensors, TENSORS)
        check_bytes(what, self.bytes)


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a zip archive that unpacks to far more than it holds, by its directory alone.

    Raises:
        SpecError: if it does, or is compressed by a method that ``zipfile`` does not unpack block by block.
    """
    import zipfile

    if odd := {info.compress_type for info in archive.infolist()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise SpecError(f"{path} is compressed by method {min(odd)} of zip. Compress it by deflate, or not at all.")
    unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > path.stat().st_size:
        check_bytes(f"{path}, unpacked,", unpacked, UNPACKED)


@contextmanager
def allocating(what: str) -> Iterator[None]:
    """Count the tensors that PyTorch makes within the context, each before its memory is taken.

    Raises:
        SpecError: when they are too many, or too large together.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
        """Sees every operation before it is carried out."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.size = Size()

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """False: PyTorch would import its whole compiler, for seconds, to keep it out of this mode."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if size := _allocated(func, args, kwargs):
                self.size = Size(self.size.tensors + 1, self.size.bytes + size)
                self.size.check(what)
            return func(*args, **kwargs)

    with Counted():
        yield


def _allocated(func: Any, args: Any, kwargs: Any) -> int:
    """Bytes of the tensor that an operation makes from nothing but a size; 0 for any other operation."""
    import torch

    arguments = func._schema.arguments
    if not arguments or str(arguments[0].type) == "Tensor":
        return 0
    place = next((place for place, argument in enumerate(arguments) if argument.name == "size"), None)
    if place is None:
        return 0
    size = kwargs.get("size", args[place] if place < len(args) else ())
    dtype: torch.dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return math.prod(map(int, size)) * dtype.itemsize
