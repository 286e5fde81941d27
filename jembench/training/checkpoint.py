"""Checkpoints: one safetensors file with every tensor of a state, and its other values as JSON in the header.

A state is any nesting of dictionaries and lists with tensors, numbers, strings, booleans and None at its leaves.
Reading one never runs code. A file is whole or absent: a kill or a full disk keeps the previous one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor, nn

from jembench.errors import CheckpointError
from jembench.files import write_bytes

SCHEMA = 1


def write(path: Path, state: Any, *, age: int = 0) -> None:
    """Write a state, atomically; ``age`` orders several of one run (see :func:`age_of`).

    Raises:
        StoreError: if the file cannot be written; the previous file is kept.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _pack(state, "", tensors)
    header = {"schema": str(SCHEMA), "age": str(age), "state": json.dumps(skeleton)}
    encoded = save(_apart(tensors), metadata=header)
    write_bytes(path, encoded)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none in the memory of another: that is how the format wants tied weights."""
    apart: dict[str, Tensor] = {}
    taken: set[int] = set()
    for key, value in tensors.items():
        own = value.detach().cpu().contiguous()
        memory = own.untyped_storage().data_ptr()
        apart[key] = own.clone() if memory in taken else own
        taken.add(memory)
    return apart


def read(path: Path, device: torch.device | str = "cpu") -> Any:
    """Read a state back, its tensors on ``device``.

    Raises:
        CheckpointError: if the file is damaged, or was written by a newer version.
    """
    try:
        with safetensors.safe_open(path, framework="pt", device=str(device)) as file:
            header = file.metadata() or {}
            if int(header["schema"]) > SCHEMA:
                raise CheckpointError(
                    f"{path} was written by a newer jembench (checkpoint schema {header['schema']}, this one reads "
                    f"up to {SCHEMA}). Update jembench, or remove the file and train anew."
                )
            return _unpack(json.loads(header["state"]), file)
    except (safetensors.SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a readable checkpoint ({error}). Remove the file and run the same command again: the fit "
            "goes on from the last checkpoint that is whole, or starts anew."
        ) from error


def age_of(path: Path) -> int:
    """The age that a state was written with; -1 for a file that cannot be read. Reads the header alone."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return int((file.metadata() or {}).get("age", 0))
    except (safetensors.SafetensorError, ValueError, OSError):
        return -1


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load a state dictionary whose names and shapes must all fit; nothing is loaded if one does not.

    Raises:
        CheckpointError: that lists what does not fit.
    """
    if wrong := misfits(model, weights):
        shown = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        raise CheckpointError(
            f"The checkpoint belongs to another model: {shown}. Use the model spec that it was trained with, or "
            "another folder with --store."
        )
    model.load_state_dict(weights)


def misfits(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Names, shapes and kinds of numbers of a state dictionary that do not fit a model, sorted; empty: it fits."""
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own.keys() - weights.keys()]
    wrong += [f"{name} is unknown" for name in weights.keys() - own.keys()]
    for name in own.keys() & weights.keys():
        if own[name].shape != weights[name].shape:
            wrong.append(f"{name} is {tuple(weights[name].shape)} instead of {tuple(own[name].shape)}")
        if _kind(own[name]) != _kind(weights[name]):
            wrong.append(f"{name} holds {_dtype(weights[name])} instead of {_dtype(own[name])}")
    return sorted(wrong)


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    """Complex, real or whole: PyTorch casts one to another, and drops imaginary parts and fractions in silence."""
    return tensor.is_complex(), tensor.is_floating_point()


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The value's skeleton: tensors become {"tensor": key}, dictionaries lists of pairs, so that keys keep types."""
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item, f"{path}.{key}".lstrip("."), tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_pack(item, f"{path}.{i}".lstrip("."), tensors) for i, item in enumerate(value)]}
    return value


def _unpack(skeleton: Any, file: Any) -> Any:
    if not isinstance(skeleton, dict):
        return skeleton
    if "tensor" in skeleton:
        return file.get_tensor(skeleton["tensor"])
    if "dict" in skeleton:
        return {key: _unpack(item, file) for key, item in skeleton["dict"]}
    return [_unpack(item, file) for item in skeleton["list"]]
