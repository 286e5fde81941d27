"""Independent random generators for each purpose.

More random numbers for one purpose change none for another.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Generator


def derive(seed: int, purpose: str) -> int:
    """Return a seed in 0..2^63-1 that only depends on the root seed and the purpose."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> Generator:
    """Return a generator on ``device`` for one purpose."""
    return Generator(device).manual_seed(derive(seed, purpose))


def seeded(seed: int, device: torch.device | str = "cpu") -> Generator:
    """Return a generator on ``device`` with a seed."""
    return Generator(device).manual_seed(seed)


@contextmanager
def drawing(seed: int, purpose: str, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed the global generators for one purpose, and restore their state afterwards.

    Initialisers of layers and dropout use PyTorch's generators: the CPU's and, if ``device`` is a
    CUDA device, the device's. Networks may also draw from Python's and NumPy's. The host does not
    wait for the device; a CUDA graph that is replayed in the context uses the seed too.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    generators, device = [torch.default_generator], torch.device(device)
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]  # creates the generators
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]
    derived = derive(seed, purpose)
    for generator in generators:
        generator.manual_seed(derived)
    random.seed(derived)
    np.random.seed(derived % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
