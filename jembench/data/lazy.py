"""A dataset whose images are read when they are first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable

from jembench.interfaces import DataSpec, Split, SplitName


class LazyDataset:
    """A :class:`~jembench.interfaces.Dataset` made of its description and a function that reads one split.

    Each split is read once; every call gives a copy, on the CPU, so that whoever writes to it spoils nobody's images.
    ``train_size`` and ``test_size`` say how many images there are without reading them, where that is known.
    """

    def __init__(
        self,
        spec: DataSpec,
        load: Callable[[SplitName], Split],
        *,
        train_size: int | None = None,
        test_size: int | None = None,
    ) -> None:
        self.spec = spec
        self.train_size = train_size
        self.test_size = test_size
        self._load = load
        self._loaded: dict[SplitName, Split] = {}

    def split(self, name: SplitName) -> Split:
        """The images of one split: uint8 (N, C, H, W), and their labels: int64 (N,)."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        images, labels = self._loaded[name]
        return Split(images.clone(), None if labels is None else labels.clone())
