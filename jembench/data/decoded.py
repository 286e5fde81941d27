"""Decoded images, kept in the user's cache folder so that the next start need not decode them again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
from jaxtyping import UInt8
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jembench.errors import StoreError
from jembench.files import write_bytes

Images = UInt8[Tensor, "N C H W"]


def decoded(file: Path, fingerprint: str, decode: Callable[[], Images]) -> Images:
    """What ``decode`` gives: read from ``file`` if it was made for this ``fingerprint``, else computed and kept there.

    A cache that cannot be read or written costs time and nothing else.
    """
    images = _read(file, fingerprint)
    if images is None:
        images = decode()
        with contextlib.suppress(StoreError):
            content = safetensors.torch.save({"images": images}, metadata={"fingerprint": fingerprint})
            write_bytes(file, content)
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
