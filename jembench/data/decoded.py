"""Decoded images, kept in the user's cache folder so that the next start need not decode them again."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from jembench.catalog.contents import content
from jembench.catalog.spec import slug
from jembench.data.decoding import Form, cannot_decode, decode_all
from jembench.errors import CheckpointError, Fallback, StoreError
from jembench.files import cache_folder, sweep_beside
from jembench.store import tensors

Images = UInt8[Tensor, "N C H W"]


def decoded(name: str, place: Path, files: Mapping[str, Path], form: Form) -> Images:
    """The pixels of image files, in their order: kept ones if they are of the same content, else decoded and kept.

    A cache that cannot be read or written costs time and nothing else.

    Args:
        name: for human eyes.
        place: where the images lie. What was kept of another content of the same place is replaced.
        files: by their names.
        form: what each becomes.

    Raises:
        JembenchError: if a file cannot be decoded, or is of another size than is demanded.
    """
    try:
        fingerprint = f"{content(files)} {form}"
    except OSError as error:
        raise cannot_decode(error.filename, error) from error
    key = hashlib.sha256(f"{place}\0{form}".encode(errors="surrogateescape")).hexdigest()[:16]
    cache = cache_folder() / "decoded" / f"{slug(name)}-{key}.safetensors"
    images = _read(cache, fingerprint)
    if images is None:
        images = decode_all(list(map(str, files.values())), form)
        with contextlib.suppress(StoreError):
            sweep_beside(cache)
            tensors.write(cache, {"images": images}, {"fingerprint": fingerprint})
    return images


def _read(file: Path, fingerprint: str) -> Images | None:
    remedy = "The images are decoded again."
    try:
        if not file.exists() or tensors.read_seal(file, remedy).record.get("fingerprint") != fingerprint:
            return None
        return tensors.read(file, remedy).tensors["images"]
    except (CheckpointError, KeyError) as error:
        warnings.warn(str(error), Fallback, stacklevel=2)
        return None
