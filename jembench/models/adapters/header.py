"""What an imported file says of itself, read without its weights. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jembench.catalog import limits, trust
from jembench.errors import CheckpointError
from jembench.store import tensors

SCHEMA = 2


class Header(NamedTuple):
    """Whose weights they are."""

    model: str  # spec
    sampler: str  # spec; "" without chains
    data: Mapping[str, Any]  # the fields of the DataSpec
    source: Mapping[str, str]  # importer, file and its SHA-256
    unused: tuple[str, ...]  # names in the source that the model does not need


def record(header: Header) -> dict[str, Any]:
    """What the file's record says of it."""
    return {"schema": SCHEMA, **header._asdict()}


def read(path: Path) -> Header:
    """The header of a file that ``jembench import`` wrote.

    Raises:
        CheckpointError: if it is none, is damaged, or was written by a newer version.
        SpecError: if it has too many tensors, or names code that the user did not name.
    """
    try:
        found = tensors.read_seal(path)
    except CheckpointError as error:
        raise _no_import(path, error) from error
    limits.check(str(path), found.number, limits.TENSORS)
    return parse(found.record, path)


def parse(record: Mapping[str, Any], path: Path) -> Header:
    """The header in a file's record.

    Raises:
        CheckpointError, SpecError: as :func:`read`.
    """
    try:
        fields = dict(record if _OLD_KEY not in record else json.loads(record[_OLD_KEY]))
        schema = fields.pop("schema")
        if schema > SCHEMA:
            raise CheckpointError(f"{path} was written by a newer jembench (schema {schema}). Update jembench.")
        header = Header(**{**fields, "unused": tuple(fields["unused"])})
        _check_types(header)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _no_import(path, error) from error
    trust.refuse_code([header.model, header.sampler], str(path))
    return header


def _no_import(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} is no file that `jembench import` wrote ({error}). Import the weights first: `jembench import --help` "
        "says how."
    )


_OLD_KEY = "jembench-import"
"""The key of the metadata in which version 0.1 kept the header, as JSON."""


def _check_types(header: Header) -> None:
    texts = [header.model, header.sampler, header.data["name"], *header.unused, *header.source.values()]
    numbers = [*header.data["shape"], header.data["num_classes"]]
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError("its header holds other values than texts and whole numbers")
