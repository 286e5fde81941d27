"""Comparing values bit for bit, and watching the global random generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jembench.testing.checks import require

_SEED = 20_191_206


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, bit for bit; tensors and arrays in their types and shapes as well."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and fingerprint(a) == fingerprint(b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and fingerprint(a) == fingerprint(b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (a != a and b != b))  # NaN is the same as NaN


def different(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The names of the values that are missing in the second, or not the same there."""
    return [name for name, value in first.items() if name not in second or not same(value, second[name])]


def fingerprint(values: Tensor | np.ndarray[Any, Any]) -> str:
    """A hash of the type, the shape and every bit of a tensor or an array."""
    header = f"{values.dtype}{tuple(values.shape)}".encode()
    if isinstance(values, Tensor):
        values = values.detach().cpu().flatten().view(torch.uint8).numpy()  # numpy has not all types of torch
    return hashlib.sha256(header + values.tobytes()).hexdigest()


@contextmanager
def known_randomness() -> Iterator[None]:
    """Seed the global generators, and put them back afterwards.

    So a component that draws from them is still the same each time, and fails only the check of global randomness.
    """
    before = global_states()
    np.random.seed(_SEED)  # noqa: NPY002 - the global generator is what is watched
    torch.default_generator.manual_seed(_SEED)
    try:
        yield
    finally:
        np.random.set_state(before["numpy.random"])  # noqa: NPY002
        torch.set_rng_state(before["torch"])


@contextmanager
def untouched_randomness(name: str) -> Iterator[None]:
    """Fail the check, naming the generators, if global generators are drawn from or seeded."""
    with known_randomness():
        before = global_states()
        yield
        changed = different(before, global_states())
    require(
        not changed,
        f"{name} draws from or seeds the global generator of {' and '.join(changed)}: then all other random numbers of "
        "a run depend on it. Draw from a generator of your own, or from the one that is passed in.",
    )


def global_states() -> dict[str, Any]:
    """The state of each global generator by its name, but not of Python's: runtime type checkers draw from that."""
    return {
        "numpy.random": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
    }
