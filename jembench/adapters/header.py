"""What an imported file says of itself, read without its weights. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors

from jembench.errors import CheckpointError

SCHEMA = 1
KEY = "jembench-import"
"""The key of the file's metadata under which the header lies."""


class Header(NamedTuple):
    """Whose weights they are."""

    model: str  # spec
    sampler: str  # spec; "" without chains
    data: Mapping[str, Any]  # the fields of the DataSpec
    source: Mapping[str, str]  # importer, file and its SHA-256
    unused: tuple[str, ...]  # names in the source that the model does not need


def encode(header: Header) -> str:
    """The header as JSON."""
    return json.dumps({"schema": SCHEMA, **header._asdict()})


def read(path: Path) -> Header:
    """The header of a file that ``jembench import`` wrote.

    Raises:
        CheckpointError: if it is none, is damaged, or was written by a newer version.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            fields = json.loads((file.metadata() or {})[KEY])
        schema = fields.pop("schema")
        if schema > SCHEMA:
            raise CheckpointError(f"{path} was written by a newer jembench (schema {schema}). Update jembench.")
        return Header(**{**fields, "unused": tuple(fields["unused"])})
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no file that `jembench import` wrote ({error}). Import the weights first: "
            "`jembench import --help` says how."
        ) from error
