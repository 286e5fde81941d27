"""Checkpoints: one file of tensors with other values as JSON.

A state is any nesting of dictionaries and lists with tensors, numbers, strings, booleans and None
at its leaves. The file is one of :mod:`jembench.store.tensors`: whole or absent, and checked by its
digest when it is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from jembench.errors import CheckpointError
from jembench.interfaces import Fittable
from jembench.store import tensors
from jembench.store.tensors import Tensors
from jembench.store.tensors import age_of as age_of

SCHEMA = 2

REMEDY = (
    "Remove the file and run the same command again: the fit goes on from the last checkpoint "
    "that is whole, or starts anew."
)


def write(path: Path, state: Any, *, age: int = 0, placed: bool = False) -> None:
    """Write a state, atomically.

    Args:
        path: the file.
        state: the state to write.
        age: orders the checkpoints of a run (see :func:`age_of`).
        placed: True to record the place of the file too, which :func:`read` compares.

    Raises:
        StoreError: if the file cannot be written; the previous file is kept.
    """
    packed: Tensors = {}
    record = {"schema": SCHEMA, "age": age, "state": _pack(state, "", packed)}
    tensors.write(path, packed, record, placed=placed)


def read(path: Path, remedy: str = REMEDY, *, placed: bool = False) -> Any:
    """Read a state back, its tensors on the CPU.

    Raises:
        CheckpointError: if the file is damaged, was written by a newer version or, with ``placed``,
            in another place; the message ends with ``remedy``.
    """
    return read_with_digest(path, remedy, placed=placed)[0]


def read_with_digest(path: Path, remedy: str = REMEDY, *, placed: bool = False) -> tuple[Any, str]:
    """Return a state and the digest of its file; see :func:`read`.

    The digest is the SHA-256 of its tensors and its record.
    """
    contents = tensors.read(path, remedy, placed=placed)
    record = contents.seal.record
    try:
        if int(record["schema"]) > SCHEMA:
            raise CheckpointError(
                f"{path} was written by a newer jembench (checkpoint schema {record['schema']}, "
                f"this one reads up to {SCHEMA}). Update jembench, or remove the file and train "
                "anew."
            )
        return _unpack(record["state"], contents.tensors), contents.seal.digest
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a readable checkpoint ({error!r}). {remedy}"
        ) from error


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load a state dictionary whose names and shapes must all fit.

    Nothing is loaded if a name or a shape does not fit.

    Buffers of a model that is fitted at once take the shapes of the weights.

    Raises:
        CheckpointError: if the dictionary does not fit; the message lists all misfits.
    """
    if isinstance(model, Fittable):
        for name, buffer in list(model.named_buffers()):
            if name in weights and weights[name].shape != buffer.shape:
                owner, _, own = name.rpartition(".")
                setattr(model.get_submodule(owner), own, buffer.new_empty(weights[name].shape))
    wrong = misfits(model, weights)
    if wrong:
        shown = "; ".join(wrong[:5])
        if len(wrong) > 5:
            shown += f"; and {len(wrong) - 5} more"
        raise CheckpointError(
            f"The checkpoint belongs to another model: {shown}. Use the model spec that it was "
            "trained with, or another folder with --store."
        )
    model.load_state_dict(weights)


def misfits(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """List the misfits of a model and a state dictionary, sorted.

    Misfits are names, shapes and kinds of numbers.
    """
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own.keys() - weights.keys()]
    wrong += [f"{name} is unknown" for name in weights.keys() - own.keys()]
    for name in own.keys() & weights.keys():
        if own[name].shape != weights[name].shape:
            wrong.append(
                f"{name} is {tuple(weights[name].shape)} instead of {tuple(own[name].shape)}"
            )
        kinds = {(x.is_complex(), x.is_floating_point()) for x in (own[name], weights[name])}
        if len(kinds) > 1:  # PyTorch would cast them in silence
            held = str(weights[name].dtype).removeprefix("torch.")
            expected = str(own[name].dtype).removeprefix("torch.")
            wrong.append(f"{name} holds {held} instead of {expected}")
    return sorted(wrong)


def _pack(value: Any, path: str, packed: Tensors) -> Any:
    """Return a value as JSON.

    Tensors become {"tensor": key}. Dictionaries become lists of pairs, so that keys keep types.
    """

    def inner(key: object, item: Any) -> Any:
        return _pack(item, f"{path}.{key}".lstrip("."), packed)

    if isinstance(value, Tensor):
        packed[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {"dict": [[key, inner(key, item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [inner(number, item) for number, item in enumerate(value)]}
    return value


def _unpack(skeleton: Any, packed: Mapping[str, Tensor]) -> Any:
    if not isinstance(skeleton, dict):
        return skeleton
    if "tensor" in skeleton:
        return packed[skeleton["tensor"]]
    if "dict" in skeleton:
        return {key: _unpack(item, packed) for key, item in skeleton["dict"]}
    return [_unpack(item, packed) for item in skeleton["list"]]
