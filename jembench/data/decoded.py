"""Decoded images, kept in the user's cache folder so that the next start need not decode them again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from jaxtyping import UInt8
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jembench.contents import content
from jembench.data.decoding import Form, cannot_decode, decode_all
from jembench.errors import StoreError
from jembench.files import write_bytes
from jembench.locations import cache_folder
from jembench.spec import slug

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
            encoded = safetensors.torch.save({"images": images}, metadata={"fingerprint": fingerprint})
            write_bytes(cache, encoded)
    return images


def _read(file: Path, fingerprint: str) -> Images | None:
    try:
        with safe_open(file, framework="pt") as cache:
            if (cache.metadata() or {}).get("fingerprint") != fingerprint:
                return None
            images: Tensor = cache.get_tensor("images")
            return images
    except (OSError, SafetensorError):
        return None
