"""Zip archives of arrays with per-example values, in NumPy's format."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jembench import limits

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]


def encode(arrays: Arrays) -> bytes:
    """Encode arrays as ``np.savez_compressed`` does.

    But labels may have any name, and the result has no pickle and no time of day.

    Arrays are sorted by label: an attack that is resumed reads its finished parts in the order of a
    file.
    """
    from numpy.lib import format as npy

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for label, array in sorted(arrays.items()):
            entry = zipfile.ZipInfo(f"{label}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
    return stream.getvalue()


def decode(path: Path, content: bytes) -> Arrays:
    """Decode the content of the file ``path``.

    Raises:
        SpecError: if the content unpacks to more than the limits allow.
        Exception: of any type, if the content is damaged or has objects other than plain arrays:
            NumPy checks little.
    """
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        limits.check_archive(path, archive)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)
