"""Units of work where the store is out of reach: which of its files they read, and how their results come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from jembench.store import tensors
from jembench.store.merge import merge
from jembench.store.outcome import FitKey
from jembench.store.store import Store
from jembench.store.verify import Finding


def work_files(root: Path, text: str) -> list[Path]:
    """The files of a store that a unit of work reads: of its fit, its cells, and those that all fits share.

    Args:
        root: of the store.
        text: the unit as JSON.

    Returns:
        Paths relative to the store.
    """
    work = json.loads(text)
    store, key = Store(root), FitKey(**work["fit"])
    folders = [store.fit_folder(key)]
    weights = store.fit_folder(key) / "model.safetensors"
    if weights.exists():
        folders.append(store.readings_of(key.id, tensors.read_seal(weights).digest))
    if work["kind"] != "train":
        folders.append(store.features)
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    found += [path for cell in work["cells"] for path in _cell(store, cell) if path.exists()]
    return [path.relative_to(root) for path in found if not path.name.startswith(".")]


def _cell(store: Store, cell: dict[str, str]) -> Iterator[Path]:
    yield store.cell_path(cell["id"], cell["metric"])
    yield store.arrays_path(cell["id"], cell["metric"])


def merge_stores(source: Path, target: Path) -> list[Finding]:
    """Copy into a store the results of another one; gives those that could not be copied.

    Raises:
        StoreError: if a file cannot be written.
    """
    return [one for one in merge(Store(source), Store(target)) if one.status in ("busy", "damaged")]
