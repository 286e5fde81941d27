"""Generators of their own for each purpose, so that adding one consumer of randomness changes no other number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Generator


def derive(seed: int, purpose: str) -> int:
    """A seed in 0..2^63-1 that depends on the root seed and the purpose alone."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> Generator:
    """A generator on ``device`` for one purpose."""
    return seeded(derive(seed, purpose), device)


def seeded(seed: int, device: torch.device | str = "cpu") -> Generator:
    """A generator on ``device`` with that very seed."""
    return Generator(device).manual_seed(seed)


@contextmanager
def drawing(seed: int, purpose: str, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed PyTorch's global generators for one purpose, and put them back afterwards.

    Initialisers of layers and dropout draw from nothing else. They are the CPU's generator and, if ``device`` is a CUDA
    device, its own. Nothing waits for the device; a CUDA graph that is replayed meanwhile draws by the seed as well.
    """
    generators = _global_generators(torch.device(device))
    states = [generator.get_state() for generator in generators]
    derived = derive(seed, purpose)
    for generator in generators:
        generator.manual_seed(derived)
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _global_generators(device: torch.device) -> list[Generator]:
    if device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()  # type: ignore[no-untyped-call]  # there are no generators before
    index = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[index]]


def initialising(seed: int) -> AbstractContextManager[None]:
    """Seed PyTorch's global generator, which initialisers of layers draw from, and put it back afterwards."""
    return drawing(seed, "initialisation")
