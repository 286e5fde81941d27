"""What an imported file says of itself, read without its weights. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors

from jembench import trust
from jembench.errors import CheckpointError

SCHEMA = 1
KEY = "jembench-import"
"""The key of the file's metadata under which the header lies."""


_UNREADABLE = (
    safetensors.SafetensorError,
    OSError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
)
"""What reading a header raises that somebody else made."""


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
        SpecError: if it names code that the user did not name.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            fields = json.loads((file.metadata() or {})[KEY])
        schema = fields.pop("schema")
        if schema > SCHEMA:
            raise CheckpointError(f"{path} was written by a newer jembench (schema {schema}). Update jembench.")
        header = Header(**{**fields, "unused": tuple(fields["unused"])})
        _check_types(header)
    except _UNREADABLE as error:
        raise CheckpointError(
            f"{path} is no file that `jembench import` wrote ({error}). Import the weights first: "
            "`jembench import --help` says how."
        ) from error
    trust.refuse_code([header.model, header.sampler], str(path))
    return header


def _check_types(header: Header) -> None:
    texts = [header.model, header.sampler, header.data["name"], *header.unused, *header.source.values()]
    numbers = [*header.data["shape"], header.data["num_classes"]]
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError("its header holds other values than texts and whole numbers")
