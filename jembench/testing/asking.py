"""What the checks of several kinds of components share: how a promise is asked for, and an eye on global randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jembench.testing.checks import CheckFailed, Promise

_SEED = 20_191_206


def promises(*functions: Callable[[Any], None]) -> tuple[Promise, ...]:
    """A promise for each function: its name is the check's, its docstring the promise."""
    return tuple(
        Promise(function.__name__.replace("_", "-"), function.__doc__ or "", function) for function in functions
    )


def require(holds: bool, text: str) -> None:
    """Fail the check unless it holds.

    Raises:
        CheckFailed: with the text, which says what was found and how to mend it.
    """
    if not holds:
        raise CheckFailed(text)


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


def fingerprint(values: Tensor | np.ndarray[Any, Any]) -> str:
    """What depends on the type, the shape and every bit of a tensor or an array of numbers."""
    header = f"{values.dtype}{tuple(values.shape)}".encode()
    if isinstance(values, Tensor):
        values = values.detach().cpu().flatten().view(torch.uint8).numpy()  # numpy has not all types of torch
    return hashlib.sha256(header + values.tobytes()).hexdigest()


@contextmanager
def known_randomness() -> Iterator[None]:
    """The global generators as at every other time this is entered; afterwards they are as they were.

    So a component that draws from them is the same each time all the same, and fails the one check that is about that.
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
def untouched_randomness(who: str) -> Iterator[None]:
    """The global generators are to be left alone meanwhile.

    Raises:
        CheckFailed: naming the generators that were drawn from or seeded.
    """
    with known_randomness():
        before = global_states()
        yield
        changed = [name for name, state in global_states().items() if not same(state, before[name])]
    require(
        not changed,
        f"{who} draws from or seeds the global generator of {' and '.join(changed)}: then all other random numbers of "
        "a run depend on it. Draw from a generator of your own, made from the one that is handed in.",
    )


def global_states() -> dict[str, Any]:
    """Where each global generator of random numbers stands, by its name.

    Not Python's own: type checkers at run time draw from it. A component that does so is not the same twice.
    """
    return {
        "numpy.random": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
    }
