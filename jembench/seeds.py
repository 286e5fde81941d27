"""Generators of their own for each purpose, so that adding one consumer of randomness changes no other number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator


def derive(seed: int, purpose: str) -> int:
    """A seed in 0..2^63-1 that depends on the root seed and the purpose alone."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> Generator:
    """A generator on ``device`` for one purpose."""
    return Generator(device).manual_seed(derive(seed, purpose))


@contextmanager
def initialising(seed: int) -> Iterator[None]:
    """Seed PyTorch's global generator, which initialisers of layers draw from, and put it back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "initialisation"))
        yield
