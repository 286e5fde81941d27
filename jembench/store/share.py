"""Shared models: stores of one fit with a model card.

They are folders or zip archives.

A list of digests, ``manifest.json``, names every file. Other files are not read.
Nothing in a shared model is code: safetensors, JSON, CSV, PNG, arrays of numbers.
"""

import os
import re
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from jembench import limits
from jembench.errors import CheckpointError, DamagedError, SpecError
from jembench.files import copy, open_regular, write_atomically
from jembench.store import fits, manifest, outcome, records, tensors
from jembench.store.fits import WEIGHTS, FitRecord
from jembench.store.latest import newest
from jembench.store.layout import id_of, listed
from jembench.store.manifest import MANIFEST
from jembench.store.merge import merge
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store
from jembench.store.walk import Item, verify

_CHAINS = re.compile(r"(sampler|buffer-.)\.safetensors")


# --- writing --------------------------------------------------------------------------------------


def build(
    store: Store, fit: FitKey, folder: Path, *, chains: bool = True
) -> tuple[FitRecord, list[Cell]]:
    """Merge a fit and its current results into an empty folder.

    Failed and unfinished results are left out.

    Args:
        store: the store that has the fit.
        fit: the fit to share.
        folder: receives the shared model.
        chains: True to copy the samples that the training kept. Without them a sampler starts new
            chains.

    Returns:
        The record of the fit, and the results.

    Raises:
        SpecError: if the fit has not been trained to its end.
        DamagedError: if a file is damaged.
    """
    record = store.read_fit(fit)
    if record is None or not store.is_trained(fit):
        raise SpecError(
            f"The training of {fit} has not ended, or it failed: there is no model to share."
        )
    current = newest(store.cells())
    results = [cell for cell in current if cell.fit.id == fit.id and cell.outcome.is_settled]
    shared = {cell.id for cell in results}

    def wanted(item: Item) -> bool:
        name = item.path.relative_to(store.root).as_posix()
        if item.owner != fit.id or not manifest.is_part(name):
            return False
        if item.kind in ("cell", "arrays"):
            return id_of(item.path) in shared
        return chains or not _CHAINS.fullmatch(item.path.name)

    for finding in merge(store, Store(folder), wanted):
        if finding.status != "copied":
            raise DamagedError(f"{finding.file} in {store.root} cannot be shared: {finding.reason}")
    if not chains:
        record = _without_chains(record, Store(folder).fit_folder(fit))
    return record, results


def _without_chains(record: FitRecord, folder: Path) -> FitRecord:
    """Replace a fit's chains by an empty file, and rewrite its record."""
    from jembench.store import checkpoint  # imports torch

    sampler = folder / WEIGHTS[1]
    checkpoint.write(sampler, {})
    files = {name: digest for name, digest in record.files.items() if not _CHAINS.fullmatch(name)}
    files[sampler.name] = tensors.read_seal(sampler).digest
    about = dict(record.provenance)
    if files[sampler.name] != record.files.get(sampler.name):
        about["chains"] = "left out"
    changed = record._replace(files=files, provenance=about)
    records.write(folder / fits.RECORD, outcome.encode(changed._asdict()))
    return changed


def write_zip(folder: Path, path: Path) -> None:
    """Write a shared model as a zip archive, uncompressed.

    Raises:
        StoreError: if the archive cannot be written.
    """

    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name in (MANIFEST, *manifest.read(folder)):
                archive.write(folder / name, name)

    write_atomically(path, write, "another name")


# --- reading --------------------------------------------------------------------------------------


def unpack(source: Path, folder: Path, name: str = "", within: Path | None = None) -> FitRecord:
    """Copy a shared model into an empty folder, and check it.

    The folder becomes a store.

    Args:
        source: a folder or a zip archive.
        folder: the target.
        name: the source's name in errors.
        within: the folder within which links of the source must stay; by default the source.

    Returns:
        The record of its fit.

    Raises:
        SpecError: if the source is no shared model, or larger than the limits allow.
        DamagedError: if a file is missing, or is not the one that was shared.
        StoreError: if a copy cannot be written.
    """
    if not source.exists():
        raise SpecError(f"There is no {source}. Name a folder, a zip archive or hf://USER/NAME.")
    try:
        if source.is_dir():
            _receive(lambda part: _copy(source / part, folder / part, within or source), folder)
        else:
            _extract(source, folder)
        return _check(Store(folder))
    except (DamagedError, CheckpointError) as error:
        reason = str(error).replace(f"{folder}/", "").removesuffix(records.REMEDY).strip()
        name = name or str(source)
        raise DamagedError(
            f"{name} is not what was shared: {reason} Nothing was copied. Get it again."
        ) from error


def _copy(path: Path, to: Path, within: Path) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(within)):
        raise DamagedError(f"{path.name} is a link that leads out of the folder.")
    limits.check_bytes(str(path), path.stat().st_size)
    copy(path, to, durable=False)


def _extract(source: Path, folder: Path) -> None:
    try:
        with open_regular(source) as stream, zipfile.ZipFile(stream) as archive:
            limits.check_archive(source, archive)
            _receive(lambda part: archive.extract(part, folder), folder)
    # RuntimeError: the archive is encrypted
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DamagedError(f"It is no zip archive that can be read ({error}).") from error


def _receive(copy_part: Callable[[str], object], folder: Path) -> None:
    """Copy the manifest and the files that it names, and check them."""

    def receive(name: str) -> None:
        try:
            with suppress(KeyError, FileNotFoundError):  # a missing file is detected below
                copy_part(name)
        except OSError as error:
            raise DamagedError(f"{name} cannot be read ({error.strerror or error}).") from error

    receive(MANIFEST)
    if not (folder / MANIFEST).exists():
        raise SpecError(
            f"There is no trained model: {MANIFEST} is missing. `jembench push` writes such a "
            "folder, zip archive or repository; `jembench store merge` copies from a whole store."
        )
    for name in manifest.read(folder):
        receive(name)
    manifest.check(folder)


def _check(store: Store) -> FitRecord:
    """Check a shared model's files, and return its record.

    Raises:
        DamagedError: if there is not exactly one trained model, or a file is damaged or of another
            model.
    """
    homes, trained = listed(store.root / "fits"), store.trained()
    if len(homes) != 1 or not trained or not store.is_trained(trained[0].key):
        raise DamagedError("It does not hold exactly one trained model.")
    for finding in verify(store):
        if finding.status != "ok":
            raise DamagedError(f"{finding.file}: {finding.reason}")
    for cell in store.cells():
        if cell.fit.id != trained[0].key.id:
            raise DamagedError(
                f"{store.cell_path(cell).name} is a result of another model, {cell.fit}."
            )
    return trained[0]
