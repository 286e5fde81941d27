"""The manifest of a shared model: the SHA-256 of each file.

All paths have a form that this module allows.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jembench.errors import DamagedError
from jembench.files import digest
from jembench.store import records

MANIFEST = "manifest.json"
CARD = "README.md"

_NAME = "[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]{0,200}"
_PART = re.compile(
    rf"README\.md|cells/{_NAME}\.json|arrays/{_NAME}\.npz|fits/{_NAME}/"
    r"(fit\.json|interventions\.json|history\.csv|samples\.png|(model|sampler|buffer-[1-5])\.safetensors)"
)
"""The paths that files of a shared model may have, beside the manifest."""


class _Manifest(NamedTuple):
    files: Mapping[str, str]  # SHA-256 of each file, by its path with / between the parts


def is_part(name: str) -> bool:
    """Return whether a file of a shared model may have this path."""
    return _PART.fullmatch(name) is not None


def write(folder: Path) -> list[Path]:
    """Write a shared model's manifest, and return all files."""
    files, paths = dict[str, str](), [folder / MANIFEST]
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if is_part(name):
            files[name] = digest(path)
            paths.append(path)
    records.write(folder / MANIFEST, {"files": files})
    return paths


def read(folder: Path) -> Mapping[str, str]:
    """Return the digests of a shared model's files, by path.

    Raises:
        FileNotFoundError: if there is no manifest.
        DamagedError: if the manifest is damaged, or names a file that no shared model has.
    """
    digests = records.read(folder / MANIFEST).read(_Manifest).files
    for name in digests:
        if not is_part(name):
            raise DamagedError(
                f"Its manifest names {name[:100]!r}, which can be no file of a trained model."
            )
    return digests


def check(folder: Path) -> None:
    """Check that a folder's files are those of its manifest.

    Raises:
        DamagedError: if a file is missing or was changed, or the manifest is damaged.
    """
    for name, written in read(folder).items():
        if not (folder / name).exists():
            raise DamagedError(f"{name} is missing.")
        if digest(folder / name) != written:
            raise DamagedError(f"{name} was cut short, edited or exchanged.")
