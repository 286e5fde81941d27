"""The seal in a PNG file: the fit's id and the weights' digest.

Imports neither Pillow nor torch.
"""

import zlib
from contextlib import suppress
from pathlib import Path

from jembench.errors import CheckpointError
from jembench.files import read_bytes
from jembench.store import fits
from jembench.store.layout import id_of

SAMPLES = "samples.png"
"""The name of the picture of a fit's samples, in its folder."""

KEY = "jembench"
"""The keyword of the text in the file."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def seal_for(folder: Path) -> str:
    """Return the text for pictures in a fit's folder.

    Raises:
        CheckpointError: if the weights of the fit are missing, or their header is damaged.
    """
    return f"{id_of(folder)} {fits.weights_digest(folder)}"


def check(path: Path, largest: int | None = None) -> bytes:
    """Return a picture of a fit, after a check of its seal.

    Raises:
        OSError: if the file cannot be read, or has more than ``largest`` bytes.
        CheckpointError: if the picture is damaged, or of another fit or other weights.
    """
    content = read_bytes(path, largest)
    fit, _, weights = (_text(content) or "").partition(" ")
    expected = weights
    with suppress(*fits.UNREADABLE):  # a training that goes on has no record
        expected = fits.read(path.parent).files.get(fits.WEIGHTS[0], weights)
    if (fit, weights) != (id_of(path.parent), expected):
        raise CheckpointError(
            f"{path} is damaged, or of another model than its folder's. Remove it; `jembench "
            "sample` draws images."
        )
    return content


def _text(content: bytes) -> str | None:
    """Return the text under the keyword of a picture.

    None if there is none, or if a chunk of the file is damaged.
    """
    text, at = None, len(_SIGNATURE)
    if not content.startswith(_SIGNATURE):
        return None
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunk, crc = content[at + 4 : at + 8 + size], content[at + 8 + size : at + 12 + size]
        if zlib.crc32(chunk).to_bytes(4, "big") != crc:
            return None
        keyword, _, value = chunk[4:].partition(b"\0")
        if chunk[:4] == b"tEXt" and keyword == KEY.encode():
            text = value.decode("latin-1")
        at += 12 + size
    if content[-8:-4] != b"IEND":
        return None
    return text
