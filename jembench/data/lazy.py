"""A dataset whose images are read when they are first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable

from jembench.interfaces import DataSpec, Split, SplitName


class LazyDataset:
    """A :class:`~jembench.interfaces.Dataset` made of its description and a function that reads one split.

    Each split is read once; every later call gives the same tensors, on the CPU.
    """

    def __init__(self, spec: DataSpec, load: Callable[[SplitName], Split]) -> None:
        self.spec = spec
        self._load = load
        self._loaded: dict[SplitName, Split] = {}

    def split(self, name: SplitName) -> Split:
        """The images of one split: uint8 (N, C, H, W), and their labels: int64 (N,)."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]
