"""Foolbox, as the attacks use it. It is imported here and nowhere else.

Legend: B images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class Answering(Protocol):
    """A :class:`~jembench.attacks.target.Target`, or an object that stands before one."""

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return the logits of images in [0, 1]."""
        ...


def wrapped(target: Answering, device: torch.device) -> Any:
    """Return the model as foolbox sees it, on images of [0, 1]."""
    return foolbox().PyTorchModel(TargetModule(target), bounds=(0, 1), device=device)


class TargetModule(nn.Module):
    """A target as the module that foolbox asks for; in evaluation mode."""

    def __init__(self, target: Answering) -> None:
        super().__init__()
        self.eval()
        self._target = target

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self._target.logits(x)


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
