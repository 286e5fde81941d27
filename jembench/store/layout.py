"""Names in a store: a text for people, then the id."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from jembench.catalog.registry import Resolved
from jembench.errors import StoreError

PARTS = ("fits", "cells", "arrays", "readings", "features", "figures")
"""The folders of a store that hold results."""


NESTED = ("fits", "readings", "features", "works")
"""The folders that have subfolders."""


def check_links(root: Path) -> None:
    """Check that no folder links out of its store.

    Through such a link, files would be written elsewhere.

    Raises:
        StoreError: if a folder is such a link.
    """
    home = os.path.realpath(root)
    folders = [str(root / name) for name in (*PARTS, "works", "leases")]
    for part in NESTED:
        # the code that reads the part reports the error
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
        """The text in the names of the cell's files."""


def id_of(path: Path) -> str:
    """Return the id at the end of a name in the store."""
    return path.name.rpartition("-")[2].partition(".")[0]


def listed(folder: Path) -> list[Path]:
    """List a folder's files by name, without hidden files.

    The list is empty if there is no such folder.

    Raises:
        StoreError: if the folder cannot be listed.
    """
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(
            f"Cannot read {folder}: {error.strerror}. Choose another --store."
        ) from error


# --- samples ------------------------------------------------------------------------------------

FRESH_SAMPLES = 1000
"""The default number of new chains, and of images that a model draws directly."""


def drawn_name(n: int, steps: int, conditional: bool, sampler: Resolved | None) -> str:
    """Return the name of n new chains' stored ends.

    ``sampler`` is None for the sampler of training.
    """
    name = f"samples-{n}-{steps}-{conditional}"
    return f"{name}-{sampler.id}" if sampler else name
