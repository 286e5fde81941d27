"""Foolbox, as the attacks use it. It is imported here and nowhere else.

Legend: B images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from jembench.errors import Unavailable


def foolbox() -> Any:
    """Import foolbox.

    Raises:
        Unavailable: if it cannot be imported.
    """
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # without git, its model zoo would fail at import
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of scipy's, by an attack that is not used here
            import foolbox
            import foolbox.attacks
    except ImportError as error:
        raise Unavailable(
            f"Foolbox cannot be imported ({error}). It makes the boundary and the pointwise attack; "
            "`pip install 'foolbox>=3.3.4'` installs it."
        ) from error
    return foolbox


class _Module(nn.Module):
    """Logits as the module that foolbox asks for; in evaluation mode."""

    def __init__(self, logits: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.eval()
        self._logits = logits

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self._logits(x)


def wrapped(logits: Callable[[Tensor], Tensor], device: torch.device) -> Any:
    """Return logits of images in [0, 1], such as those of a target, as the model that foolbox attacks."""
    return foolbox().PyTorchModel(_Module(logits), bounds=(0, 1), device=device)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, which foolbox draws from, and put them back afterwards."""
    state = np.random.get_state()  # noqa: NPY002  # it is the legacy generator that foolbox draws from
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
