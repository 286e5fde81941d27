"""The files of a cell: its outcome, and its per-example values, whose digest the outcome states."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jembench.errors import DamagedError
from jembench.files import digest, read_bytes
from jembench.store import outcome, records
from jembench.store.layout import id_of
from jembench.store.outcome import Cell

if TYPE_CHECKING:
    import numpy as np


def read(path: Path) -> Cell:
    """The cell in a file, which is named after it.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or of another name.
        StoreError: if it was written by a newer version.
    """
    cell = outcome.from_json(records.read(path))
    if cell.id != id_of(path):
        raise DamagedError(f"{path} holds the cell {cell.id}, which is not the one of its name. {records.REMEDY}")
    return cell


def encode_arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """What ``np.savez_compressed`` writes, for labels of any name, never as a pickle, and without the time of day."""
    from numpy.lib import format as npy

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for label, array in arrays.items():
            entry = zipfile.ZipInfo(f"{label}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
    return stream.getvalue()


def read_arrays(path: Path, cell: Cell) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a cell; none, if it was written without.

    Raises:
        DamagedError: if the file is not the one that was written with the cell, or holds other than plain arrays.
    """
    import numpy as np

    if not cell.arrays:
        return {}
    with _explained(path, cell):
        content = read_bytes(path)
        _compare(cell, hashlib.sha256(content).hexdigest())
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)


def check_arrays(path: Path, cell: Cell) -> None:
    """Whether the file of a cell's arrays is the one that was written with it. Imports no NumPy.

    Raises:
        DamagedError: if not.
    """
    if cell.arrays:
        with _explained(path, cell):
            _compare(cell, digest(path))


def _compare(cell: Cell, found: str) -> None:
    if cell.arrays != found:
        raise ValueError("its content does not match the digest in the cell")


@contextmanager
def _explained(path: Path, cell: Cell) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # numpy checks little: damaged bytes make it raise anything
        raise DamagedError(
            f"{path} cannot be read ({error}): it was cut short, edited or exchanged. `jembench run` computes the cell "
            f"{cell.id} again."
        ) from error
