"""What an imported file says of itself, read without its weights. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jembench.catalog import limits, trust, validation
from jembench.errors import CheckpointError, DamagedError
from jembench.interfaces import DataSpec
from jembench.store import tensors

SCHEMA = 2

_FORMAT = validation.Format(DamagedError, "", is_json=True)
_OLD_KEY = "jembench-import"
"""The key of the metadata in which version 0.1 kept the header, as JSON."""


class Header(NamedTuple):
    """Whose weights they are."""

    model: str  # spec
    sampler: str  # spec; "" without chains
    data: DataSpec
    source: Mapping[str, str]  # importer, file and its SHA-256
    unused: tuple[str, ...]  # names in the source that the model does not need


def record(header: Header) -> dict[str, Any]:
    """What the file's record says of it."""
    return {"schema": SCHEMA, **header._asdict(), "data": dataclasses.asdict(header.data)}


def read(path: Path) -> Header:
    """The header of a file that ``jembench import`` wrote.

    Raises:
        CheckpointError: if it is none, is damaged, or was written by a newer version.
        SpecError: if it has too many tensors, or names code that the user did not name.
    """
    try:
        found = tensors.read_seal(path)
        limits.check(str(path), found.number, limits.TENSORS)
        fields = json.loads(found.record[_OLD_KEY]) if _OLD_KEY in found.record else found.record
        schema = fields["schema"]
        header = validation.read(Header, fields, str(path), form=_FORMAT) if schema <= SCHEMA else None
    except (CheckpointError, DamagedError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is no file that `jembench import` wrote ({error}). Import the weights first: `jembench import "
            "--help` says how."
        ) from error
    if header is None:
        raise CheckpointError(f"{path} was written by a newer jembench (schema {schema}). Update jembench.")
    trust.refuse_code([header.model, header.sampler], str(path))
    return header
