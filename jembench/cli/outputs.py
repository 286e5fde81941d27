"""Files that a command writes where the user says. Nothing is replaced but what jembench wrote itself."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from jembench.errors import SpecError
from jembench.files import cannot_write, write_bytes

PICTURES = {".png": b"Software\0jembench", ".svg": b"<dc:title>jembench</dc:title>"}
"""What stands near the beginning of every picture that jembench writes, by the ending of its name."""

_HEAD = 10_000  # bytes in which a mark stands


def is_ours(path: Path, content: bytes = b"") -> bool:
    """Whether a file is a picture with the mark of jembench, or a CSV with the same columns as ``content``."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if mark := PICTURES.get(path.suffix):
        return mark in head
    return head.partition(b"\n")[0] == content.partition(b"\n")[0]


def check(path: Path, ending: str, *, force: bool, ours: Callable[[Path], bool] = is_ours) -> None:
    """Whether a command may write this file, and can; to be known before the work is done.

    Args:
        path: what ``--output`` says.
        ending: that its name must have.
        force: whether the user gave ``--force``.
        ours: whether a file that exists may be replaced without it.

    Raises:
        SpecError: if it is no ordinary file, has another ending or is somebody else's.
        StoreError: if it cannot be written.
    """
    try:
        if path.is_dir():
            raise SpecError(
                f"--output is {path}, a folder. Name a file in it, for example {path / f'samples{ending}'}."
            )
        if path.suffix != ending:
            raise SpecError(f"--output is {path}; its name must end in {ending}.")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            kind = "a link" if path.is_symlink() else "a device or a pipe"
            raise SpecError(f"--output is {path}, which is {kind} and no ordinary file. Name another file.")
        if path.exists() and not force and not ours(path):
            raise SpecError(
                f"{path} exists, and jembench would not write the same file again: what it holds would be lost. Name "
                "another file with --output, or write over it with --force."
            )
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(path, error, "--output") from error


def write(path: Path, content: bytes, *, force: bool) -> None:
    """Write a picture or a CSV, atomically, if :func:`check` allows it."""
    check(path, path.suffix, force=force, ours=lambda there: is_ours(there, content))
    write_bytes(path, content, "--output")
