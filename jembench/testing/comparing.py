"""Bitwise comparison of values, and control of the global random generators."""

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
    """Compare two values bit for bit; NaN equals NaN.

    Types and shapes of tensors and arrays must be equal too.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Tensor | np.ndarray) or isinstance(b, Tensor | np.ndarray):
        return type(a) is type(b) and fingerprint(a) == fingerprint(b)
    return bool(a == b or (a != a and b != b))


def different(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the names of values that the second mapping lacks or changes."""
    return [
        name for name, value in first.items() if name not in second or not same(value, second[name])
    ]


def fingerprint(values: Tensor | np.ndarray[Any, Any]) -> str:
    """Return a hash of a tensor's or array's type, shape and bits."""
    header = f"{values.dtype}{tuple(values.shape)}".encode()
    if isinstance(values, Tensor):
        # numpy lacks some of torch's types
        bits = values.detach().cpu().contiguous().flatten().view(torch.uint8)
        values = bits.numpy()
    return hashlib.sha256(header + values.tobytes()).hexdigest()


@contextmanager
def known_randomness() -> Iterator[None]:
    """Seed the global generators, and restore them afterwards.

    A component that draws from global generators thus fails only the check of global randomness.
    """
    before = global_states()
    np.random.seed(_SEED)  # noqa: NPY002 - the global generator is under test
    torch.default_generator.manual_seed(_SEED)
    try:
        yield
    finally:
        np.random.set_state(before["numpy.random"])  # noqa: NPY002
        torch.set_rng_state(before["torch"])


@contextmanager
def untouched_randomness(name: str) -> Iterator[None]:
    """Fail the check if a global generator is drawn from or seeded."""
    with known_randomness():
        before = global_states()
        yield
        changed = different(before, global_states())
    require(
        not changed,
        f"{name} draws from or seeds the global generator of {' and '.join(changed)}, so that all "
        "other random numbers of a run depend on it. Draw from a generator of your own, or from "
        "the one that is passed in.",
    )


def global_states() -> dict[str, Any]:
    """Return the states of NumPy's and PyTorch's global generators.

    Python's generator is left out, because runtime type checkers draw from it.
    """
    return {"numpy.random": np.random.get_state(), "torch": torch.get_rng_state()}  # noqa: NPY002
