"""Names in a store: a text for people, then the id."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from jembench.errors import StoreError

PARTS = ("fits", "cells", "arrays", "readings", "features", "figures")
"""The folders of a store that hold results."""


NESTED = ("fits", "readings", "features", "works")
"""The parts with folders of their own."""


def check_links(root: Path) -> None:
    """Check that no folder links out of its store.

    Files would be written there.

    Raises:
        StoreError: if one is.
    """
    home = os.path.realpath(root)
    folders = [str(root / name) for name in (*PARTS, "works", "leases")]
    for part in NESTED:
        # whoever reads the part says what is wrong
        with suppress(OSError), os.scandir(root / part) as entries:
            folders += [entry.path for entry in entries if entry.is_symlink()]
    for folder in filter(os.path.islink, folders):
        target = os.path.realpath(folder)
        if os.path.commonpath([home, target]) != home:
            raise StoreError(
                f"{folder} leads out of the store, to {target}, where files would be written. "
                "Move that folder into the store in place of the link, or make the whole store a "
                "link."
            )


class AnyCell(Protocol):
    """A cell that was measured, or is to be."""

    @property
    def id(self) -> str:
        """The hash of the fit and the metric."""

    @property
    def name(self) -> str:
        """The text in the names of its files."""


def id_of(path: Path) -> str:
    """Return the id at the end of a name in the store."""
    return path.name.rpartition("-")[2].partition(".")[0]


def listed(folder: Path) -> list[Path]:
    """List the files in a folder, by name and without hidden ones.

    None if there is no such folder.

    Raises:
        StoreError: if it cannot be listed.
    """
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(
            f"Cannot read {folder}: {error.strerror}. Choose another --store."
        ) from error
