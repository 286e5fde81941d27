"""Checkpoints: one file with every tensor of a state, and its other values as JSON in the header.

A state is any nesting of dictionaries and lists with tensors, numbers, strings, booleans and None at its leaves. The
file is one of :mod:`jembench.store.tensors`: whole or absent, and checked by its digest when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from jembench.errors import CheckpointError
from jembench.interfaces import Fittable
from jembench.store import tensors
from jembench.store.tensors import age_of as age_of

SCHEMA = 2

REMEDY = (
    "Remove the file and run the same command again: the fit goes on from the last checkpoint that is whole, or starts "
    "anew."
)


LARGE = 2**26
"""In bytes: a :class:`Writer` copies a state of this size, and its thread writes the copy."""


class Packed(NamedTuple):
    """A state in two parts. What training changes later are its tensors alone."""

    tensors: dict[str, Tensor]  # by their places in the state
    skeleton: Any  # JSON: all else

    def write(self, path: Path, *, age: int = 0) -> None:
        """Write the state, as :func:`write`."""
        tensors.write(path, self.tensors, {"schema": SCHEMA, "age": age, "state": self.skeleton})


def pack(state: Any) -> Packed:
    """A state as it is to be written."""
    found: dict[str, Tensor] = {}
    return Packed(found, _pack(state, "", found))


def write(path: Path, state: Any, *, age: int = 0) -> None:
    """Write a state, atomically; ``age`` orders several of one run (see :func:`age_of`).

    Raises:
        StoreError: if the file cannot be written; the previous file is kept.
    """
    pack(state).write(path, age=age)


class Writer:
    """Writes states in the order in which it gets them: small ones at once, large ones in a thread, from a copy.

    On a GPU the copy goes to pinned memory in the order of the device's work, so neither it nor the host waits.
    As a context it ends when all is written. What went wrong is then raised, unless the context ends by an error.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "checkpoints")  # which a process joins at its end
        self._writing: list[Future[None]] = []

    def write(self, state: Any, how: Callable[[Packed], None]) -> None:
        """Call ``how`` with the state as it is now, at once or soon.

        Raises:
            StoreError: if this state, or one before, could not be written.
        """
        self.check()
        packed = pack(state)
        if not self._writing and sum(each.nbytes for each in packed.tensors.values()) < LARGE:
            how(packed)
        else:
            copies, copied = _copies(packed.tensors)
            self._writing.append(self._thread.submit(_write, packed._replace(tensors=copies), copied, how))

    def check(self) -> None:
        """Raise what has gone wrong so far.

        Raises:
            StoreError: if a state could not be written.
        """
        while self._writing and self._writing[0].done():
            self._writing.pop(0).result()

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            StoreError: if a state could not be written.
        """
        wait(self._writing)
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._thread.shutdown()
        if kind is None:
            self.check()


def _write(packed: Packed, copied: Callable[[], object], how: Callable[[Packed], None]) -> None:
    copied()
    how(packed)


def _copies(found: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Callable[[], object]]:
    """The tensors as they are now, in the host's memory, and what waits until they are there."""
    copies = {name: _copy(value.detach()) for name, value in found.items()}
    if not any(value.is_cuda for value in found.values()):
        return copies, lambda: None
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return copies, copied.synchronize


def _copy(value: Tensor) -> Tensor:
    if not value.is_cuda:
        return value.clone(memory_format=torch.contiguous_format)
    try:
        pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    except RuntimeError:  # the system allows no more of it
        return value.cpu()
    return pinned.copy_(value.contiguous(), non_blocking=True)


def read(path: Path, remedy: str = REMEDY) -> Any:
    """Read a state back, its tensors on the CPU.

    Raises:
        CheckpointError: if the file is damaged, or was written by a newer version; it ends with ``remedy``.
    """
    return read_with_digest(path, remedy)[0]


def read_with_digest(path: Path, remedy: str = REMEDY) -> tuple[Any, str]:
    """A state, as :func:`read` gives it, and the SHA-256 of all that is in the file."""
    contents = tensors.read(path, remedy)
    record = contents.seal.record
    try:
        if int(record["schema"]) > SCHEMA:
            raise CheckpointError(
                f"{path} was written by a newer jembench (checkpoint schema {record['schema']}, this one reads "
                f"up to {SCHEMA}). Update jembench, or remove the file and train anew."
            )
        skeleton = record["state"] if contents.seal.is_sealed else json.loads(record["state"])
        return _unpack(skeleton, contents.tensors), contents.seal.digest
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a readable checkpoint ({error!r}). {remedy}") from error


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load a state dictionary whose names and shapes must all fit; nothing is loaded if one does not.

    Buffers of a model that is fitted at once take their shapes from it.

    Raises:
        CheckpointError: that lists what does not fit.
    """
    if isinstance(model, Fittable):
        for name, buffer in list(model.named_buffers()):
            if name in weights and weights[name].shape != buffer.shape:
                owner, _, own = name.rpartition(".")
                setattr(model.get_submodule(owner), own, buffer.new_empty(weights[name].shape))
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


def _pack(value: Any, path: str, found: dict[str, Tensor]) -> Any:
    """The value's skeleton: tensors become {"tensor": key}, dictionaries lists of pairs, so that keys keep types."""
    if isinstance(value, Tensor):
        found[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item, f"{path}.{key}".lstrip("."), found)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_pack(item, f"{path}.{i}".lstrip("."), found) for i, item in enumerate(value)]}
    return value


def _unpack(skeleton: Any, found: Mapping[str, Tensor]) -> Any:
    if not isinstance(skeleton, dict):
        return skeleton
    if "tensor" in skeleton:
        return found[skeleton["tensor"]]
    if "dict" in skeleton:
        return {key: _unpack(item, found) for key, item in skeleton["dict"]}
    return [_unpack(item, found) for item in skeleton["list"]]
