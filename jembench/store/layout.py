"""Paths of a store. A name is a text for people and, at its end, the id that the file is found by."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from jembench.catalog.spec import slug
from jembench.errors import StoreError
from jembench.store.outcome import FitKey

PARTS = ("fits", "cells", "arrays", "readings", "features", "figures")
"""The folders of a store that hold results."""


class AnyCell(Protocol):
    """A cell that was measured, or is to be."""

    @property
    def id(self) -> str:
        """The hash of the fit and the metric."""

    @property
    def name(self) -> str:
        """The text in the names of its files."""


class _Listing(NamedTuple):
    """The content of a folder when it was last listed."""

    changed: int  # the folder's own time then, in ns
    names: Mapping[str, str]  # by their ends, which begin with the identity


class Layout:
    """The places in a store. Looks at folders, and reads no file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listed: dict[str, _Listing] = {}

    def fit_folder(self, key: FitKey) -> Path:
        """Return the folder of a fit."""
        return self.place("fits", file_name(f"{key.model}-{key.dataset}-{key.recipe}-s{key.seed}", key.id))

    def cell_path(self, cell: AnyCell, *, listed: bool = False) -> Path:
        """Return the file of a cell's outcome; ``listed`` as for :meth:`place`."""
        return self.place("cells", f"{file_name(cell.name, cell.id)}.json", listed=listed)

    def arrays_path(self, cell: AnyCell, *, listed: bool = False) -> Path:
        """Return the file of a cell's per-example values, which it need not have."""
        return self.place("arrays", f"{file_name(cell.name, cell.id)}.npz", listed=listed)

    @property
    def features(self) -> Path:
        """The folder of feature networks."""
        return self.root / "features"

    def readings_of(self, fit_id: str, weights: str) -> Path:
        """Return the folder of a model's predictions; ``weights`` is the digest of its file."""
        return self.root / "readings" / hashlib.sha256(f"{fit_id} {weights}".encode()).hexdigest()[:16]

    def place(self, folder: str, name: str, *, listed: bool = False) -> Path:
        """Return the path of a file, which may have another name in the folder: the id at the end of the name decides.

        ``listed``: a former listing of the folder is enough, because each write changes the folder.
        """
        path = self.root / folder / name
        if path.exists():
            return path
        return path.with_name(self._names(path.parent, listed).get(_end(name), name))

    def _names(self, folder: Path, listed: bool) -> Mapping[str, str]:
        """Return the names in a folder by their ends. List it again if it has changed."""
        known = self._listed.get(folder.name)
        try:
            if known is None or not (listed or known.changed == folder.stat().st_mtime_ns):
                changed = folder.stat().st_mtime_ns  # before it is listed: what comes in meanwhile is listed next time
                known = _Listing(changed, {_end(entry.name): entry.name for entry in os.scandir(folder)})
                self._listed[folder.name] = known
        except OSError:
            return {}
        return known.names


def file_name(name: str, identity: str) -> str:
    """Return the name of a file or folder: a text for people and an id."""
    return f"{slug(name)}-{identity}"


def id_of(path: Path) -> str:
    """Return the id at the end of the name of a fit's folder, or of a cell's file or arrays."""
    return _end(path.name).partition(".")[0]


def _end(name: str) -> str:
    return name.rpartition("-")[2]


def listed(folder: Path) -> list[Path]:
    """List the files in a folder of a store, by name and without hidden ones; none if there is no such folder.

    Raises:
        StoreError: if it cannot be listed.
    """
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"Cannot read {folder}: {error.strerror}. Choose another --store.") from error
