"""The interface to foolbox, the only module that imports it.

Legend: N images, C channels, H height, W width, K classes.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from jembench.attacks.gradient import Images, Logits


def foolbox() -> Any:
    """Import foolbox, which takes seconds."""
    # without git, importing foolbox's model zoo would fail
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    with warnings.catch_warnings():
        # from scipy, for an attack that is not used here
        warnings.simplefilter("ignore", DeprecationWarning)
        import foolbox
        import foolbox.attacks
    return foolbox


class _Module(nn.Module):
    """The function of logits as the ``nn.Module`` that foolbox requires, in evaluation mode."""

    def __init__(self, logits: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.eval()
        self._logits = logits

    def forward(self, x: Images) -> Logits:
        return self._logits(x)


def wrapped(logits: Callable[[Tensor], Tensor], device: torch.device) -> Any:
    """Return the foolbox model of a function from images in [0, 1] to logits."""
    return foolbox().PyTorchModel(_Module(logits), bounds=(0, 1), device=device)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, which foolbox uses, and restore their state afterwards."""
    state = np.random.get_state()  # noqa: NPY002  # foolbox uses the legacy generator
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
