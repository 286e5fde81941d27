"""Bundles: one trained model with its results, to be shared as a folder, a zip archive or a repository of a hub.

A bundle is a store of one fit, with a model card and a manifest that names every file with its size and digest. What
the manifest does not name is never read. Nothing in a bundle is code: safetensors, JSON, CSV, PNG, arrays of numbers.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from jembench.catalog import limits
from jembench.errors import CheckpointError, DamagedError, SpecError
from jembench.files import copy
from jembench.store import fits, manifest, outcome, records, tensors
from jembench.store.fits import WEIGHTS, FitRecord
from jembench.store.latest import newest
from jembench.store.layout import listed
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store
from jembench.store.walk import verify

_CHAINS = re.compile(r"(sampler|buffer-.)\.safetensors")


# --- writing ----------------------------------------------------------------------------------------------------------


def build(store: Store, fit: FitKey, folder: Path, *, chains: bool = True) -> tuple[FitRecord, list[Cell]]:
    """Copy a fit and its current results into an empty folder. Failed and unfinished results are left out.

    Args:
        store: that has the fit.
        fit: to be shared.
        folder: of the bundle.
        chains: whether the samples that the training kept are copied. Without them a sampler starts new chains.

    Returns:
        the record of the fit, and the results.

    Raises:
        SpecError: if the fit has not been trained to its end.
        DamagedError: if a file is damaged.
    """
    record, home = store.read_fit(fit), store.fit_folder(fit)
    if record is None or not store.is_trained(fit):
        raise SpecError(f"The training of {fit} has not ended, or it failed: there is no model to share.")
    for path in listed(home):
        name = f"fits/{home.name}/{path.name}"
        if manifest.is_part(name) and (chains or not _CHAINS.fullmatch(path.name)):
            copy(path, folder / name, durable=False)
    if not chains:
        record = _without_chains(record, folder / "fits" / home.name)
    current = newest(store.contents().cells)
    results = [cell for cell in current if cell.fit.id == fit.id and cell.outcome.is_settled]
    for cell in results:
        for path in filter(Path.exists, (store.arrays_path(cell), store.cell_path(cell))):
            copy(path, folder / path.relative_to(store.root), durable=False)
    for finding in verify(Store(folder)):
        if finding.status == "damaged":
            raise DamagedError(f"{finding.file} in {store.root} cannot be shared: {finding.reason}")
    return record, results


def _without_chains(record: FitRecord, folder: Path) -> FitRecord:
    """Write the record of a fit again, and a file of no chains beside it."""
    from jembench.store import checkpoint  # imports torch

    sampler = folder / WEIGHTS[1]
    checkpoint.write(sampler, {})
    files = {name: found for name, found in record.files.items() if not _CHAINS.fullmatch(name)}
    files[sampler.name] = tensors.read_seal(sampler).digest
    left_out = {"chains": "left out"} if files[sampler.name] != record.files.get(sampler.name) else {}
    changed = record._replace(files=files, provenance={**record.provenance, **left_out})
    records.write(folder / fits.RECORD, outcome.encode(changed._asdict()))
    return changed


# --- reading ----------------------------------------------------------------------------------------------------------


def unpack(source: Path, folder: Path, name: str = "", within: Path | None = None) -> FitRecord:
    """Copy a bundle into an empty folder, which becomes a store, and check everything in it.

    Args:
        source: a folder or a zip archive.
        folder: where it is copied to.
        name: of the source, for errors.
        within: the folder that links of the source must not lead out of; by default the source.

    Returns:
        the record of its fit.

    Raises:
        SpecError: if the source is no bundle, or larger than the limits allow.
        DamagedError: if a file is missing, or is not the one that was shared.
    """
    name = name or str(source)
    try:
        manifest.copy(source, folder, within or source)
        manifest.check(folder)
        return _checked(folder)
    except (DamagedError, CheckpointError) as error:
        reason = str(error).replace(f"{folder}/", "").removesuffix(records.REMEDY).strip()
        raise DamagedError(f"{name} is not what was shared: {reason} Nothing was copied. Get it again.") from error


def _checked(folder: Path) -> FitRecord:
    """Return the record of the fit in a copy of a bundle, after all that is beside it was checked."""
    store, homes = Store(folder), listed(folder / "fits")
    trained = store.trained()
    if len(homes) != 1 or not trained or not fits.has_weights(homes[0]):
        raise DamagedError("It does not hold one trained model.")
    for finding in verify(store):
        if finding.status in ("damaged", "stray"):
            raise DamagedError(f"{finding.file}: {finding.reason}")
    for cell in store.contents().cells:
        if cell.fit.id != trained[0].key.id:
            raise DamagedError(f"{store.cell_path(cell).name} is a result of another model, {cell.fit}.")
    for path in listed(folder / "arrays"):
        try:
            with zipfile.ZipFile(path) as archive:
                limits.check_archive(path, archive)
        except zipfile.BadZipFile as error:
            raise DamagedError(f"arrays/{path.name}: {error}") from error
    return trained[0]
