"""The manifest of a bundle: which files a shared model consists of, each with its size and digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from jembench.catalog.validation import Range
from jembench.errors import DamagedError
from jembench.files import digest
from jembench.store import records

MANIFEST = "manifest.json"
CARD = "README.md"

_NAME = "[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]{0,200}"
_PART = re.compile(
    rf"README\.md|cells/{_NAME}\.json|arrays/{_NAME}\.npz|fits/{_NAME}/"
    r"(fit\.json|interventions\.json|history\.csv|(energies|samples)\.png|(model|sampler|buffer-[1-5])\.safetensors)"
)
"""The paths that files of a bundle may have, beside the manifest."""


class Entry(NamedTuple):
    """A file of a bundle."""

    size: Annotated[int, Range(least=0)]  # in bytes
    sha256: str


class Manifest(NamedTuple):
    """The files of a bundle by their paths, with / between their parts."""

    files: Mapping[str, Entry]


def is_part(name: str) -> bool:
    """Whether a file of a bundle may have this path."""
    return _PART.fullmatch(name) is not None


def write(folder: Path) -> None:
    """Write the manifest of a folder in which all the files of a bundle are."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    entries = {
        name: Entry((folder / name).stat().st_size, digest(folder / name)) for name in sorted(filter(is_part, names))
    }
    records.write(folder / MANIFEST, {"files": {name: entry._asdict() for name, entry in entries.items()}})


def read(folder: Path) -> Manifest:
    """The manifest of a folder.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or names what can be no part of a bundle.
    """
    manifest = records.read(folder / MANIFEST).read(Manifest)
    if strange := [name for name in manifest.files if not is_part(name)]:
        raise DamagedError(f"Its manifest names {strange[0][:100]!r}, which can be no file of a trained model.")
    return manifest
